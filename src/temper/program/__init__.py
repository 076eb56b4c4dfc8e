"""The device program: records without torch, their text form, verifier and file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temper.program import table as _table  # noqa: F401  (enters the op table)
from temper.program.op import KINDS, Op, OpKind, Source
from temper.program.program import Program
from temper.program.tensor import DRAM, HOST, SRAM, Memory, TensorSpec
from temper.program.text import to_text
from temper.program.verify import problems, verify

if TYPE_CHECKING:
    from temper.program.archive import load, save

__all__ = [
    "DRAM",
    "HOST",
    "KINDS",
    "SRAM",
    "Memory",
    "Op",
    "OpKind",
    "Program",
    "Source",
    "TensorSpec",
    "load",
    "problems",
    "save",
    "to_text",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in ("load", "save"):  # they need numpy, which the records do not
        from temper.program import archive

        return getattr(archive, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
