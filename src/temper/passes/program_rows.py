"""Row-wise work on rows as they lie: regrouping rows between ragged batches moves every tile.

A norm, a linear layer or an elementwise op does not care how the rows of its operand are grouped.
Images lie flat, as (1, 1, N*H*W, C); batches of 197 tokens lie padded to 224. Going from one to
the other costs a reshape of the whole tensor wherever the rows of a batch are no whole tiles. This
pass chooses for each row-wise op between its own grouping and flat rows, so that the reshapes
that are left, and the padding that is computed, cost least.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from temper import chips
from temper.options import Options
from temper.passes.draft import Draft
from temper.passes.program_moves import op_ns
from temper.passes.program_views import charts
from temper.program import Op, TensorSpec
from temper.program.tensor import is_view

_SWEEPS = 4
_GAIN_NS = 1000.0  # a change must be worth this much, since times are modelled before placement
_ORDERS = frozenset({"Reshape", "Permute", "Transpose"})


@dataclass
class _Rows:
    """Row-wise ops of a draft, and what it costs to hand rows from one to the other."""

    draft: Draft
    chip: chips.Chip
    sram: bool
    ops: dict[int, tuple[str, ...]] = field(default_factory=dict)  # its operands that have rows
    prices: dict[tuple[TensorSpec, tuple[int, ...]], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, op in enumerate(self.draft.ops):
            rows = None if op is None else _operands(self.draft, op)
            if rows is not None:
                self.ops[index] = rows

    @cached_property
    def roots(self) -> dict[str, str]:
        """For every value the one whose rows it holds, regrouped."""
        found: dict[str, str] = {}
        for op in self.draft.ops:
            if op is not None and _regroups(self.draft, op):
                found[op.outputs[0]] = found.get(op.inputs[0], op.inputs[0])
        return found

    @cached_property
    def readers(self) -> dict[str, list[tuple[int | None, tuple[int, ...]]]]:
        """By root: who reads it in which shape; None is the user, or an op that is no choice."""
        found: dict[str, list[tuple[int | None, tuple[int, ...]]]] = defaultdict(list)
        names = {name for op in self.draft.ops if op is not None for name in op.outputs}
        for name in (*names, *self.draft.base.inputs):
            root, shape = self.roots.get(name, name), self.draft.values[name].shape
            for index in self.draft.readers[name]:
                op = self.draft.ops[index]
                assert op is not None
                if index in self.ops and name in self.ops[index]:
                    found[root].append((index, shape))
                elif not _regroups(self.draft, op):
                    found[root].append((None, shape))
            if name in self.draft.outputs:
                found[root].append((None, shape))
        return found

    def flat(self, name: str) -> TensorSpec:
        return flat_rows(self.draft.values[name])

    def price(self, root: str, before: tuple[int, ...], after: tuple[int, ...]) -> float:
        """Time of the reshape between two groupings of a value's rows."""
        spec = replace(self.draft.values[root], shape=before)
        key = (spec, after)
        if key not in self.prices:
            wanted = replace(spec, shape=after)
            free = is_view(spec, wanted)
            op = Op("Reshape", ("x",), ("y",))
            self.prices[key] = 0.0 if free else op_ns(op, [spec], wanted, self.chip, self.sram)
        return self.prices[key]

    def saved(self, index: int) -> float:
        """What an op takes longer on its own grouping than on flat rows: the padding."""
        op = self.draft.ops[index]
        assert op is not None
        own = self.draft.values[op.outputs[0]]
        out = flat_rows(own)
        if own.tiles == out.tiles:
            return 0.0
        rows = self.ops[index]
        specs = [self.draft.values[n] for n in op.inputs]
        flat = [self.flat(n) if n in rows else self.draft.values[n] for n in op.inputs]
        less = op_ns(op, flat, out, self.chip, self.sram)
        more = op_ns(op, specs, own, self.chip, self.sram) - less
        # A matmul's program is chosen later: it is taken to grow with its tiles, as others do.
        grown = max(0.0, less - self.chip.launch_floor_ns) * (own.tiles / out.tiles - 1)
        return min(more, grown)

    def handed(self, root: str, chosen: dict[int, bool]) -> float:
        """Time of all reshapes of one value under a choice."""
        maker = self.draft.producer.get(root)
        own, flat = self.draft.values[root].shape, self.flat(root).shape
        before = flat if maker is not None and chosen.get(maker) else own
        wanted = {
            flat if reader is not None and chosen[reader] else shape
            for reader, shape in self.readers[root]
        }
        return sum(self.price(root, before, shape) for shape in wanted if shape != before)

    def near(self, index: int) -> set[str]:
        """The values whose reshapes hang on one op's choice."""
        op = self.draft.ops[index]
        assert op is not None
        return {self.roots.get(n, n) for n in (*self.ops[index], *op.outputs)}


