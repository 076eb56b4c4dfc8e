"""pybuda.transformers: Hugging Face pipelines whose model runs on the chip."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import pipeline

__all__ = ["pipeline"]
__getattr__ = getattr_for(__name__)
