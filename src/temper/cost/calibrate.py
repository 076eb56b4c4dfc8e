"""Calibration: fit all families to rows, judge the fit on sources left out, write the constants."""

from __future__ import annotations

import datetime
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temper.cost import fit, sfpu
from temper.cost.band_fit import Errors, coverage, table
from temper.cost.bands import BEYOND, EXTRAPOLATED, NOVELTY, seen
from temper.cost.constants import FORMAT, SEPARATOR
from temper.cost.families import DEFAULT_POWER, POWER, physics
from temper.cost.records import Physics
from temper.cost.rows import Row
from temper.cost.work import Work
from temper.errors import TemperError
from temper.files import write_text

Trees = dict[str, fit.Tree]  # arch -> tree
# How far sources of many rows are kept from outvoting the others: 0 not at all, 1 wholly.
SOURCE_SHARE = 0.1


@dataclass(frozen=True)
class FittedFamily:
    """One family: its terms, trees, and held-out log residuals (measured over predicted)."""

    name: str
    power: float
    serial: tuple[str, ...]
    overlap: tuple[str, ...]
    trees: Trees
    rows: Sequence[Row]
    variants: Sequence[tuple[str, ...]]
    terms: Sequence[Physics]
    held_out: fit.Array
    in_fit: fit.Array
    novelty: Sequence[str]  # of each row, for a fit without its source
    extrapolated: Sequence[bool]  # the same


def physics_of(rows: Sequence[Row]) -> list[Physics]:
    """Each row in physical terms, before any fitted factor."""
    return [physics(Work(r.op, r.inputs, r.outputs, r.chip, r.context)) for r in rows]


# Families whose physics use the vector unit's measured cycles.
_ELEMENTWISE = {"unary": 1, "binary": 2, "ternary": 3}


def measured_cycles(rows: Iterable[Row]) -> dict[str, float]:
    """Vector-unit cycles from kernels of a single bfloat16 tile (see ``sfpu.measure``)."""
    found = []
    for row in rows:
        operands = _ELEMENTWISE.get(row.family)
        out = row.outputs[0]
        attrs = row.op.attrs
        fused = attrs.get("lhs") or attrs.get("rhs") or attrs.get("post") or attrs.get("older")
        plain = out.tiles == 1 and out.format == "bfloat16" and out.layout == "tile"
        if operands is None or fused or not plain or row.context.cores != 1:
            continue
        if any(spec.memory.buffer != "dram" for spec in row.inputs):
            continue
        function = attrs["functions"][0][0] if operands == 1 else attrs["function"]
        found.append((row.chip.arch, operands, str(function), row.kernel_ns, row.chip.clock_ghz))
    return sfpu.measure(found)


def fit_family(
    name: str, rows: Sequence[Row], everything: Sequence[Row], *, cross_validate: bool = True
) -> FittedFamily:
    """Fit one family; then again without each source in turn, to see what unseen ones get."""
    terms = physics_of(rows)
    power = POWER.get(name, DEFAULT_POWER)
    serial = tuple(sorted({n for p in terms for n in p.serial}))
    overlap = tuple(sorted({n for p in terms for n in p.overlap}))
    kernel_ns = [r.kernel_ns for r in rows]
    weight = _weights(rows)
    arch = np.array([r.chip.arch for r in rows])
    source = np.array([r.source for r in rows])

    def trees(table: fit.Table, chosen: fit.Array) -> Trees:
        made: Trees = {}
        base: fit.Tree | None = None
        for name_ in fit.ARCHES:
            index = np.flatnonzero(chosen & (arch == name_))
            base = fit.fit_tree(table.pick(index), power, base)
            made[name_] = base
        return made

    def predict(made: Trees, table: fit.Table, index: fit.Array) -> fit.Array:
        out = np.zeros(len(index))
        for name_ in fit.ARCHES:
            part = np.flatnonzero(arch[index] == name_)
            if len(part):
                out[part] = fit.predict(made[name_], table.pick(index[part]), power)
        return out

    table = fit.table(terms, serial, overlap, kernel_ns, weight)
    whole = trees(table, np.ones(len(rows), dtype=bool))
    in_fit = table.log_ns - predict(whole, table, np.arange(len(rows)))
    held_out = in_fit.copy()
    if cross_validate:
        for left_out in np.unique(source):
            index = np.flatnonzero(source == left_out)
            part = table
            if name in _ELEMENTWISE:
                # The cycles must not come from the source that is left out either.
                with sfpu.measured(measured_cycles(r for r in everything if r.source != left_out)):
                    part = fit.table(physics_of(rows), serial, overlap, kernel_ns, weight)
            held_out[index] = table.log_ns[index] - predict(
                trees(part, source != left_out), part, index
            )
    novelty, extrapolated = [NOVELTY[0]] * len(rows), [False] * len(rows)
    if cross_validate:
        novelty, extrapolated = _novelty(rows, terms)
    return FittedFamily(
        name, power, serial, overlap, whole, rows, table.variants, terms, held_out, in_fit,
        novelty, extrapolated,
    )  # fmt: skip


