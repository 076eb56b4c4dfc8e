"""tt_torch.dynamo.backend: ``torch.compile(model, backend=backend, options=BackendOptions())``."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_config import BackendOptions, backend

__all__ = ["BackendOptions", "backend"]
__getattr__ = getattr_for(__name__)
