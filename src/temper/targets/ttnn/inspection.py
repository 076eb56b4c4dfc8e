"""Offers every step of a plan to ttnn and notes what became of it; ttnn and numpy alone.

On a card or on a mocked device. A refused step does not end the inspection: its results are made
by hand with the planned specs, so that every later step is offered too.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

if __package__:  # in Temper's own Python
    from temper.targets.ttnn import captured as graphs
else:  # in a worker: this folder is on its path, Temper is not
    import captured as graphs  # type: ignore[import-not-found,no-redef]


def inspect(interpreter: Any, *, memory: bool = True) -> list[dict[str, Any]]:
    """One record for each step of the plan: verdict, device ops, bytes."""
    return [_inspected(interpreter, step, memory) for step in interpreter.plan["steps"]]


def peaks(interpreter: Any, inputs: list[Any]) -> dict[str, int]:
    """Most bytes of a core's SRAM and of a DRAM bank in two calls, as they run one after another.

    Nothing is forgotten between steps: tables that live with a cached program stay.
    """
    ttnn, device = interpreter.ttnn, interpreter.device
    graph = ttnn._ttnn.graph
    most = {"sram": 0, "dram": 0}
    for _ in range(2):
        interpreter.drop()
        interpreter.upload(inputs)
        for step in interpreter.plan["steps"]:
            before = allocated(ttnn, device)
            graph.begin_graph_capture(graph.RunMode.NORMAL)
            if step["kind"] == "Host":
                _stand_in(interpreter, step)
                _freed(interpreter, step["free"], {})
            else:
                interpreter.step(step)
            used = graphs.usage(graph.end_graph_capture())
            most = {where: max(most[where], before[where] + used[where]) for where in most}
    return most


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
    buffers: list[dict[str, Any]] = []
    if memory:
        buffers = _buffers(interpreter, bare)
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
        record["device_ops"] = graphs.device_ops(captured)
        if memory:
            record["during"] = graphs.usage(captured)
            _add_buffers(record["during"]["ops"], buffers)
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


def _forget_programs(device: Any) -> None:
    """Circular buffers show up when a program is built, not when it is found in the cache."""
    device.disable_and_clear_program_cache()
    device.enable_program_cache()


def _buffers(interpreter: Any, step: dict[str, Any]) -> list[dict[str, Any]]:
    """Circular buffers of every device op of the step, by a capture that dispatches nothing.

    The other mode leaves out the dataflow buffers of matmul, softmax and norms.
    """
    graph = interpreter.ttnn._ttnn.graph
    kept = dict(interpreter.values)
    _forget_programs(interpreter.device)
    graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
    failed = False
    try:
        for call in step["calls"]:
            made = interpreter.evaluate(_keeping(call["make"]))
            several = list(made) if isinstance(made, (list, tuple)) else [made]
            interpreter.values.update(zip(call["to"], several, strict=False))
            del made, several
    except Exception:  # the verdict is that of the real run
        failed = True
    captured = graph.end_graph_capture()
    interpreter.values = kept
    return [] if failed else list(graphs.usage(captured)["ops"])


def _add_buffers(ops: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """The larger count of circular buffers of the two captures for each device op."""
    left = list(others)
    for op in ops:
        same = next((i for i, other in enumerate(left) if other["op"] == op["op"]), None)
        if same is not None:
            op["buffers"] = max(op["buffers"], left.pop(same)["buffers"])


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
