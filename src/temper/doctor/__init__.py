"""Checks of host, driver, card and environment."""

from temper.doctor.finding import LEVELS, Finding, Report
from temper.doctor.machine import LiveMachine, Machine
from temper.doctor.registry import Context, run

__all__ = ["LEVELS", "Context", "Finding", "LiveMachine", "Machine", "Report", "run"]
