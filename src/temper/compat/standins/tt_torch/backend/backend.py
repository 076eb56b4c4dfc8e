"""tt_torch.backend.backend: the backend "tt" as a function."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_config import backend as xla_backend

__all__ = ["xla_backend"]
__getattr__ = getattr_for(__name__)
