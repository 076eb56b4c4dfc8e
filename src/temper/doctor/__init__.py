"""Checks of host, driver, card and environment."""

from temper.doctor.examination import run
from temper.doctor.finding import LEVELS, Finding, Report
from temper.doctor.registry import Context
from temper.machine.machine import LiveMachine, Machine

__all__ = ["LEVELS", "Context", "Finding", "LiveMachine", "Machine", "Report", "run"]
