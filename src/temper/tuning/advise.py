"""One decision: for each board the best settings under a floor, and what comes next."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from temper import chips
from temper.cost import ProgramCost, estimate
from temper.errors import TemperError
from temper.frontdoor.loader import find, takes_batch
from temper.program import Program
from temper.program.memory_plan import plan
from temper.program.work import flops
from temper.tuning.captures import Captures
from temper.tuning.choice import difference
from temper.tuning.ladder import Ladder, explain
from temper.tuning.prepared import Source
from temper.tuning.rung import Rung, padding, shares
from temper.tuning.sample import choose as choose_sample
from temper.tuning.variants import variant

BOARDS = ("n150", "p150")
# What a share of the time calls for; the first of these that holds is said.
_REMEDIES = {
    "DRAM bandwidth": "fewer bytes: block formats for weights, a larger batch for each weight read",
    "matrix engine": "a lower math fidelity, or a board with more cores",
    "vector unit": "fewer elementwise ops: fusion, cheaper activations",
    "on-chip network": "shards that stay on their cores; fewer reshapes and permutes",
    "kernel launch": "larger ops: a larger batch, fewer and wider layers",
    "padding": "whole tiles of 32 x 32: a larger batch, sizes that are multiples of 32",
    "gaps between ops": "fewer ops: fusion, a larger batch",
    "host work": "a larger batch, less preparation on the host",
    "host link": "smaller inputs and outputs: bfloat16, integer images, outputs kept on the device",
    "host": "ops that run on the host: replace them by ops that the chip has",
}


@dataclass(frozen=True)
class Roofline:
    """Where a program stands under the roofs of a board; work and bytes of one call."""

    flop: float
    dram_bytes: float
    device_ns: float
    peak_tflops: float
    dram_peak_gbps: float

    @property
    def intensity(self) -> float:
        """FLOP for each byte of DRAM."""
        return self.flop / self.dram_bytes if self.dram_bytes else math.inf

    @property
    def tflops(self) -> float:
        """Modelled FLOP rate of the device."""
        return self.flop / self.device_ns / 1e3 if self.device_ns else 0.0

    @property
    def roof_tflops(self) -> float:
        """The most that this intensity allows."""
        return min(self.peak_tflops, self.intensity * self.dram_peak_gbps / 1e3)

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "tflops": self.tflops, "roof_tflops": self.roof_tflops,
                "intensity": self.intensity if math.isfinite(self.intensity) else None}  # fmt: skip


@dataclass(frozen=True)
class BoardAdvice:
    """What to do with one board; times and bytes are modelled, accuracy is measured."""

    chip: str
    ladder: Ladder
    best: Rung
    limits: Mapping[str, float]  # shares of a call's time
    roofline: Roofline
    sram_bytes_per_core: int
    sram_capacity_bytes: int
    dram_bytes: int
    dram_capacity_bytes: int
    next_steps: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "best": self.best.as_dict(), "ladder": self.ladder.as_dict(),
                "roofline": self.roofline.as_dict(), "limits": dict(self.limits)}  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """The boards that were asked for, and which of them to take."""

    model: str
    floor: str
    boards: tuple[BoardAdvice, ...]
    choice: str
    refused: Mapping[str, str] = field(default_factory=dict)  # boards that cannot, and why
    seconds: float = 0.0  # measured on this host

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM came before the last rung."""
        return any(board.ladder.interrupted for board in self.boards)

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "boards": list(self.boards), "clock": "modelled",
                "interrupted": self.interrupted}  # fmt: skip


def advise(
    source: Source,
    boards: Sequence[str] = BOARDS,
    *,
    batch: int | None = None,
    min_pcc: float = 0.99,
    seconds: float = math.inf,
    label: str = "",
    progress: Callable[[str], None] = lambda text: None,
    on_rung: Callable[[str, Rung], None] = lambda chip, rung: None,
) -> Advice:
    """Climb the ladder on each board and say what follows; the model is captured once for all."""
    started = time.monotonic()
    names = list(dict.fromkeys(chips.get(name).name for name in boards))
    function = find(source) if isinstance(source, str) else source
    progress("float32 reference")
    sample = choose_sample(function, takes_batch(function))
    captures = Captures(function)
    made: list[BoardAdvice] = []
    refused: dict[str, str] = {}
    for number, name in enumerate(names):
        # Boards that wait have their share of the budget kept for them.
        left = started + seconds - time.monotonic()
        ladder = explain(
            function, name, batch=batch, min_pcc=min_pcc, seconds=left / (len(names) - number),
            sample=sample, captures=captures, on_rung=partial(on_rung, name),
            progress=partial(_prefixed, progress, name),
        )  # fmt: skip
        if ladder.best is None:
            refused[name] = "; ".join((*ladder.notes, *ladder.skipped)) or "nothing was tried"
        else:
            made.append(_board(name, ladder, ladder.best))
        if ladder.interrupted:
            refused |= dict.fromkeys(names[number + 1 :], "interrupted")
            break
    if not made:
        raise TemperError(
            "no board keeps the floor in the time given",
            found="; ".join(f"{name}: {text}" for name, text in refused.items()),
            try_=["a lower --min-pcc", "more --minutes"],
        )
    model = label or (source if isinstance(source, str) else function.__name__)
    return Advice(
        model, made[0].ladder.floor, tuple(made), _choice(made), refused,
        time.monotonic() - started,
    )  # fmt: skip