def flatten_rows(draft: Draft, options: Options) -> int:
    """Let row-wise ops work on flat rows where that saves reshapes and padding."""
    before = list(draft.ops)
    _shorten(draft)
    hits = _flattened(_Rows(draft, chips.get(options["chip"]), bool(options["enable_sram"])))
    if not hits:
        draft.ops = before
        draft.reindex()
    return hits


def _shorten(draft: Draft) -> None:
    """A chain of moves that in the end only regroups rows is one reshape."""
    for name, one in charts(draft, _ORDERS).items():
        spec, index = draft.values[name], draft.producer[name]
        op = draft.ops[index]
        same = spec.shape[-1:] == draft.values[one.origin].shape[-1:]
        if op is not None and one.chart.is_reshape and same and op.inputs[0] != one.origin:
            draft.replace(index, Op("Reshape", (one.origin,), (name,), {}, op.source))
    _drop_unread(draft)


def _drop_unread(draft: Draft) -> None:
    for index in range(len(draft.ops) - 1, -1, -1):
        op = draft.ops[index]
        if op is None or op.kind not in _ORDERS or op.outputs[0] in draft.outputs:
            continue
        if not draft.readers[op.outputs[0]]:
            draft.remove(index)


def _flattened(rows: _Rows) -> int:
    if not any(rows.saved(i) for i in rows.ops):
        return 0
    best: dict[int, bool] = {}
    least = float("inf")
    saved = {index: rows.saved(index) for index in rows.ops}
    roots = {root for index in rows.ops for root in rows.near(index)}
    for start in (False, True):
        chosen = dict.fromkeys(rows.ops, start)
        _settled(rows, chosen, saved)
        total = sum(rows.handed(root, chosen) for root in roots)
        total += sum(saved[i] for i, flat in chosen.items() if not flat)
        if total < least * 0.999:
            best, least = chosen, total
    return _write(rows, best)


def _settled(rows: _Rows, chosen: dict[int, bool], saved: dict[int, float]) -> None:
    """Change one choice at a time while that pays, forwards and backwards."""
    order = list(chosen)
    for sweep in range(_SWEEPS):
        changed = False
        for index in order if sweep % 2 == 0 else reversed(order):
            near = rows.near(index)
            now = sum(rows.handed(root, chosen) for root in near)
            chosen[index] = not chosen[index]
            then = sum(rows.handed(root, chosen) for root in near)
            then += -saved[index] if chosen[index] else saved[index]
            if then < now - _GAIN_NS:
                changed = True
            else:
                chosen[index] = not chosen[index]
        if not changed:
            return


