"""pybuda.transformers.pipeline: ``transformers.pipeline`` with the model on the chip."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_pipeline import pipeline

__all__ = ["pipeline"]
__getattr__ = getattr_for(__name__)
