"""Pages of buffers and circular buffers of ops, as ttnn's memory report has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from temper.chips import Chip
from temper.program import TensorSpec
from temper.program.simulate import Stay

Page = tuple[int, int, int, int, int, int]  # core y, core x, bank, index, address, bytes


def pages_of(spec: TensorSpec, stay: Stay, chip: Chip) -> Iterator[Page]:
    """Each page of a tensor in SRAM: dealt out over the cores, or shard by shard."""
    size, columns = max(1, spec.page_bytes), chip.grid[0]
    if not spec.memory.sharded:
        for page in range(spec.pages):
            core = page % chip.compute_cores
            address = stay.address + page // chip.compute_cores * size
            yield core // columns, core % columns, core, page, address, size
        return
    assert spec.memory.grid is not None
    across, down = spec.memory.grid
    # A core's shard holds as many whole pages as its bytes are, the last one's may be fewer.
    a_core = max(1, stay.bank_bytes // size)
    for y, x in product(range(down), range(across)):
        core = y * across + x
        for place, page in enumerate(range(core * a_core, min(spec.pages, (core + 1) * a_core))):
            yield y, x, core, page, stay.address + place * size, size


def captured_graph(
    name: str, buffers: Mapping[str, int], chip: Chip, cores: int
) -> list[dict[str, Any]]:
    """What ttnn captures of one op: its name and each circular buffer of its cores.

    Without a name nothing ran on the device, and nothing was captured but the frame.
    """
    columns = chip.grid[0]
    rows = max(1, -(-max(1, cores) // columns))
    across = min(max(1, cores), columns)
    core_range = f"{{[(x=0,y=0) - (x={across - 1},y={rows - 1})]}}"
    nodes: list[tuple[str, dict[str, str]]] = [("capture_start", {})]
    if name:
        nodes.append(("function_start", {"name": name, "inputs": "0"}))
    address = chip.sram_reserved_bytes
    for buffer, size in buffers.items():
        params = {"size": str(size), "address": str(address), "core_range_set": core_range}
        params |= {"globally_allocated": "0", "name": buffer}
        nodes.append(("circular_buffer_allocate", params))
        address += size
    if name:
        nodes.append(("function_end", {"name": name}))
    if buffers:
        nodes.append(("circular_buffer_deallocate_all", {}))
    nodes.append(("capture_end", {}))
    return [
        {
            "counter": counter,
            "node_type": kind,
            "params": params,
            "connections": [counter + 1] if counter + 1 < len(nodes) else [],
        }
        for counter, (kind, params) in enumerate(nodes)
    ]