def _write(rows: _Rows, chosen: dict[int, bool]) -> int:
    """The chosen ops on flat rows; everyone else reads a value in the grouping it knows."""
    draft = rows.draft
    flats: dict[str, str] = {}  # by root: its rows flat
    ops: list[Op | None] = []
    hits = 0

    def flat(name: str, like: Op) -> str:
        root = rows.roots.get(name, name)
        spec = draft.values[root]
        if spec.shape == rows.flat(root).shape:
            return root
        if root not in flats:
            flats[root] = draft.fresh(root)
            draft.values[flats[root]] = rows.flat(root)
            ops.append(Op("Reshape", (root,), (flats[root],), {}, like.source))
        return flats[root]

    for index, op in enumerate(draft.ops):
        if op is None or not chosen.get(index):
            ops.append(op)
            continue
        inputs = tuple(flat(n, op) if n in rows.ops[index] else n for n in op.inputs)
        out = op.outputs[0]
        made, attrs = out, _attrs(op, draft.values[out])
        if draft.values[out].shape != rows.flat(out).shape:
            hits += 1
            made = flats[out] = draft.fresh(out)
            draft.values[made] = rows.flat(out)
        ops.append(Op(op.kind, inputs, (made,), attrs, op.source))
        if made != out:
            ops.append(Op("Reshape", (made,), (out,), {}, op.source))
    draft.ops = ops
    draft.reindex()
    _drop_unread(draft)
    return hits


# --- which ops ------------------------------------------------------------------------------------


def flat_rows(spec: TensorSpec) -> TensorSpec:
    """All rows in one batch, as images lie."""
    return replace(spec, shape=(1, 1, prod(spec.shape[:-1]), spec.shape[-1]))


def _regroups(draft: Draft, op: Op) -> bool:
    if op.kind != "Reshape":
        return False
    before, after = draft.values[op.inputs[0]], draft.values[op.outputs[0]]
    same = before.shape[-1:] == after.shape[-1:] and before.format == after.format
    return same and _has_rows(before) and _has_rows(after)


def _has_rows(spec: TensorSpec) -> bool:
    plain = spec.memory.buffer == "dram" and not spec.memory.sharded and 0 not in spec.shape
    return plain and spec.layout == "tile" and len(spec.shape) >= 2


def _operands(draft: Draft, op: Op) -> tuple[str, ...] | None:
    """The operands whose rows an op treats alike; None if it does more than that."""
    specs = [draft.values[name] for name in op.inputs]
    out = draft.values[op.outputs[0]] if len(op.outputs) == 1 else None
    if out is None or not specs or not _has_rows(out):
        return None
    lead = out.shape[:-1]
    if op.kind == "BinaryNg":  # the other operand may be one row for all, or a number
        if any(s.shape != out.shape and prod(s.shape) != prod(s.shape[-1:]) for s in specs):
            return None
        rows = tuple(n for n, s in zip(op.inputs, specs, strict=True) if s.shape == out.shape)
        return rows if rows and all(_has_rows(draft.values[n]) for n in rows) else None
    count = 1  # operands of the op that have rows
    if op.kind == "Matmul":
        weight = specs[1]
        if op.attr("transpose_a") or prod(weight.shape[:-2]) != 1 or specs[0].shape[:-1] != lead:
            return None
    elif op.kind == "Concat":
        if op.attr("dim") % len(out.shape) != len(out.shape) - 1:
            return None
        count = len(specs)
    elif op.kind == "Slice":
        if specs[0].shape[:-1] != lead:
            return None
    elif op.kind == "Softmax":
        if op.attr("dim") % len(out.shape) != len(out.shape) - 1:
            return None
    elif op.kind not in ("LayerNorm", "Unary", "Typecast"):
        return None
    if any(s.shape[:-1] != lead or not _has_rows(s) for s in specs[:count]):
        return None
    return op.inputs[:count]


def _attrs(op: Op, out: TensorSpec) -> dict[str, object]:
    """The op's attributes for four axes, of which the first two are one."""
    attrs = dict(op.attrs)
    if op.kind == "Concat":
        attrs["dim"] = 3
    elif op.kind == "Softmax":
        attrs["dim"] = -1
    elif op.kind == "Slice":
        count = prod(out.shape[:-1])
        attrs["begins"] = (0, 0, 0, op.attr("begins")[-1])
        attrs["ends"] = (1, 1, count, op.attr("ends")[-1])
        attrs["steps"] = (1, 1, 1, (op.attr("steps") or (1,))[-1])
    return attrs
