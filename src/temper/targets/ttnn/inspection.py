"""Offers every step of a plan to ttnn and notes what became of it; ttnn and numpy alone.

On a card or on a mocked device. A refused step does not end the inspection: its results are made
by hand with the planned specs, so that every later step is offered too.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

# Device ops that ttnn's graph names otherwise than the profiler.
_SAME = {
    "UntilizeDeviceOperation": "UntilizeWithUnpaddingDeviceOperation",
    "UntilizeCodegenDeviceOperation": "UntilizeWithUnpaddingDeviceOperation",
    "RepeatCodegenDeviceOperation": "RepeatDeviceOperation",
    "RotaryEmbeddingDeviceOperation": "RotaryEmbedding",
    "RotaryEmbeddingHfDeviceOperation": "RotaryEmbedding",
    "UpsampleOperation": "UpSampleDeviceOperation",
}


def inspect(interpreter: Any, *, memory: bool = True) -> list[dict[str, Any]]:
    """One record for each step of the plan: verdict, device ops, bytes."""
    return [_inspected(interpreter, step, memory) for step in interpreter.plan["steps"]]


def load(interpreter: Any, constants: dict[str, Any]) -> list[dict[str, Any]]:
    """Upload zeros for the constants and prepare them; the preparations that were refused."""
    interpreter.values.clear()
    for upload in interpreter.plan["constants"]:
        data = constants[upload["value"]]
        interpreter.values[upload["name"]] = interpreter.tensor(upload, data)
    refused = []
    for step in interpreter.plan["setup"]:
        try:
            interpreter.step(step)
        except Exception as error:  # whatever ttnn raises is the verdict
            refused.append({"label": step["label"], "message": str(error)[:500]})
    return refused


def zeros_for(plan: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Constants and inputs of zeros: a refusal depends on shapes, formats and places alone."""
    constants = {u["value"]: np.zeros(u["shape"], np.float32) for u in plan["constants"]}
    return constants, [np.zeros(u["shape"], np.float32) for u in plan["inputs"]]


def allocated(ttnn: Any, device: Any) -> dict[str, int]:
    """Bytes in use now: of one core's SRAM and of one DRAM bank."""
    view = ttnn.get_memory_view
    kinds = {"sram": ttnn.BufferType.L1, "dram": ttnn.BufferType.DRAM}
    return {
        name: int(view(device, kind).total_bytes_allocated_per_bank) for name, kind in kinds.items()
    }


def _inspected(interpreter: Any, step: dict[str, Any], memory: bool) -> dict[str, Any]:
    ttnn, device = interpreter.ttnn, interpreter.device
    graph = ttnn._ttnn.graph
    record: dict[str, Any] = {"ops": step["ops"], "kind": step["kind"], "label": step["label"],
                              "source": step["source"], "verdict": "accepted"}  # fmt: skip
    free, bare = step["free"], {**step, "free": []}
    if step["kind"] == "Host":
        _stand_in(interpreter, step)
        record.update(verdict="host", device_ops=[])
        return _freed(interpreter, free, record)
    if memory:
        record["sram_buffers"] = _buffers(interpreter, bare)
        _forget_programs(device)
        record["before"] = allocated(ttnn, device)
    started = time.perf_counter()
    graph.begin_graph_capture(graph.RunMode.NORMAL)
    error: BaseException | None = None
    try:
        interpreter.step(bare)
    except Exception as raised:  # whatever ttnn raises is the verdict
        error = raised
    captured = graph.end_graph_capture()
    record["seconds"] = time.perf_counter() - started
    if error is not None:
        record.update(verdict="refused", message=str(error)[:500])
        error = None
        _stand_in(interpreter, step)
    else:
        record["device_ops"] = device_ops(captured)
        usage = ttnn.graph.extract_resource_usage_per_core(captured)
        # A call that frees more than it takes wraps around below zero.
        record["peak_sram_new"] = int(usage.peak_l1) if usage.peak_l1 < 1 << 40 else 0
        if memory:
            record["sram_buffers"] = max(record["sram_buffers"], int(usage.peak_cb))
        different = interpreter.differences(step)
        if different:
            record.update(verdict="differs", message="; ".join(different))
            _stand_in(interpreter, step)
    if memory:
        record["after"] = allocated(ttnn, device)
    return _freed(interpreter, free, record)


def _freed(interpreter: Any, names: list[str], record: dict[str, Any]) -> dict[str, Any]:
    for name in names:
        interpreter.values.pop(name, None)
    return record


def device_ops(captured: list[dict[str, Any]]) -> list[str]:
    """The device ops of a captured graph, in the profiler's words."""
    names = [n["params"]["name"] for n in captured if n["node_type"] == "function_start"]
    return [_SAME.get(name, name) for name in names if "::" not in name]


def _forget_programs(device: Any) -> None:
    """Circular buffers show up when a program is built, not when it is found in the cache."""
    device.disable_and_clear_program_cache()
    device.enable_program_cache()


# A capture that dispatches nothing frees their operands all the same; the other one counts them.
_WINDOWS = frozenset({"Conv2d", "ConvTranspose2d", "Pool2d"})


def _buffers(interpreter: Any, step: dict[str, Any]) -> int:
    """Circular buffers of a core while the step runs, by a capture that dispatches nothing."""
    if step["kind"] in _WINDOWS:
        return 0
    graph = interpreter.ttnn._ttnn.graph
    kept = dict(interpreter.values)
    _forget_programs(interpreter.device)
    graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
    failed = False
    try:
        for call in step["calls"]:
            interpreter.evaluate(_keeping(call["make"]))
    except Exception:  # the verdict is that of the real run
        failed = True
    captured = graph.end_graph_capture()
    interpreter.values = kept
    if failed:
        return 0
    usage = interpreter.ttnn.graph.extract_resource_usage_per_core(captured)
    return int(usage.peak_cb) + int(usage.peak_dataflow_buffer)


def _keeping(make: Any) -> Any:
    """A call that lets no operand go: the real run comes after it."""
    if isinstance(make, list):
        return [_keeping(part) for part in make]
    if not isinstance(make, dict):
        return make
    return {
        key: False if key.startswith("deallocate") else _keeping(part) for key, part in make.items()
    }


def _stand_in(interpreter: Any, step: dict[str, Any]) -> None:
    """The planned results as zeros, where ttnn gave none or others."""
    ttnn = interpreter.ttnn
    for result in step["results"]:
        interpreter.values[result["name"]] = ttnn.empty(
            result["shape"],
            interpreter.evaluate(result["dtype"]),
            interpreter.evaluate(result["layout"]),
            interpreter.device,
            interpreter.evaluate(result["memory"]),
        )