def _novelty(rows: Sequence[Row], terms: Sequence[Physics]) -> tuple[list[str], list[bool]]:
    """How far each row is from those of all other sources, and whether it is beyond them all."""
    found, beyond = [NOVELTY[2]] * len(rows), [True] * len(rows)
    for arch, source in {(r.chip.arch, r.source) for r in rows}:
        same = [i for i, r in enumerate(rows) if r.chip.arch == arch]
        others = [terms[i] for i in same if rows[i].source != source]
        cells = seen(map(_place, others))
        kernels = Counter(t.variant[:1] for t in others)
        largest = max((t.size for t in others), default=0.0)
        for i in same:
            if rows[i].source == source:
                found[i] = cells.novelty(*_place(terms[i]))
                known = kernels[terms[i].variant[:1]] >= fit.MIN_ROWS
                beyond[i] = not known or terms[i].size > BEYOND * largest
    return found, beyond


def _place(terms: Physics) -> tuple[tuple[str, ...], float, int]:
    return terms.variant, terms.size, terms.cores


def errors_of(fitted: Sequence[FittedFamily]) -> Errors:
    """All errors on left-out sources, for the bands."""
    return Errors.of([
        (float(error) / (EXTRAPOLATED if far else 1.0), family.name, row.chip.arch, novelty,
         row.source)
        for family in fitted
        for error, row, novelty, far in zip(
            family.held_out, family.rows, family.novelty, family.extrapolated, strict=True
        )
    ])  # fmt: skip


def _weights(rows: Sequence[Row]) -> list[float]:
    """A row's own weight, and less for rows of a source that has many."""
    counts = Counter((r.chip.arch, r.source) for r in rows)
    raw = [r.weight * counts[r.chip.arch, r.source] ** -SOURCE_SHARE for r in rows]
    scale = sum(r.weight for r in rows) / sum(raw)
    return [w * scale for w in raw]


def run(
    rows: Sequence[Row], *, say: Callable[[str], None] = lambda text: None
) -> list[FittedFamily]:
    """Fit every family that has rows."""
    if not rows:
        raise TemperError("no usable rows to fit", try_="see the rows listed above")
    sfpu.use_measured(measured_cycles(rows))
    by_family: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_family[row.family].append(row)
    fitted = []
    for name in sorted(by_family, key=lambda n: -len(by_family[n])):
        made = fit_family(name, by_family[name], rows)
        error = np.median(np.abs(np.expm1(-made.held_out))) * 100
        say(f"{name}: {len(made.rows)} rows, held-out median error {error:.1f}%")
        fitted.append(made)
    return fitted


def document(fitted: Sequence[FittedFamily], rejected: int) -> dict[str, Any]:
    """The constants as JSON: date, sources, row counts, errors, factors."""
    everything = np.concatenate([f.held_out for f in fitted])
    errors = errors_of(fitted)
    bands = table(errors, [(f.name, arch) for f in fitted for arch in f.trees])
    inside = iter(np.split(coverage(errors), np.cumsum([len(f.rows) for f in fitted])[:-1]))
    in_band = {f.name: next(inside) for f in fitted}
    families = {}
    for family in fitted:
        arches = {}
        for arch, tree in family.trees.items():
            mask = np.array([r.chip.arch == arch for r in family.rows])
            arches[arch] = {
                "rows": int(mask.sum()),
                "held_out": _errors(family.held_out[mask]) if mask.any() else None,
                "largest": _largest(family, mask),
                "bands": bands[family.name][arch],
                "cells": _cells(family, mask),
                "nodes": _nodes(tree),
            }
        families[family.name] = {
            "power": family.power,
            "serial": list(family.serial),
            "overlap": list(family.overlap),
            "arches": arches,
        }
    sources = sorted({r.source for f in fitted for r in f.rows})
    return {
        "format": FORMAT,
        "date": datetime.date.today().isoformat(),
        "rows": len(everything),
        "rejected": rejected,
        "sources": sources,
        "held_out": _errors(everything),
        "balanced": balanced(everything, errors.source),
        "in_band": _in_band(np.concatenate(list(in_band.values())), errors.source),
        "in_fit": _errors(np.concatenate([f.in_fit for f in fitted])),
        "noise": noise([r for f in fitted for r in f.rows]),
        "evidence": {f.name: _evidence(f, in_band[f.name]) for f in fitted},
        "sfpu_cycles": measured_cycles(r for f in fitted for r in f.rows),
        "families": families,
    }


