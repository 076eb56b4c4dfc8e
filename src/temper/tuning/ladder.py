"""The ladder of settings: from float32 at level 0 to block formats, rung by rung."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from temper.compiler.moving import moving_share
from temper.compiler.pipeline import CompiledPrograms, compile_model
from temper.cost import ProgramCost, estimate
from temper.errors import OutOfMemoryError
from temper.formats import pcc
from temper.frontdoor.loader import Loaded, find, load, takes_batch
from temper.tuning.accuracy import CHIP_SUMS

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# A larger batch must pay at least this much, or throughput has reached its plateau.
_PLATEAU = 1.03


@dataclass(frozen=True)
class Rung:
    """One setting of the ladder; times are modelled, accuracy is measured on this host."""

    name: str
    settings: Mapping[str, Any]
    batch: int
    samples_per_s: float
    low_samples_per_s: float
    high_samples_per_s: float
    call_ns: float
    gain: float  # over the rung before
    pcc: float | None
    ops: int
    host_ops: int
    moving_share: float  # of the modelled device time, what only moves data
    did: str
    next_obstacle: str
    compile_seconds: float  # measured on this host

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "settings": dict(self.settings)}


@dataclass
class Climb:
    """The model as loaded, and the rungs climbed so far."""

    source: str | Callable[..., Any]
    chip: str
    accuracy: bool
    reference: dict[int, torch.Tensor] = field(default_factory=dict)
    rungs: list[Rung] = field(default_factory=list)

    def model(self, dtype: torch.dtype, batch: int | None) -> Loaded:
        torch.manual_seed(0)
        loaded = load(self.source, batch)
        return Loaded(
            copy.deepcopy(loaded.model).to(dtype),
            tuple(_cast(x, dtype) for x in loaded.inputs),
            {k: _cast(v, dtype) for k, v in loaded.kwargs.items()},
            loaded.batch,
        )


def explain(
    source: str | Callable[..., Any],
    chip: str = "n150",
    *,
    batch: int | None = None,
    accuracy: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Rung]:
    """Climb: float32 at level 0, bfloat16, level 1, level 2, trace, batch, weight formats."""
    climb = Climb(source, chip, accuracy)
    scalable = takes_batch(find(source) if isinstance(source, str) else source)
    first = 1 if scalable else None
    f32, bf16 = torch.float32, torch.bfloat16
    steps: list[tuple[str, torch.dtype, dict[str, Any]]] = [
        ("float32, level 0", f32, {"optimization_level": 0}),
        ("bfloat16", bf16, {"optimization_level": 0}),
        ("level 1", bf16, {"optimization_level": 1}),
        ("level 2", bf16, {"optimization_level": 2}),
        ("trace", bf16, {"optimization_level": 2, "enable_trace": True}),
    ]
    for name, dtype, settings in steps:
        progress(name)
        _climb(climb, name, dtype, settings, first)
    settings = dict(steps[-1][2])
    best = first
    if scalable:
        progress("batch")
        best = batch or _best_batch(climb, settings, progress)
        _climb(climb, f"batch {best}", bf16, settings, best)
    for fmt in ("bfp_bf8", "bfp_bf4"):
        progress(fmt)
        _climb(climb, f"{fmt} weights", bf16, {**settings, "experimental_weight_dtype": fmt}, best)
    return climb.rungs


def _climb(
    climb: Climb, name: str, dtype: torch.dtype, settings: dict[str, Any], batch: int | None
) -> None:
    loaded = climb.model(dtype, batch)
    options = {"chip": climb.chip, **settings}
    compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, {**options, **CHIP_SUMS})
    costs = _costs(compiled, settings)
    call, low, high = (
        sum(getattr(c, key) for c in costs) for key in ("call_ns", "call_low_ns", "call_high_ns")
    )
    size = batch or 1
    before = climb.rungs[-1] if climb.rungs else None
    rate = size / call * 1e9
    programs = compiled.programs
    climb.rungs.append(
        Rung(
            name,
            options,
            size,
            rate,
            size / high * 1e9,
            size / low * 1e9,
            call,
            rate / before.samples_per_s if before else 1.0,
            _accuracy(climb, compiled, loaded, batch) if climb.accuracy else None,
            sum(len(p.ops) for p in programs),
            sum(op.kind == "Host" for p in programs for op in p.ops),
            moving_share(zip(programs, costs, strict=True)),
            _did(compiled, before, sum(len(p.ops) for p in programs), settings),
            _obstacle(compiled, costs),
            sum(sum(g.stages.values()) for g in compiled.graphs),
        )
    )


def _costs(compiled: CompiledPrograms, settings: Mapping[str, Any]) -> list[ProgramCost]:
    traced = bool(settings.get("enable_trace"))
    return [estimate(p, traced=traced) for p in compiled.programs]


def _best_batch(climb: Climb, settings: dict[str, Any], progress: Callable[[str], None]) -> int:
    """Double the batch until throughput stops growing or memory ends."""
    best, best_rate = 1, 0.0
    for batch in _BATCHES:
        progress(f"batch {batch}")
        loaded = climb.model(torch.bfloat16, batch)
        try:
            compiled = compile_model(
                loaded.model, loaded.inputs, loaded.kwargs, {"chip": climb.chip, **settings}
            )
        except OutOfMemoryError:
            break
        rate = batch / sum(c.call_ns for c in _costs(compiled, settings))
        if best_rate and rate < best_rate * _PLATEAU:
            break
        best, best_rate = batch, rate
    return best


def _accuracy(
    climb: Climb, compiled: CompiledPrograms, loaded: Loaded, batch: int | None
) -> float | None:
    """PCC of the first floating-point output against the float32 model in eager torch."""
    if len(compiled.graphs) != 1:
        return None
    from temper.frontdoor.loaded import LoadedGraph

    key = batch or 0
    if key not in climb.reference:
        plain = climb.model(torch.float32, batch)
        with torch.no_grad():
            climb.reference[key] = _first(plain.model(*plain.inputs, **plain.kwargs))
    graph = LoadedGraph(compiled.graphs[0])
    leaves = pytree.tree_leaves((loaded.inputs, loaded.kwargs))
    outputs = graph.results(graph.run([x for x in leaves if isinstance(x, torch.Tensor)]), leaves)
    return float(pcc(climb.reference[key].float(), _first(outputs).float()))


def _first(outputs: Any) -> torch.Tensor:
    leaves = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
    return next((x for x in leaves if x.is_floating_point()), leaves[0])


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return value


def _did(
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
    changed = sum(e.took_effect for e in compiled.weight_report)
    if changed:
        parts.append(f"{changed} weights converted")
    if settings.get("enable_trace") and before is not None and ops == before.ops and not changed:
        parts.append("one replay instead of a dispatch an op")
    return ", ".join(parts)


def _attention_blocks(compiled: CompiledPrograms) -> list[str]:
    """The block sizes that attention was given, if any."""
    configs = [op.attrs.get("config") for p in compiled.programs for op in p.ops
               if op.kind == "Sdpa"]  # fmt: skip
    sizes = dict.fromkeys((c["q_chunk_size"], c["k_chunk_size"]) for c in configs if c)
    return [f"attention in blocks of {rows} x {columns}" for rows, columns in sizes]


def _obstacle(compiled: CompiledPrograms, costs: list[ProgramCost]) -> str:
    """What most of the time goes to now."""
    shares: dict[str, float] = {}
    for cost in costs:
        for op in cost.ops:
            shares[op.bound] = shares.get(op.bound, 0.0) + op.kernel_ns
            shares["gaps"] = shares.get("gaps", 0.0) + op.gap_ns
        idle = max(0.0, cost.call_ns - cost.device_ns - cost.transfer_in_ns - cost.transfer_out_ns)
        shares["host"] = shares.get("host", 0.0) + idle
        moved = cost.transfer_in_ns + cost.transfer_out_ns
        shares["link"] = shares.get("link", 0.0) + moved
    total = sum(shares.values()) or 1.0
    name, value = max(shares.items(), key=lambda item: item[1])
    return f"{_WORDS.get(name, name)} {value / total:.0%}"


_WORDS = {
    "dram": "DRAM bandwidth", "compute": "matrix engine", "sfpu": "vector unit",
    "noc": "on-chip network", "launch": "kernel launch", "host": "host dispatch",
    "gaps": "gaps between ops", "link": "host link",
}  # fmt: skip
