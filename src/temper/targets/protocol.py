"""What a target is: it loads a placed program, runs it, and says whose times it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from temper.cost import ProgramCost
from temper.options import Options
from temper.program import Program

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

Timing = Literal["modelled", "measured"]
# A first call uploads, const-evaluates and builds programs. With a trace the second call records
# it and every later one replays it; without, every later call is warm.
Phase = Literal["first", "warm", "capture", "replay"]


class State(dict[str, torch.Tensor]):
    """What programs change (caches), by name, in the host form of its format.

    A device with memory of its own sets ``newer`` when it has changed the values; whoever looks
    at them here has them fetched first. What the host writes, the device takes at its next call.
    """

    newer: Callable[[], None] | None = None
    device: object = None  # what the target remembers of it

    def fetch(self) -> None:
        """Bring the device's values here, where they are newer."""
        newer, self.newer = self.newer, None
        if newer is not None:
            newer()

    def on_host(self, name: str) -> torch.Tensor:
        """The host's tensor, whatever the device holds."""
        return super().__getitem__(name)

    def __getitem__(self, name: str) -> torch.Tensor:
        self.fetch()
        return super().__getitem__(name)

    def items(self) -> dict_items[str, torch.Tensor]:
        """As of a dict, fetched."""
        self.fetch()
        return super().items()

    def values(self) -> dict_values[str, torch.Tensor]:
        """As of a dict, fetched."""
        self.fetch()
        return super().values()


@dataclass(frozen=True)
class Load:
    """What a target is given: a placed program and the host's tensors that belong to it.

    ``weights`` holds host tensors by parameter path; they live on the device from ``prepare`` on.
    Programs that are given the same ``state`` share it; what is missing in it starts as zeros.
    ``output_dtypes`` are the torch dtypes that ``run`` returns.
    """

    program: Program
    weights: Mapping[str, torch.Tensor]
    output_dtypes: Sequence[torch.dtype | None]
    options: Options
    exact_accumulation: bool = False
    state: State = field(default_factory=State)
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
