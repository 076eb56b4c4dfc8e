"""Bytes of circular buffers that an op takes on each of its cores.

Each op's rule stands in its record (table/). The rules were read off the real ttnn 0.81 on a mocked
device (benchmarks/memory_vs_ttnn.py prints how far they are from it). A buffer that lies on a
sharded tensor costs nothing extra and is not counted.
"""

from __future__ import annotations

from temper.chips import Chip
from temper.program.op import Op, Specs
from temper.program.table.shared import two_tiles


def circular_buffer_bytes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Bytes per core that the op's circular buffers take beside its tensors."""
    return (op.info.buffers or two_tiles)(op, inputs, outputs, chip)
