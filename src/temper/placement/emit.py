"""A chosen plan as a program: moves and halos inserted, every value with its memory, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from temper.placement.pieces import Meter, Piece, move
from temper.placement.report import ValuePlacement
from temper.placement.search import FAR, Choice, PlanSearch
from temper.placement.ways import Shortage, Way, WayBook
from temper.program.allocator import count, tensor_bank_bytes
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import DRAM, TensorSpec


class Plan:
    """One placed program and the reasons behind it."""

    def __init__(self, search: PlanSearch, choices: Sequence[Choice], budget: int) -> None:
        self.search, self.budget = search, budget
        self.book: WayBook = search.book
        self.meter: Meter = search.meter
        self.source: Program = search.program
        self.values: dict[str, TensorSpec] = dict(self.source.values)
        self.ops: list[Op] = []
        self.time_ns = 0.0
        self.parts = 1  # of the batch
        self.spilled: list[str] = []
        self.unread_spills: dict[str, Shortage] = {}
        self._now: dict[str, str] = {}  # value of the source -> its present form
        self._short: dict[str, Shortage] = {}  # spilled values
        self.choices = list(choices)
        for choice in self.choices:
            self._add_choice(choice)
        self.program = self.source.replace(values=self.values, ops=tuple(self.ops))

    # --- ops ------------------------------------------------------------------------------------

    def _add_choice(self, choice: Choice) -> None:
        op = self.source.ops[choice.index]
        for name in choice.spills:
            self._spill(name, op, choice)
        way = choice.way
        names: dict[int, str] = {}
        outs: list[str] = []
        main = next(i for i, piece in enumerate(way.pieces) if piece.main)
        for i, piece in enumerate(way.pieces):
            sources = [
                self._now.get(op.inputs[k], op.inputs[k]) if k >= 0 else names[k]
                for k in piece.inputs
            ]
            if i < main:
                first = piece.inputs[0]
                root = op.inputs[first] if first >= 0 else names[first]
                tag = (
                    piece.op.kind.lower()
                    if piece.op.kind in ("Halo", "Move")
                    else piece.output_specs[0].memory.sharding
                )
                names[-1 - i] = self._fresh(root, tag)
                self._add(piece, sources, [names[-1 - i]], op)
            elif i == main:
                moved = i + 1 < len(way.pieces)  # results go on to DRAM
                outs = [self._fresh(n, "sram") if moved else n for n in op.outputs]
                names[-1 - i] = outs[0]
                if choice.into is not None:
                    op_into = piece.op.with_attrs(into=choice.into)
                    self._add(replace(piece, op=op_into), sources, outs, op)
                    continue
                self._add(piece, sources, outs, op)
            else:
                self._add(piece, [outs[i - main - 1]], [op.outputs[i - main - 1]], op)
        if choice.kept >= 0:
            self._now[op.inputs[way.pieces[choice.kept].inputs[0]]] = names[-1 - choice.kept]

    def _spill(self, name: str, op: Op, choice: Choice) -> None:
        now = self._now.get(name, name)
        fresh = self._fresh(name, "dram")
        away = move(self.values[now], DRAM, 0, op)
        self._add(away, [now], [fresh], op)
        self._now[name] = fresh
        self.spilled.append(name)
        label = op.outputs[0] if op.outputs else op.kind
        later = self.search.next_use(name, choice.index)
        if name in op.inputs:
            why = f"{label} reads it and needs its bytes"
        elif later == FAR:
            why = f"made room for {label}"
        else:
            why = f"made room for {label}; next read by op {later}"
        here, home = self.book.id(self.values[now]), self.book.home[name]
        lies, before = choice.before.lies, choice.index - 1
        time_ns = (
            self.meter.measure(away)[0]
            + self.book.readers_ns(name, before, home, lies)
            - self.book.readers_ns(name, before, here, lies)
        )
        self._short[name] = Shortage(why, max(0.0, time_ns))
        if name not in choice.before.read:
            self.unread_spills[name] = self._short[name]

    def _add(self, piece: Piece, sources: Sequence[str], outs: Sequence[str], origin: Op) -> None:
        """One op of the placed program, from where ``origin`` is from: equal ops share pieces."""
        op = piece.op
        self.ops.append(Op(op.kind, tuple(sources), tuple(outs), op.attrs, origin.source))
        for name, spec in zip(outs, piece.output_specs, strict=True):
            self.values[name] = spec
        self.time_ns += self.meter.measure(piece)[0]

    def _fresh(self, name: str, tag: str) -> str:
        stem = f"{name}__{tag}"
        number, fresh = 1, stem
        while fresh in self.values:
            number += 1
            fresh = f"{stem}{number}"
        return fresh

    @property
    def short_of_room(self) -> bool:
        """Whether any value is not in SRAM because others need the bytes."""
        return any(value.short_ns > 0 for value in self.decisions)

    # --- reasons --------------------------------------------------------------------------------

    @cached_property
    def decisions(self) -> tuple[ValuePlacement, ...]:
        """What was decided for every value that an op of the program makes."""
        made = []
        for choice in self.choices:
            op = self.source.ops[choice.index]
            for place, name in enumerate(op.outputs):
                spec = self.values[name]
                reason, obstacle, short_ns = self._reason(choice, place, name)
                size = tensor_bank_bytes(spec, self.meter.chip)
                made.append(ValuePlacement(name, spec.memory, size, reason, obstacle, short_ns))
        return tuple(made)

    def _reason(self, choice: Choice, place: int, name: str) -> tuple[str, str, float]:
        """Where a value lies, what keeps it out of SRAM, and the time that want of room costs."""
        book, way = self.book, choice.way
        if book.is_output(name):
            return "DRAM", "an output of the program", 0.0
        if not book.sram:
            return "DRAM", f"level {book.level} keeps tensors in DRAM", 0.0
        ways = self._alternatives(choice)
        if name in book.forced:
            return "DRAM", book.forced[name].why, book.forced[name].time_ns
        if way.results[place].memory.buffer == "sram":
            plain = [self._total(choice, w) for w in ways if w.results[place].memory == DRAM]
            gain = min(plain, default=0.0) - self._total(choice, way)
            less = f", {gain / 1000:.1f} us less than DRAM" if gain > 0 else ""
            short = self._short.get(name, Shortage("", 0.0))
            return f"{way.mode.name}: least modelled time{less}", short.why, short.time_ns
        return ("DRAM", *self._obstacle(choice, place, ways))

    def _alternatives(self, choice: Choice) -> tuple[Way, ...]:
        lies, home = choice.before.lies, self.book.home
        op = self.source.ops[choice.index]
        return self.book.ways(choice.index, tuple(lies.get(n, home[n]) for n in op.inputs))

    def _total(self, choice: Choice, way: Way) -> float:
        """The op and its readers' best answers."""
        op = self.source.ops[choice.index]
        return way.run_ns + sum(
            self.book.readers_ns(name, choice.index, self.book.id(spec), choice.before.lies)
            for name, spec in zip(op.outputs, way.results, strict=True)
        )

    def _obstacle(self, choice: Choice, place: int, ways: Sequence[Way]) -> tuple[str, float]:
        inside = [w for w in ways if w.results[place].memory.buffer == "sram"]
        if not inside:
            return "the op writes DRAM only", 0.0
        best = min(inside, key=lambda w: self._total(choice, w))
        more = (self._total(choice, best) - self._total(choice, choice.way)) / 1000
        if more >= 0:
            return f"SRAM would take {more:.1f} us more (modelled)", 0.0
        need = self.search.peak_bytes(choice, best)
        held = choice.before.sram.statistics().allocated_bytes
        if need > self.budget:
            return (
                f"needs {count(need)} B per core with {count(held)} B live; {count(self.budget)} B "
                f"may be used; costs {-more:.1f} us (modelled)",
                -more * 1000,
            )
        return f"later ops need the bytes; costs {-more:.1f} us here (modelled)", -more * 1000
