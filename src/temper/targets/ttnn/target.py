"""ttnn as a target: a placed program on a card, or on a mocked device."""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temper.chips import get
from temper.cost import ProgramCost, estimate
from temper.errors import UsageError
from temper.program import Program
from temper.program.tensor_file import dump
from temper.program.trace_size import region_for, trace_bytes
from temper.targets.fold import fold_inputs
from temper.targets.protocol import Load, Phase, Timing
from temper.targets.ttnn.client import InProcess, Worker, WorkerDied, checked
from temper.targets.ttnn.constants import array_of, evaluate, host_op_runner
from temper.targets.ttnn.environment import Environment, find
from temper.targets.ttnn.plan import CallPlan, make_plan
from temper.targets.ttnn.state import on_device

_numbers = itertools.count()


class TtnnTarget:
    """Programs of one board through ttnn. One worker serves all of this process's programs."""

    name = "ttnn"

    def __init__(self, chip: str) -> None:
        self.environment: Environment = find(chip)
        self.chip = chip

    @property
    def timing(self) -> Timing:
        """A mocked device runs no kernel: its times stay the model's."""
        return "modelled" if self.environment.mocked else "measured"

    def load(self, load: Load) -> TtnnProgram:
        return TtnnProgram(self, load)


_servers: dict[Environment, Any] = {}
_starting = threading.Lock()


def server(environment: Environment) -> Any:
    """The running worker of an environment; started where there is none or it died."""
    key = environment
    with _starting:
        running = _servers.get(_key(key))
        if running is None or not running.alive:
            if running is not None:
                running.close()
            running = InProcess() if environment.in_process else Worker(environment)
            _servers[_key(key)] = running
        return running


def _key(environment: Environment) -> Any:
    return (environment.python, tuple(sorted(environment.variables.items())))


@atexit.register
def _close_servers() -> None:
    for running in _servers.values():
        running.close()


class TtnnProgram:
    """One program. After its worker died, the next call starts a new one and loads again."""

    def __init__(self, target: TtnnTarget, load: Load) -> None:
        self._target = target
        self._load = load
        self.program = load.program
        self.plan = plan_of(load.program, load.options)
        self.number = next(_numbers)
        self._on: Any = None  # the worker that holds the program
        self._constants: dict[str, Any] | None = None
        self._weights = load.weights
        self._state = on_device(load.state, load.program)
        self._times: dict[Phase, ProgramCost] = {}
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            self._prepare()

    def _prepare(self) -> Any:
        running = server(self._target.environment)
        if self._state is not None:
            self._state.bring(running)
        if self._on is running:
            return running
        if self._constants is None:
            self._constants = evaluate(self.program, self._weights, self.plan)
        missing = self._state.missing(self.program) if self._state is not None else {}
        handle, path = tempfile.mkstemp(prefix="temper-constants-", suffix=".safetensors")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(dump(self._constants | missing))
            asked = {"do": "load", "program": self.number, "plan": self.plan.to_json(),
                     "constants": path,
                     "group": self._state.group if self._state is not None else -1}  # fmt: skip
            checked(running.ask(asked)[0])
        finally:
            Path(path).unlink(missing_ok=True)
        self._on = running
        if self._state is not None:
            self._state.loaded(self.program)
        return running

    def run(self, inputs: Sequence[torch.Tensor], phase: Phase) -> list[torch.Tensor]:
        with self._lock:
            return self._run(inputs, phase)

    def _run(self, inputs: Sequence[torch.Tensor], phase: Phase) -> list[torch.Tensor]:
        if len(inputs) != len(self.program.inputs):
            raise UsageError(
                f"the program {self.program.name} takes {len(self.program.inputs)} inputs",
                given=str(len(inputs)),
            )
        arrays = fold_inputs(self.program, [array_of(t) for t in inputs])
        runner = host_op_runner(self.program) if self.plan.host_ops else None
        for _ in range(2):
            running = self._prepare()
            if self._state is not None:
                self._state.send(self.program.state.values())
            asked = {"do": "run", "program": self.number, "phase": self._phase(phase)}
            try:
                reply, made = running.ask(asked, arrays, runner)
            except WorkerDied:
                self._on = None
                raise
            if not reply.get("gone"):
                break
            self._on = None  # the device was opened anew for another program's sake
        checked(reply)
        if self._state is not None:
            self._state.ran(self.program)
        self._note(phase, reply["times"])
        return [
            torch.from_numpy(np.array(array)).to(dtype or _default(array))
            for array, dtype in zip(made, self._load.output_dtypes, strict=True)
        ]

    def _phase(self, phase: Phase) -> Phase:
        """A mocked device cannot record traces: its calls stay warm ones."""
        mocked = self._target.environment.mocked
        return "warm" if mocked and phase in ("capture", "replay") else phase

    # --- times --------------------------------------------------------------------------------

    def cost(self, phase: Phase) -> ProgramCost:
        if phase not in self._times:
            self._times[phase] = estimate(self.program, traced=phase == "replay")
        return self._times[phase]

    def _note(self, phase: Phase, times: Mapping[str, int]) -> None:
        """On a card a call's times are those of the last one; ops keep the model's shares."""
        if self._target.timing == "modelled":
            return
        modelled = estimate(self.program, traced=phase == "replay")
        device_ns = float(times["device_ns"])
        share = device_ns / modelled.device_ns if modelled.device_ns else 1.0
        ops = tuple(
            replace(op, kernel_ns=op.kernel_ns * share, low_ns=op.low_ns * share,
                    high_ns=op.high_ns * share, gap_ns=op.gap_ns * share)
            for op in modelled.ops
        )  # fmt: skip
        call_ns = float(sum(times.values()))
        self._times[phase] = replace(
            modelled, ops=ops, device_ns=device_ns, device_low_ns=device_ns,
            device_high_ns=device_ns, transfer_in_ns=float(times["in_ns"]),
            transfer_out_ns=float(times["out_ns"]), call_ns=call_ns, call_low_ns=call_ns,
            call_high_ns=call_ns, first_call_ns=call_ns,
        )  # fmt: skip

    # --- weights ------------------------------------------------------------------------------

    def set_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        with self._lock:
            self._weights = weights
            self._constants = None
            self._on = None

    def read(self, paths: Iterable[str]) -> dict[str, torch.Tensor]:
        held = self._load.state
        return {
            path: (held[path] if path in held else self._weights[path]).detach().clone()
            for path in paths
        }

    def close(self) -> None:
        if self._on is not None and self._on.alive:
            self._on.ask({"do": "unload", "program": self.number})
        self._on = None


def plan_of(program: Program, options: Mapping[str, Any], *, traceable: bool = False) -> CallPlan:
    """The calls of a program, with the regions that its options ask for, or that a trace needs."""
    region = 0
    if options["enable_trace"] or traceable:
        asked = options["trace_region_size"]
        chip = get(program.chip)
        region = int(asked) if asked is not None else region_for(trace_bytes(program, chip), chip)
    small = int(options["l1_small_size"] or 0)
    return make_plan(program, l1_small_bytes=small, trace_region_bytes=region)


def _default(array: Any) -> torch.dtype:
    return torch.float32 if array.dtype.kind == "f" else torch.int64
