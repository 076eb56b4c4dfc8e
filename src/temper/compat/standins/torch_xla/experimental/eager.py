"""torch_xla.experimental.eager: calls always run at once here."""

from __future__ import annotations

import contextlib
from typing import Any

from temper.compat.missing import getattr_for

__all__ = ["compile", "eager_mode", "eager_mode_context", "is_eager_mode"]


def eager_mode(enable: bool) -> None:
    """Accepted."""


def eager_mode_context(enable: bool) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def is_eager_mode() -> bool:
    return True


def compile(func: Any) -> Any:
    return func


__getattr__ = getattr_for(__name__)
