"""The device program: records without torch."""

from temper.program.op import Op, Source
from temper.program.ops import KINDS, OpKind
from temper.program.program import Program
from temper.program.tensor import DRAM, HOST, SRAM, Memory, TensorSpec

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
]
