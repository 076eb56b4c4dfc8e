"""The device "tt" for stand-ins that hand out devices."""

from __future__ import annotations

import torch

from temper.errors import UsageError


def tt_device(index: int | None) -> torch.device:
    """``torch.device("tt")``; there is one chip, number 0."""
    from temper.frontend.device import ensure_registered

    if index not in (None, 0):
        raise UsageError(f"device {index} does not exist: Temper models a single chip, number 0")
    ensure_registered()
    return torch.device("tt")
