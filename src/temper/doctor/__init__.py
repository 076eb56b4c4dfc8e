"""Checks of host, driver, card and environment."""

from temper.doctor.examination import run
from temper.doctor.finding import LEVELS, Examination, Finding
from temper.doctor.registry import Examined
from temper.machine.machine import LiveMachine, Machine

__all__ = ["LEVELS", "Examination", "Examined", "Finding", "LiveMachine", "Machine", "run"]
