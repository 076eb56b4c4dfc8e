"""What an op has to do whatever runs it: arithmetic and bytes."""

from __future__ import annotations

from temper.program.op import Op, Specs
from temper.program.tensor import Buffer


def flops(op: Op, inputs: Specs, outputs: Specs, *, padded: bool = False) -> float:
    """Useful operations of the logical (or padded) shapes; 0 for ops without products."""
    rule = op.info.products
    return 2.0 * rule(op, inputs, outputs, padded) if rule else 0.0


def bytes_in(buffer: Buffer, inputs: Specs, outputs: Specs) -> float:
    """Bytes of all operands and results that lie in a kind of memory."""
    return float(sum(t.size_bytes for t in (*inputs, *outputs) if t.memory.buffer == buffer))
