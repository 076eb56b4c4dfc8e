"""ttxla_tools: compiling without running, and files of tt-mlir that Temper does not have."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_export import no_artifacts as parse_executable
from temper.compat.tt_torch_export import no_artifacts as save_system_descriptor_to_disk
from temper.options import get_custom_compile_options, set_custom_compile_options

from . import logging
from .logging import logger

__all__ = [
    "enable_compile_only", "logger", "logging", "parse_executable",
    "save_system_descriptor_to_disk",
]  # fmt: skip


def enable_compile_only(system_desc_path: str | None = None) -> None:
    """Compile and cost for the virtual chip, which needs no descriptor; outputs are zeros."""
    set_custom_compile_options({**get_custom_compile_options(), "dry_run": True})


__getattr__ = getattr_for(__name__)
