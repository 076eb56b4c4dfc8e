"""What is left of data movement in a program, done the cheapest way.

Every value that ops move about is read as a map of the value it comes from; the ops between are
replaced by the way that the cost model says is fastest, or by nothing where the map is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from temper import chips
from temper.options import Options
from temper.passes.draft import Draft
from temper.passes.program_moves import MoveStep, Way, op_ns, time_ns, ways
from temper.program import Op, TensorSpec
from temper.program.index_map import IndexMap, identity
from temper.program.index_moves import moves

_MOVES = frozenset({"Reshape", "Permute", "Transpose", "Slice", "Repeat", "Tilize", "Untilize"})
# A new way must be this much faster, so that equal ways are left alone.
_GAIN = 0.99


@dataclass(frozen=True)
class MappedValue:
    """A value as a map of another one."""

    origin: str
    chart: IndexMap


@dataclass
class Tree:
    """All values that are moved out of one origin: the ops between, and the leaves others read."""

    chains: dict[str, list[int]] = field(default_factory=dict)  # by leaf: its ops, last one first
    plans: dict[str, Way | None] = field(default_factory=dict)  # None: as it is


def settle_views(draft: Draft, options: Options) -> int:
    """Elementwise functions in front of moves, then each tree of moves by the fastest ways."""
    hits = _functions_first(draft)
    chip = chips.get(options["chip"])
    sram = bool(options["enable_sram"])
    seen = charts(draft)
    trees: dict[str, Tree] = defaultdict(Tree)
    for name, one in seen.items():
        if _wanted(draft, name, seen):
            trees[one.origin].chains[name] = _chain(draft, name, one.origin)
    emitted: dict[int, list[Op]] = {}
    renamed: dict[str, str] = {}
    for origin, tree in trees.items():
        costs = {i: _existing(draft, i, chip, sram) for c in tree.chains.values() for i in c}
        before = draft.values[origin]
        total = sum(costs.values())
        best: dict[str, Way] = {}
        for leaf in tree.chains:
            found = ways(
                seen[leaf].chart, before, draft.values[leaf], gather=draft.held is not None
            )
            timed = [(time_ns(way, before, chip, sram=sram), len(way), way) for way in found]
            if timed:
                best[leaf] = min(timed, key=lambda t: t[:2])[2]
        tree.plans = dict.fromkeys(tree.chains)
        if len(best) == len(tree.chains):
            everywhere = _total(dict(best), tree, costs, before, chip, sram)
            if everywhere < total * _GAIN:
                total, tree.plans = everywhere, dict(best)
        for leaf, way in best.items():
            tried = {**tree.plans, leaf: way}
            now = _total(tried, tree, costs, before, chip, sram)
            if now < total * _GAIN or (now <= total and len(way) < len(tree.chains[leaf])):
                total, tree.plans = now, tried
        hits += _write(draft, origin, tree, emitted, renamed)
    if emitted or renamed:
        ops: list[Op | None] = []
        for index, op in enumerate(draft.ops):
            ops += emitted.get(index, [op])
        draft.ops = ops
        draft.reindex()
        for old, new in renamed.items():
            draft.rename(old, new)
    return hits


# --- reading ------------------------------------------------------------------------------------


def charts(draft: Draft, kinds: frozenset[str] = _MOVES) -> dict[str, MappedValue]:
    """Every value that ops of these kinds move out of another one, as a map of that."""
    seen: dict[str, MappedValue] = {}
    for op in draft.ops:
        if op is None or op.kind not in kinds:
            continue
        source, out = op.inputs[0], op.outputs[0]
        before, after = draft.values[source], draft.values[out]
        if before.format != after.format or not all(map(_plain, (before, after))):
            continue
        known = seen.get(source) or MappedValue(source, identity(before.shape))
        chart = _moved(op, known.chart, after)
        if chart is not None and moves(chart) is not None:
            seen[out] = MappedValue(known.origin, chart)
    return seen


def _plain(spec: TensorSpec) -> bool:
    return spec.memory.buffer == "dram" and not spec.memory.sharded and 0 not in spec.shape


def _moved(op: Op, chart: IndexMap, after: TensorSpec) -> IndexMap | None:
    rank = len(chart.axes)
    if op.kind == "Reshape":
        return chart.reshape(after.shape)
    if op.kind == "Permute":
        return chart.permute([int(d) for d in op.attr("dims")])
    if op.kind == "Transpose":
        order = list(range(rank))
        first, second = (int(d) % rank for d in op.attr("dims"))
        order[first], order[second] = second, first
        return chart.permute(order)
    if op.kind == "Repeat":
        return chart.repeat([int(r) for r in op.attr("repeats")])
    if op.kind == "Slice":
        made: IndexMap | None = chart
        steps = op.attr("steps") or [1] * rank
        for dim, (begin, size, step) in enumerate(
            zip(op.attr("begins"), after.shape, steps, strict=True)
        ):
            made = made.slice(dim, int(begin), size, int(step)) if made is not None else None
        return made
    return chart


def _wanted(draft: Draft, name: str, seen: dict[str, MappedValue]) -> bool:
    """Whether something other than a further move reads the value."""
    readers = (draft.ops[i] for i in draft.readers[name])
    return name in draft.outputs or any(
        op is not None and not (op.kind in _MOVES and op.outputs[0] in seen) for op in readers
    )


def _chain(draft: Draft, leaf: str, origin: str) -> list[int]:
    chain, name = [], leaf
    while name != origin:
        index = draft.producer[name]
        op = draft.ops[index]
        assert op is not None
        chain.append(index)
        name = op.inputs[0]
    return chain


def _existing(draft: Draft, index: int, chip: chips.Chip, sram: bool) -> float:
    op = draft.ops[index]
    assert op is not None
    return op_ns(op, [draft.values[op.inputs[0]]], draft.values[op.outputs[0]], chip, sram)


def _total(
    plans: dict[str, Way] | dict[str, Way | None],
    tree: Tree,
    costs: dict[int, float],
    before: TensorSpec,
    chip: chips.Chip,
    sram: bool,
) -> float:
    """Time of a tree under a plan; what several leaves share counts once."""
    kept = {i for leaf, way in plans.items() if way is None for i in tree.chains[leaf]}
    prefixes = {way[: n + 1] for way in plans.values() if way for n in range(len(way))}
    own = 0.0
    for way in prefixes:
        source = way[-2].spec if len(way) > 1 else before
        own += time_ns(way[-1:], source, chip, sram=sram)
    return own + sum(costs[i] for i in kept)


# --- writing ------------------------------------------------------------------------------------


def _write(
    draft: Draft, origin: str, tree: Tree, emitted: dict[int, list[Op]], renamed: dict[str, str]
) -> int:
    """The ops of all new ways, each prefix once, in the place of the leaf's last op."""
    made: dict[Way, str] = {(): origin}
    hits = 0
    for leaf in sorted(tree.plans, key=lambda n: draft.producer[n]):
        way = tree.plans[leaf]
        if way is None:
            continue
        hits += 1
        index = draft.producer[leaf]
        like = draft.ops[index]
        assert like is not None
        ops = emitted.setdefault(index, [])
        for count in range(1, len(way) + 1):
            prefix = way[:count]
            if prefix in made:
                continue
            name = leaf if count == len(way) else draft.fresh(leaf)
            draft.values[name] = prefix[-1].spec
            ops.append(_op(draft, prefix[-1], made[prefix[:-1]], name, like))
            made[prefix] = name
        if made[way] != leaf:
            renamed[leaf] = made[way]
    return hits


