"""State that programs share on a worker: what the host wrote goes up, what changed comes back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch

from temper.program import Program
from temper.targets.protocol import State
from temper.targets.ttnn.client import WorkerDied, checked
from temper.targets.ttnn.constants import array_of
from temper.targets.virtual.values import host_dtype

_groups = itertools.count()


class DeviceState:
    """One ``State`` on a worker. Programs that are given the same one use the same tensors."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.group = next(_groups)
        self._on: Any = None  # the worker that holds it
        self._versions: dict[str, int] = {}  # of the host's tensors, when both sides were equal

    def bring(self, running: Any) -> None:
        """Make this worker the one that holds it; WorkerDied, once, where newer values are lost."""
        if self._on is running:
            return
        lost = self.state.newer is not None
        self._on, self._versions, self.state.newer = running, {}, None
        if lost:
            raise WorkerDied(
                "the ttnn worker ended between two calls, and the caches on its device with it",
                try_="start the text anew: the next call gets a new worker",
            )

    def missing(self, program: Program) -> dict[str, Any]:
        """Numbers of the state that the worker does not hold yet, by value name."""
        return {
            name: array_of(self.state.on_host(path))
            for name, path in program.state.items()
            if path not in self._versions
        }

    def loaded(self, program: Program) -> None:
        """A program was loaded: what it names is on the worker."""
        for path in program.state.values():
            self._versions.setdefault(path, self.state.on_host(path)._version)

    def send(self, paths: Iterable[str]) -> None:
        """What the host wrote since, to the worker."""
        changed = [p for p in paths if self.state.on_host(p)._version != self._versions[p]]
        if changed:
            arrays = [array_of(self.state.on_host(path)) for path in changed]
            asked = {"do": "write_state", "group": self.group, "names": changed}
            checked(self._on.ask(asked, arrays)[0])
            self._note(changed)

    def ran(self, program: Program) -> None:
        """A program has run: where it writes state, the worker's values are the newer ones."""
        if any(op.info.in_place for op in program.ops):
            self.state.newer = self._fetch

    def _fetch(self) -> None:
        if not self._on.alive:
            self._on = None
            raise WorkerDied("the ttnn worker ended, and the caches on its device with it")
        reply, arrays = self._on.ask({"do": "read_state", "group": self.group})
        checked(reply)
        for path, data in zip(reply["names"], arrays, strict=True):
            self.state.on_host(path).copy_(torch.from_numpy(data))
        self._note(reply["names"])

    def _note(self, paths: Iterable[str]) -> None:
        self._versions.update((path, self.state.on_host(path)._version) for path in paths)


def on_device(state: State, program: Program) -> DeviceState | None:
    """The device's side of the state of a program; None for a program without state."""
    if not program.state:
        return None
    for name, path in program.state.items():
        if path not in state:
            spec = program.spec(name)
            state[path] = torch.zeros(spec.shape, dtype=host_dtype(spec.format))
    if state.device is None:
        state.device = DeviceState(state)
    assert isinstance(state.device, DeviceState)
    return state.device
