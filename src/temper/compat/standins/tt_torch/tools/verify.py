"""tt_torch.tools.verify: a module on the chip against itself on the host."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_verify import verify_against_golden, verify_module

__all__ = ["verify_against_golden", "verify_module"]
__getattr__ = getattr_for(__name__)
