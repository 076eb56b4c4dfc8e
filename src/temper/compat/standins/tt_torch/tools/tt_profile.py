"""tt_torch.tools.tt_profile: the profiler command, also with ``-m``."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_parts import profile as tt_profile
from temper.compat.tt_torch_profile import tt_profile as main

__all__ = ["main", "tt_profile"]
__getattr__ = getattr_for(__name__)

if __name__ == "__main__":
    main()