def _op(draft: Draft, step: MoveStep, source: str, name: str, like: Op) -> Op:
    if step.rows is None:
        return step.op((source,), name, like)
    shape, data = step.rows
    places = draft.places(np.frombuffer(data, dtype=np.int64).reshape(shape).copy())
    return step.op((places, source), name, like)


# --- elementwise functions ----------------------------------------------------------------------


def _functions_first(draft: Draft) -> int:
    """f(map(x)) is map(f(x)): so f meets the op that makes x, and maps meet each other."""
    hits = 0
    for index, op in enumerate(draft.ops):
        if op is None or op.kind != "Unary":
            continue
        chain: list[int] = []
        name = op.inputs[0]
        while True:
            before = draft.maker(name)
            if before is None or before.kind not in ("Reshape", "Permute", "Transpose"):
                break
            if not draft.sole_reader(name):
                break
            chain.append(draft.producer[name])
            name = before.inputs[0]
        source, out = draft.values[name], draft.values[op.outputs[0]]
        same = (source.format, source.layout) == (out.format, out.layout)
        if not chain or not same or source.tiles > out.tiles or not _plain(source):
            continue
        # The function takes the place of the first move; each move then that of the one behind.
        made = draft.fresh(op.outputs[0])
        draft.values[made] = source
        steps = [draft.ops[i] for i in reversed(chain)]
        places = [*reversed(chain), index]
        ends = [s.outputs[0] for s in steps[:-1] if s is not None] + [op.outputs[0]]
        for place in places:
            draft.remove(place)
        draft.replace(places[0], Op("Unary", (name,), (made,), op.attrs, op.source))
        feed = made
        for place, step, end in zip(places[1:], steps, ends, strict=True):
            assert step is not None
            draft.replace(place, Op(step.kind, (feed,), (end,), step.attrs, step.source))
            feed = end
        hits += 1
    return hits