def _largest(family: FittedFamily, mask: fit.Array) -> float:
    """Size of the largest op measured; far beyond it a prediction is extrapolated."""
    sizes = [family.terms[int(i)].size for i in np.flatnonzero(mask)]
    return float(f"{max(sizes, default=0.0):.4g}")


def _evidence(family: FittedFamily, inside: fit.Array) -> dict[str, Any]:
    """Per arch: rows, errors with and without a row's source, share inside the band, noise."""
    found = {}
    for arch in family.trees:
        index = [i for i, r in enumerate(family.rows) if r.chip.arch == arch]
        if not index:
            continue
        residual = family.held_out[index]
        sources = np.array([family.rows[i].source for i in index])
        measured = np.log([family.rows[i].kernel_ns for i in index])
        found[arch] = {
            **_errors(residual),
            "sources": len(set(sources)),
            "balanced": balanced(residual, sources),
            "in_fit": _errors(family.in_fit[index]),
            "spearman": spearman(measured, measured - residual),
            "in_band": round(float(np.mean(inside[index])), 3),
            "noise": noise([family.rows[i] for i in index]).get("median"),
        }
    return found


def balanced(residuals: fit.Array, sources: fit.Array) -> dict[str, float]:
    """Errors in percent when every source weighs the same, whatever its number of rows."""
    _, index, counts = np.unique(sources, return_inverse=True, return_counts=True)
    ape = np.abs(np.expm1(-residuals)) * 100
    order = np.argsort(ape)
    cumulated = np.cumsum((1 / counts[index])[order])
    at = [np.searchsorted(cumulated, share * cumulated[-1]) for share in (0.5, 0.9)]
    return {
        name: round(float(ape[order][min(int(i), len(order) - 1)]), 2)
        for name, i in zip(("median_ape", "p90_ape"), at, strict=True)
    }


def _in_band(inside: fit.Array, sources: fit.Array) -> dict[str, float]:
    """Share of rows in bands made without their source: over rows, and over sources."""
    each = [float(np.mean(inside[sources == s])) for s in np.unique(sources)]
    return {"rows": round(float(np.mean(inside)), 3), "sources": round(float(np.mean(each)), 3)}


def _cells(family: FittedFamily, mask: fit.Array) -> dict[str, Any]:
    found = seen(_place(family.terms[int(i)]) for i in np.flatnonzero(mask))
    return {SEPARATOR.join(key): sorted(map(list, cells)) for key, cells in found.cells.items()}


def spearman(a: Any, b: Any) -> float | None:
    """Rank correlation, ties sharing their rank; none for fewer than three points."""
    if len(a) < 3:
        return None
    x, y = _ranks(np.asarray(a)), _ranks(np.asarray(b))
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return round(float((x * y).sum()) / scale, 4) if scale else None


def _ranks(values: Any) -> Any:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]


def _nodes(tree: fit.Tree) -> dict[str, Any]:
    return {
        SEPARATOR.join(path): {
            "factors": [float(f"{f:.4g}") for f in np.exp(node.theta)], "rows": node.rows
        }
        for path, node in tree.items()
    }  # fmt: skip


def _errors(residuals: fit.Array) -> dict[str, float]:
    ape = np.abs(np.expm1(-residuals)) * 100
    return {
        "rows": len(residuals),
        "median_ape": round(float(np.median(ape)), 2),
        "p90_ape": round(float(np.quantile(ape, 0.9)), 2),
        "bias": round(float(np.median(np.expm1(-residuals))) * 100, 2),
    }


def noise(rows: Sequence[Row]) -> dict[str, float]:
    """Spread of repeated measurements: half-width of p10..p90 over the median, in percent."""
    spread = np.array([r.spread for r in rows if r.spread is not None])
    if not len(spread):
        return {"rows": 0}
    return {
        "rows": len(spread),
        "median": round(float(np.median(spread)) * 100, 2),
        "p90": round(float(np.quantile(spread, 0.9)) * 100, 2),
    }


def write(path: Path, value: Any) -> None:
    """A failed write leaves the old constants in place."""
    text = json.dumps(value, indent=None, separators=(",", ":"))
    # One node a line: a diff of two fits can be read.
    text = text.replace('"nodes":{', '"nodes":{\n').replace("},", "},\n")
    json.loads(text)
    write_text(path, text + "\n")
