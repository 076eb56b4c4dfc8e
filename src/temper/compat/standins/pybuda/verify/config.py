"""pybuda.verify.config: what to compare."""

from __future__ import annotations

from enum import Enum

from temper.compat.missing import getattr_for
from temper.compat.pybuda_verify import VerifyConfig

__all__ = ["TestKind", "VerifyConfig"]


class TestKind(Enum):
    """PyBuda's kinds of test; only inference runs here."""

    __test__ = False
    INFERENCE = 1
    TRAINING = 2
    TRAINING_RECOMPUTE = 3

    def is_training(self) -> bool:
        return self is not TestKind.INFERENCE

    def is_recompute(self) -> bool:
        return self is TestKind.TRAINING_RECOMPUTE

    @classmethod
    def get_all(cls) -> list[TestKind]:
        """The kinds that run here."""
        return [cls.INFERENCE]


__getattr__ = getattr_for(__name__)
