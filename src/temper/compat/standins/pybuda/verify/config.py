"""pybuda.verify.config: what to compare."""

from __future__ import annotations

from enum import Enum

from temper.compat.missing import getattr_for
from temper.compat.pybuda_run import VerifyConfig

__all__ = ["TestKind", "VerifyConfig"]


class TestKind(Enum):
    """PyBuda's kinds of test; only inference runs here."""

    __test__ = False
    INFERENCE = 1
    TRAINING = 2
    TRAINING_RECOMPUTE = 3


__getattr__ = getattr_for(__name__)
