"""The virtual chip as a target: the host computes, the cost model says how long the chip takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from temper.cost import ProgramCost, estimate
from temper.targets.protocol import Load, Phase, Timing
from temper.targets.virtual.executor import Executor


class VirtualTarget:
    """Runs programs on this host; its times are modelled."""

    name = "virtual"
    timing: Timing = "modelled"

    def load(self, load: Load) -> VirtualProgram:
        return VirtualProgram(load)


class VirtualProgram:
    """One program on the virtual chip. A trace changes its times, never its numbers."""

    def __init__(self, load: Load) -> None:
        self._program = load.program
        self._costs: dict[bool, ProgramCost] = {}
        self._executor = Executor(
            load.program,
            load.weights,
            state=load.state,
            output_dtypes=load.output_dtypes,
            exact_accumulation=load.exact_accumulation,
        )
        self.prepare = self._executor.prepare

    def run(self, inputs: Sequence[torch.Tensor], phase: Phase) -> list[torch.Tensor]:
        return self._executor.run(inputs)

    def cost(self, phase: Phase) -> ProgramCost:
        traced = phase == "replay"
        if traced not in self._costs:
            self._costs[traced] = estimate(self._program, traced=traced)
        return self._costs[traced]

    def set_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._executor.set_weights(weights)

    def read(self, paths: Iterable[str]) -> dict[str, torch.Tensor]:
        return self._executor.read(paths)

    def close(self) -> None:
        """Memory goes with the object."""
