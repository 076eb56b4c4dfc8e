"""What a graph that ttnn captured says: device ops in order, and the bytes that they held.

Imported by the worker in ttnn's own Python too: nothing of Temper is used here.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

# Device ops that ttnn's graph names otherwise than the profiler.
_SAME = {
    "UntilizeDeviceOperation": "UntilizeWithUnpaddingDeviceOperation",
    "UntilizeCodegenDeviceOperation": "UntilizeWithUnpaddingDeviceOperation",
    "GatherCodegenDeviceOperation": "GatherDeviceOperation",
    "RepeatCodegenDeviceOperation": "RepeatDeviceOperation",
    "RotaryEmbeddingDeviceOperation": "RotaryEmbedding",
    "RotaryEmbeddingHfDeviceOperation": "RotaryEmbedding",
    "UpsampleOperation": "UpSampleDeviceOperation",
}
_SRAM, _DRAM = 1, 0  # ttnn's BufferType; 3 is the region of small tables, which is opened whole
_RANGE = re.compile(r"\[(\d+)-(\d+) - (\d+)-(\d+)\]")


def device_ops(captured: list[dict[str, Any]]) -> list[str]:
    """The device ops of a captured graph, in the profiler's words."""
    names = [n["params"]["name"] for n in captured if n["node_type"] == "function_start"]
    return [_SAME.get(name, name) for name in names if "::" not in name]


def usage(captured: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes that the call took on top of what was there: ``sram`` of a core, ``dram`` of a bank.

    Both are peaks; ``ops`` has for every device op the tensors and the circular buffers in a
    core's SRAM while it ran.
    """
    live = {_SRAM: 0, _DRAM: 0}
    peak = dict(live)
    ops: list[dict[str, Any]] = []
    running: list[dict[str, Any] | None] = []
    buffers: Counter[tuple[int, int]] = Counter()
    for node in captured:
        kind, params = node["node_type"], node["params"]
        if kind == "function_start":
            name = params["name"]
            started = None
            if "::" not in name:
                started = {"op": _SAME.get(name, name), "sram": live[_SRAM], "buffers": 0}
                ops.append(started)
                buffers.clear()
            running.append(started)
        elif kind == "function_end" and running:
            running.pop()
        elif kind in ("buffer_allocate", "buffer_deallocate"):
            where = int(params["buffer_type"])
            if where in live:
                size = int(params["max_size_per_bank"])
                live[where] += size if kind == "buffer_allocate" else -size
                peak[where] = max(peak[where], live[where])
        elif kind == "circular_buffer_deallocate_all":
            buffers.clear()
        elif kind in ("circular_buffer_allocate", "dataflow_buffer_allocate"):
            on_tensor = params.get("globally_allocated", params.get("borrows_memory")) == "1"
            for core in () if on_tensor else _cores(params["core_range_set"]):
                buffers[core] += int(params["size"])
        inner = next((op for op in reversed(running) if op is not None), None)
        if inner is not None:
            inner["sram"] = max(inner["sram"], live[_SRAM])
            inner["buffers"] = max(inner["buffers"], max(buffers.values(), default=0))
    return {"sram": peak[_SRAM], "dram": peak[_DRAM], "ops": ops}


def _cores(ranges: str) -> list[tuple[int, int]]:
    found = []
    for x0, y0, x1, y1 in (map(int, m) for m in _RANGE.findall(ranges)):
        found += [(x, y) for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)]
    return found
