"""torch_xla.debug.metrics (usually ``met``): counters of torch_xla's lazy execution."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for

__all__ = [
    "clear_all", "counter_names", "counter_value", "metric_data", "metric_names",
    "metrics_report", "short_metrics_report",
]  # fmt: skip


def metrics_report() -> str:
    """Calls run at once here, so that lazy execution has nothing to count."""
    return "no metrics: Temper runs calls at once; temper profile and temper.stats() show them\n"


def short_metrics_report(counter_names: Any = None, metric_names: Any = None) -> str:
    return metrics_report()


def clear_all() -> None:
    """Nothing was counted."""


def counter_names() -> list[str]:
    return []


def counter_value(name: str) -> None:
    return None


def metric_names() -> list[str]:
    return []


def metric_data(name: str) -> None:
    return None


__getattr__ = getattr_for(__name__)
