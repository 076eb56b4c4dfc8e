"""Bytes of circular buffers that an op takes on each of its cores.

Each op's rule stands in its record (table/). The rules were read off the real ttnn 0.81 on a mocked
device (benchmarks/memory_vs_ttnn.py prints how far they are from it). A buffer that lies on a
sharded tensor costs nothing extra and is not counted.
"""

from __future__ import annotations

from temper.chips import Chip
from temper.program.op import Op, Specs
from temper.program.table.matmul import matmul_buffer_parts
from temper.program.table.shared import two_tile_parts, two_tiles


def circular_buffer_bytes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Bytes per core that the op's circular buffers take beside its tensors."""
    return (op.info.buffers or two_tiles)(op, inputs, outputs, chip)


def circular_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, int]:
    """The same bytes buffer by buffer, by name, where the op's rule tells them apart.

    Rules that were read off ttnn as a sum give one entry, ``all``.
    """
    total = circular_buffer_bytes(op, inputs, outputs, chip)
    parts = {}
    if op.kind == "Matmul":
        parts = matmul_buffer_parts(op, inputs, outputs, chip)
    elif total == two_tiles(op, inputs, outputs, chip):
        parts = two_tile_parts(op, inputs, outputs, chip)
    found = {name: size for name, size in (parts or {"all": total}).items() if size}
    assert sum(found.values()) == total
    return found


def inside_bytes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Bytes per core of the sharded tensors that the op makes and drops while it runs."""
    return op.info.inside(op, inputs, outputs, chip) if op.info.inside else 0
