"""What a worker does with each request: open, load, run, inspect, step; ttnn and numpy alone."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

if __package__:  # in Temper's own Python
    from temper.targets.ttnn import frames, inspection, interpret
else:  # in a worker: this folder is on its path, Temper is not
    import frames  # type: ignore[import-not-found,no-redef]
    import inspection  # type: ignore[import-not-found,no-redef]
    import interpret  # type: ignore[import-not-found,no-redef]

Reply = tuple[dict[str, Any], list[Any]]


class Server:
    """One device and the programs that are loaded on it."""

    def __init__(self, note: Any, host_op: Any) -> None:
        self._note = note  # told every step before it runs
        self._host_op = host_op  # runs an op of the host: (step, operands) -> results
        self._ttnn: Any = None
        self._device: Any = None
        self._opened: dict[str, int] = {}
        self._programs: dict[int, Any] = {}
        self._traces: dict[int, Any] = {}
        # Tensors that programs of a group share and change, by group and name.
        self._states: dict[int, dict[str, interpret.State]] = {}
        self._groups: dict[int, int] = {}  # the group of a program

    def handle(self, message: dict[str, Any], arrays: Sequence[Any]) -> Reply:
        """The reply to one request; what ttnn refuses comes back as ``error``."""
        try:
            return getattr(self, f"_{message['do']}")(message, list(arrays))  # type: ignore[no-any-return]
        except interpret.Refused as refused:
            step = refused.step
            place = {"label": step["label"], "kind": step["kind"], "source": step["source"]}
            return {"error": str(refused), "step": place}, []
        except Exception as error:  # the worker lives on; the caller is told
            return {"error": f"{type(error).__name__}: {interpret.first_line(error)}"}, []

    # --- the device ---------------------------------------------------------------------------

    def _hello(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        ttnn = self._library()
        version = getattr(ttnn, "__version__", "")
        return {"version": version, "mocked": self._mocked(), "pid": os.getpid()}, []

    def _library(self) -> Any:
        if self._ttnn is None:
            import ttnn

            self._ttnn = ttnn
        return self._ttnn

    def _mocked(self) -> bool:
        return bool(os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH"))

    def _open(self, sizes: dict[str, int]) -> Any:
        """The device with these regions; opened anew when a program needs larger ones."""
        wanted = {k: max(v, self._opened.get(k, 0)) for k, v in sizes.items()}
        kept = {}
        if self._device is not None and wanted != self._opened:
            kept = {key: self._numbers(key) for key in self._states}
            self._shut()
        if self._device is None:
            ttnn = self._library()
            self._device = ttnn.open_device(device_id=0, **wanted)
            self._device.enable_program_cache()
            self._opened = wanted
            bare = interpret.Interpreter(ttnn, self._device, {})
            for group, tensors in kept.items():
                self._states[group] = {
                    name: (upload, bare.tensor(upload, data))
                    for name, (upload, data) in tensors.items()
                }
        return self._device

    def _numbers(self, group: int) -> dict[str, Any]:
        """The state of a group on the host: its upload and its numbers, by name."""
        bare = interpret.Interpreter(self._library(), self._device, {})
        held = self._states.get(group, {})
        return {name: (upload, bare.numbers(tensor)) for name, (upload, tensor) in held.items()}

    def _shut(self) -> None:
        for program in self._programs.values():
            program.values.clear()
        self._programs.clear()
        self._traces.clear()
        self._states.clear()
        self._groups.clear()
        if self._device is not None:
            self._ttnn.close_device(self._device)
        self._device = None

    def _device_info(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        device = self._open(message["options"])
        grid = device.compute_with_storage_grid_size()
        return {"arch": str(device.arch()), "grid": [grid.x, grid.y]}, []

    # --- programs -----------------------------------------------------------------------------

    def _load(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        number, plan = message["program"], message["plan"]
        before = self._device
        device = self._open(plan["options"])
        program = interpret.Interpreter(self._library(), device, plan)
        program.observe = self._note
        program.host_op = self._run_host_op
        self._groups[number] = message["group"]
        program.state = self._states.setdefault(message["group"], {})
        program.load(frames.read_tensors(message["constants"]))
        self._programs[number] = program
        lost = before is not None and before is not device
        return {"lost_others": lost}, []

    def _unload(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        program = self._programs.pop(message["program"], None)
        trace = self._traces.pop(message["program"], None)
        if trace is not None:
            self._ttnn.release_trace(self._device, trace)
        if program is not None:
            program.values.clear()
        group = self._groups.pop(message["program"], None)
        if group is not None and group not in self._groups.values():
            self._states.pop(group, None)  # nobody is left who reads it
        return {}, []

    def _write_state(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        """What the host changed, into the tensors that programs hold."""
        held = self._states[message["group"]]
        bare = interpret.Interpreter(self._ttnn, self._device, {})
        for name, data in zip(message["names"], arrays, strict=True):
            upload, tensor = held[name]
            host = bare.tensor({**upload, "on_host": True}, data)
            self._ttnn.copy_host_to_device_tensor(host, tensor)
        return {}, []

    def _read_state(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        found = self._numbers(message["group"])
        return {"names": list(found)}, [data for _, data in found.values()]

    def _run(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        number, phase = message["program"], message["phase"]
        if number not in self._programs:
            return {"error": "not loaded", "gone": True}, []
        program = self._programs[number]
        ttnn = self._ttnn
        started = time.perf_counter_ns()
        if phase == "replay" and number in self._traces:
            self._copy_inputs(program, arrays)
            uploaded = time.perf_counter_ns()
            ttnn.execute_trace(self._device, self._traces[number], cq_id=0, blocking=True)
            ran = time.perf_counter_ns()
            outputs = program.outputs()
        else:
            program.upload(arrays)
            uploaded = time.perf_counter_ns()
            traced = phase == "capture"
            if traced:
                # What a trace replays must have been built before.
                trace = ttnn.begin_trace_capture(self._device, cq_id=0)
            program.run()
            if traced:
                ttnn.end_trace_capture(self._device, trace, cq_id=0)
                self._traces[number] = trace
                ttnn.execute_trace(self._device, trace, cq_id=0, blocking=True)
            ttnn.synchronize_device(self._device)
            ran = time.perf_counter_ns()
            outputs = program.outputs()
            if number not in self._traces:
                program.drop()
        ended = time.perf_counter_ns()
        times = {"in_ns": uploaded - started, "device_ns": ran - uploaded, "out_ns": ended - ran}
        return {"times": times}, outputs

    def _copy_inputs(self, program: Any, arrays: list[Any]) -> None:
        """New numbers into the input tensors that the trace reads."""
        for upload, data in zip(program.plan["inputs"], arrays, strict=True):
            name = upload["name"]
            if name in program.values:
                host = program.tensor({**upload, "on_host": True}, data)
                self._ttnn.copy_host_to_device_tensor(host, program.values[name])
                continue
            # An input in SRAM that the program lets go: its bytes are free again between calls.
            written = program.tensor(upload, data)
            if written.buffer_address() != program.addresses[name]:
                raise RuntimeError(f"the input {name} of a trace lies at another address now")

    def _run_host_op(self, program: Any, step: dict[str, Any]) -> None:
        operands = [program.numbers(program.values[name]) for name in step["operands"]]
        results = self._host_op(step, operands)
        for made, data in zip(step["results"], results, strict=True):
            program.values[made["name"]] = program.tensor(made, data)

    def _step(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        """One step of a loaded program on operands that the caller gives."""
        program = self._programs[message["program"]]
        step = program.plan["steps"][message["step"]]
        for made, data in zip(message["operands"], arrays, strict=True):
            program.values[made["name"]] = program.tensor(made, data)
        program.step({**step, "free": []})
        results = [program.numbers(program.values[r["name"]]) for r in step["results"]]
        program.drop()
        return {}, results

    # --- legality -----------------------------------------------------------------------------

    def _inspect(self, message: dict[str, Any], arrays: list[Any]) -> Reply:
        plan = message["plan"]
        device = self._open(plan["options"])
        program = interpret.Interpreter(self._library(), device, plan)
        program.observe = self._note
        constants, inputs = inspection.zeros_for(plan)
        setup = inspection.load(program, constants)
        program.upload(inputs)
        records = inspection.inspect(program, memory=message["memory"])
        reply: dict[str, Any] = {"setup": setup, "steps": records}
        wrong = setup or any(r["verdict"] in ("refused", "differs") for r in records)
        if message["memory"] and not wrong:
            reply["peaks"] = inspection.peaks(program, inputs)
        program.values.clear()
        return reply, []
