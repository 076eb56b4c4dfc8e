"""What a target is: it loads a placed program, runs it, and says whose times it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from temper.cost import ProgramCost
from temper.options import Options
from temper.program import Program

Timing = Literal["modelled", "measured"]
# A first call uploads, const-evaluates and builds programs. With a trace the second call records
# it and every later one replays it; without, every later call is warm.
Phase = Literal["first", "warm", "capture", "replay"]


@dataclass(frozen=True)
class Load:
    """What a target is given: a placed program and the host's tensors that belong to it.

    ``weights`` holds host tensors by parameter path; they live on the device from ``prepare`` on.
    ``state`` holds what the program changes (caches), by name, in the host form of its format;
    programs that are given the same mapping share it, and what is missing starts as zeros.
    ``output_dtypes`` are the torch dtypes that ``run`` returns.
    """

    program: Program
    weights: Mapping[str, torch.Tensor]
    output_dtypes: Sequence[torch.dtype | None]
    options: Options
    exact_accumulation: bool = False
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)  # for people: the model's name


class LoadedProgram(Protocol):
    """One program on one device. Calls are serialised by the target, not by its user."""

    def prepare(self) -> None:
        """Upload the weights and const-evaluate; a first ``run`` does it where it was not done."""

    def run(self, inputs: Sequence[torch.Tensor], phase: Phase) -> list[torch.Tensor]:
        """One call: outputs in fresh host memory, in the program's order."""

    def cost(self, phase: Phase) -> ProgramCost:
        """Times of one call in that phase: modelled, or measured by the calls so far."""

    def set_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """New values for weights and state; const-eval runs again."""

    def read(self, paths: Iterable[str]) -> dict[str, torch.Tensor]:
        """What the device holds for weights or state now, as fresh host tensors by path."""

    def close(self) -> None:
        """Give the device's memory back; the program is not used after."""


class Target(Protocol):
    """A way to run placed programs."""

    name: str

    @property
    def timing(self) -> Timing:
        """Whose times the target gives."""

    def load(self, load: Load) -> LoadedProgram:
        """Make a program ready on this target; nothing has crossed the link yet."""


def phase_of(call: int, *, traced: bool) -> Phase:
    """The phase of the call with this number, counted from 0."""
    if call == 0:
        return "first"
    if not traced:
        return "warm"
    return "capture" if call == 1 else "replay"
