"""From a program to nanoseconds, with a band."""

from temper.cost.model import estimate, estimate_op
from temper.cost.records import Context, OpCost, ProgramCost

__all__ = ["Context", "OpCost", "ProgramCost", "estimate", "estimate_op"]
