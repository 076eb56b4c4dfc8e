"""One rung of the ladder, and what the compiler did on it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temper.compiler.pipeline import CompiledPrograms
from temper.cost import ProgramCost
from temper.program import Program
from temper.tuning.choice import Difference
from temper.units import bytes_text


@dataclass(frozen=True)
class Rung:
    """One setting of the ladder; times are modelled, accuracy is measured on this host."""

    name: str
    dtype: str
    settings: Mapping[str, Any]
    batch: int
    samples_per_s: float
    low_samples_per_s: float
    high_samples_per_s: float
    call_ns: float
    gain: float  # over the setting that it was built upon
    difference: Difference | None  # the same, with its band; None for the first rung
    verdict: str  # first | faster | no difference | slower | below the floor
    kept: bool  # whether later rungs build upon it
    accuracy: Mapping[str, float] | None
    ops: int
    host_ops: int
    moving_share: float  # of the modelled device time, what only moves data
    did: str
    next_obstacle: str
    compile_seconds: float  # measured on this host

    @property
    def pcc(self) -> float | None:
        """The correlation to float32; None where it was not run or means nothing."""
        return None if self.accuracy is None else self.accuracy.get("pcc")

    @property
    def accuracy_text(self) -> str:
        """The measured accuracy in few letters."""
        if self.accuracy is None:
            return "-"
        return f"{self.pcc:.5f}" if self.pcc is not None else f"rms {self.accuracy['rms']:.2g}"

    def as_dict(self) -> dict[str, Any]:
        accuracy = None if self.accuracy is None else dict(self.accuracy)
        return {
            **self.__dict__, "settings": dict(self.settings), "accuracy": accuracy,
            "difference": self.difference and self.difference.as_dict(), "pcc": self.pcc,
        }  # fmt: skip


def did(
    compiled: CompiledPrograms, before: Rung | None, ops: int, settings: Mapping[str, Any]
) -> str:
    """What the compiler did on this rung, in one line."""
    parts = [f"{ops} ops" if before is None else f"{before.ops} -> {ops} ops"]
    hits = {p.name: p.hits for p in compiled.passes if p.enabled and p.hits}
    for skip in ("canonicalise", "fold-constants", "remove-dead"):
        hits.pop(skip, None)
    if settings.get("optimization_level", 0) >= 1 and before is not None and ops != before.ops:
        parts += [f"{name} {count}" for name, count in list(hits.items())[:4]]
    if not settings.get("enable_trace"):
        parts += _attention_blocks(compiled)
    placed = [s.memory for p in compiled.programs for s in p.values.values()]
    if settings.get("optimization_level") == 2 and before is not None:
        parts.append(f"{sum(m.buffer == 'sram' for m in placed)} of {len(placed)} values in SRAM")
        parts += [g.placement.headline for g in compiled.graphs
                  if g.placement is not None and g.placement.headline]  # fmt: skip
    changed = sum(e.took_effect for e in compiled.weight_report)
    if changed:
        parts.append(f"{changed} weights converted")
    if settings.get("enable_trace") and before is not None and ops == before.ops and not changed:
        parts.append("one replay instead of a dispatch for each op")
    return ", ".join(parts)


def _attention_blocks(compiled: CompiledPrograms) -> list[str]:
    """The block sizes that attention was given, if any."""
    configs = [op.attrs.get("config") for p in compiled.programs for op in p.ops
               if op.kind == "Sdpa"]  # fmt: skip
    sizes = dict.fromkeys((c["q_chunk_size"], c["k_chunk_size"]) for c in configs if c)
    return [f"attention in blocks of {rows} x {columns}" for rows, columns in sizes]


def shares(costs: Sequence[ProgramCost]) -> dict[str, float]:
    """What the time of a call goes to, in words, as shares; the largest first."""
    found: dict[str, float] = {}
    for cost in costs:
        for op in cost.ops:
            found[op.bound] = found.get(op.bound, 0.0) + op.kernel_ns
            found["gaps"] = found.get("gaps", 0.0) + op.gap_ns
        moved = cost.transfer_in_ns + cost.transfer_out_ns
        idle = max(0.0, cost.call_ns - cost.device_ns - moved)
        found["host"] = found.get("host", 0.0) + idle
        found["link"] = found.get("link", 0.0) + moved
    total = sum(found.values()) or 1.0
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return {_WORDS.get(name, name): value / total for name, value in ranked if value > 0}


def changed_buffers(compiled: CompiledPrograms) -> str:
    """Buffers that the model writes to: these figures and those of a real call count them apart."""
    changed = {
        str(path): graph.captured.weights[path]
        for graph in compiled.graphs
        for _, role, path in graph.captured.mutations
        if role == "weight"
    }
    if not changed:
        return ""
    size = sum(tensor.numel() * tensor.element_size() for tensor in changed.values())
    many = "1 buffer" if len(changed) == 1 else f"{len(changed)} buffers"
    return (
        f"the model changes {many} at every call, {bytes_text(size)}: here they lie on the device, "
        "while a call of the compiled model sends them there each time; temper bench and temper "
        "profile count that"
    )


# Inputs and outputs whose tiles hold this many times their values are worth a word.
_PADDED = 4
_TILE_SIDE = 32


def padding(programs: Sequence[Program]) -> str:
    """What tiles add to the inputs and outputs of a call, where that is most of their bytes."""
    for program in programs:
        for name in (*program.inputs, *program.outputs):
            spec = program.spec(name)
            held, values = math.prod(spec.padded_shape), math.prod(spec.shape)
            if spec.layout != "tile" or held < _PADDED * values or held < 1 << 20:
                continue
            shape = " x ".join(map(str, spec.shape))
            verb = "give" if name in program.inputs else "return"
            return (
                f"{name}, {shape}, fills 1 of {held // values} values of its 32 x 32 tiles, and "
                f"all of them are moved{_fuller(spec.shape, verb)}"
            )
    return ""


def _fuller(shape: Sequence[int], verb: str) -> str:
    """A shape of the same values that fills its tiles, in words; empty where there is none."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    if rows >= _TILE_SIDE:
        return f": {verb} it as {rows} x {columns}"
    values = rows * columns
    width = next((c for c in (1024, 512, 256, 128, 64, 32) if values % (_TILE_SIDE * c) == 0), 0)
    if not width:
        return ""
    return f": {verb} it as {values // width} x {width} if the model works element by element"


def obstacle(costs: Sequence[ProgramCost]) -> str:
    """What most of the time goes to now."""
    name, share = next(iter(shares(costs).items()), ("nothing", 1.0))
    return f"{name} {share:.0%}"


_WORDS = {
    "dram": "DRAM bandwidth", "compute": "matrix engine", "sfpu": "vector unit",
    "noc": "on-chip network", "launch": "kernel launch", "host": "host work",
    "gaps": "gaps between ops", "link": "host link",
}  # fmt: skip