def _prefixed(progress: Callable[[str], None], name: str, text: str) -> None:
    progress(f"{name}: {text}")


def _board(name: str, ladder: Ladder, best: Rung) -> BoardAdvice:
    chip = chips.get(name)
    costs, programs = ladder.costs[best.name], ladder.programs[best.name]
    plans = [plan(p) for p in programs]
    fidelity = str(best.settings.get("math_fidelity", "HiFi2"))
    roof = Roofline(
        sum(flops(op, p.input_specs(op), p.output_specs(op)) for p in programs for op in p.ops),
        sum(o.utilisation.get("dram", 0.0) * o.kernel_ns * chip.dram_peak_gbps
            for c in costs for o in c.ops),
        sum(c.device_ns for c in costs), chip.peak_tflops(fidelity), chip.dram_peak_gbps,
    )  # fmt: skip
    return BoardAdvice(
        name, ladder, best, shares(costs), roof,
        max(p.sram_high_water for p in plans), plans[0].sram_capacity,
        max(p.dram_high_water for p in plans), plans[0].dram_capacity,
        tuple(_next(ladder, best, costs, programs)),
    )  # fmt: skip


def _next(
    ladder: Ladder, best: Rung, costs: Sequence[ProgramCost], programs: Sequence[Program]
) -> list[str]:
    """What to change next, each with what it would bring by the model."""
    said = []
    limit, share = next(iter(shares(costs).items()))
    traced = bool(best.settings.get("enable_trace"))
    if limit in _REMEDIES:
        trace = "a trace, " if limit == "host work" and not traced else ""
        said.append(f"{limit} takes {share:.0%} of a call: {trace}{_REMEDIES[limit]}")
    for rung in ladder.rungs:
        if rung.verdict == "below the floor" and rung.gain > 1.005:
            said.append(f"a lower floor would allow {rung.name}: ×{rung.gain:.2f}, with "
                        f"{rung.accuracy_text}")  # fmt: skip
    quick = [estimate(variant(p, None, "LoFi"), traced=traced) for p in programs]
    found = difference(quick, costs)
    if found.faster:
        said.append(f"math_fidelity=LoFi would take {found.value:.2f} times as long "
                    f"({found.low:.2f} to {found.high:.2f}); accuracy: temper tune")  # fmt: skip
    tiles = padding(programs)
    said += [tiles] if tiles else []
    said += [text for text in (ladder.cast, ladder.buffers) if text]
    fallbacks = sum(op.kind == "Host" for p in programs for op in p.ops)
    if fallbacks:  # others of the host are there because it is faster
        said.append(f"{fallbacks} ops have no lowering: the host runs them, temper passes tells")
    return said


def _choice(made: Sequence[BoardAdvice]) -> str:
    """Which board, told by how sure the difference is."""
    unfinished = [b.chip for b in made if b.ladder.interrupted or b.ladder.late]
    if unfinished and len(made) > 1:
        boards = " and ".join(unfinished)
        return f"which board is the fastest is not said: {boards} could not be tried to the end"
    ranked = sorted(made, key=lambda b: -b.best.samples_per_s)
    first = ranked[0]
    if len(ranked) == 1:
        return f"{first.chip}: {first.best.samples_per_s:,.0f} samples/s"
    parts = []
    for other in ranked[1:]:
        gain = first.best.samples_per_s / other.best.samples_per_s
        sure = first.best.low_samples_per_s > other.best.high_samples_per_s
        word = "" if sure else ", though their bands meet"
        parts.append(f"×{gain:.2f} over {other.chip}{word}")
    return f"{first.chip} is the fastest: {', '.join(parts)}"
