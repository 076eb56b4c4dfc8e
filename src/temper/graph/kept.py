"""Ops that capture leaves whole because a lowering takes them so."""

from __future__ import annotations

from typing import Any

# Filled where lowerings are registered; capture decomposes every other composite op.
KEPT_OPS: set[Any] = set()
