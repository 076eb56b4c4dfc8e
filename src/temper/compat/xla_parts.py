"""What torch_xla's C++ module answers for one chip."""

from __future__ import annotations

from typing import Any


def _xla_get_default_device() -> str:
    return "xla:0"


def _xla_metrics_report() -> str:
    return "no metrics: Temper runs calls at once; temper profile and temper.stats() show them\n"


def _get_xla_sharding_spec(tensor: Any) -> str:
    """On one chip every tensor is whole."""
    return ""


def _xla_get_replication_devices_count() -> int:
    return 0
