"""``torch.tt``: what scripts ask of a device's module (count, seed, synchronise, names)."""

from __future__ import annotations

from typing import Any

import torch

DEVICE_COUNT = 1


def is_available() -> bool:
    """The virtual chip always is."""
    return True


def is_initialized() -> bool:
    """It needs nothing first."""
    return True


def init() -> None:
    """Nothing to start: the virtual chip is there."""


def device_count() -> int:
    """One."""
    return DEVICE_COUNT


def current_device() -> int:
    """The only one."""
    return 0


def set_device(device: Any) -> None:
    """Checked; there is one."""
    _check(device)


def get_device_name(device: Any = None) -> str:
    """The board that programs are compiled for, e.g. ``virtual n150``."""
    _check(device)
    from temper import options

    return f"virtual {options.resolve({})['chip']}"


def synchronize(device: Any = None) -> None:
    """Every op has finished when it returns."""
    _check(device)


def empty_cache() -> None:
    """No cache of device memory is kept."""


# The device draws from the CPU's generator: a script gives the same numbers on either device.
def manual_seed(seed: int) -> None:
    """Seed the host's generator, which the device draws from."""
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the host's generator by chance."""
    torch.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed that the host's generator has."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of the host's generator."""
    _check(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Set the state of the host's generator."""
    _check(device)
    torch.default_generator.set_state(new_state.cpu())


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may cast to."""
    return [torch.bfloat16]


def is_bf16_supported() -> bool:
    """bfloat16 is the device's own."""
    return True


def _is_in_bad_fork() -> bool:
    return False


class device:
    """``with torch.tt.device(0):``; there is only one."""

    def __init__(self, device: Any) -> None:
        _check(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


def _check(which: Any) -> None:
    if which is None:
        return
    found = torch.device("tt", which) if isinstance(which, int) else torch.device(which)
    if found.type != "tt" or (found.index or 0) >= DEVICE_COUNT:
        raise RuntimeError(f"there is one device 'tt', tt:0; asked for {which}")
