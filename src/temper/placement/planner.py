"""One walk over the schedule that gives every op a mode and every value a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from temper.errors import OutOfMemoryError
from temper.placement.modes import Mode, modes
from temper.placement.pieces import Meter, Piece, attrs_key, expand, move
from temper.placement.report import ValuePlacement
from temper.program.allocator import count, tensor_bank_bytes
from temper.program.op import Op
from temper.program.program import Program
from temper.program.simulate import DoesNotFit
from temper.program.tensor import DRAM, TensorSpec

# Readers of a value whose best answers are weighed; later ones rarely change the choice.
_READERS = 2
_MANY = 8  # operands of a reader that are looked at one by one
_FAR = 1 << 30


@dataclass(frozen=True, slots=True)
class _Way:
    """One mode of an op, weighed."""

    mode: Mode
    pieces: list[Piece]
    run_ns: float
    ahead_ns: float
    peak_bytes: int

    @property
    def total_ns(self) -> float:
        return self.run_ns + self.ahead_ns


class Planner:
    """Places one program. ``budget`` is what tensors and circular buffers of a core may take."""

    def __init__(
        self,
        program: Program,
        meter: Meter,
        *,
        sram: bool,
        budget: int,
        level: int,
        forced_dram: Mapping[str, str] | None = None,
    ) -> None:
        self.program, self.meter, self.sram, self.budget = program, meter, sram, budget
        self.chip = meter.chip
        self.level = level
        self.forced = dict(forced_dram or {})
        self.values: dict[str, TensorSpec] = dict(program.values)
        self.ops: list[Op] = []
        self.time_ns = 0.0
        self.spilled: list[str] = []
        self.unread_spills: dict[str, str] = {}
        self._keys = [attrs_key(op) for op in program.ops]
        self._uses: dict[str, list[int]] = {}
        for index, op in enumerate(program.ops):
            for name in dict.fromkeys(op.inputs):
                self._uses.setdefault(name, []).append(index)
        self._outputs = frozenset(program.outputs)
        self._now: dict[str, str] = {}  # value of the program -> its present form
        self._origin: dict[str, str] = {}
        self._live: dict[str, int] = {}  # values of the program in SRAM -> bytes
        self._read: set[str] = set()  # values that an op has read from SRAM
        self._reasons: dict[str, tuple[str, str]] = {}
        self._ahead: dict[tuple[object, ...], float] = {}
        self._modes: dict[tuple[object, ...], list[Mode]] = {}

    def run(self) -> Program:
        for index, op in enumerate(self.program.ops):
            way = self._choose(index, op)
            self._emit(op, way)
            for name in dict.fromkeys((*op.inputs, *op.outputs)):
                if name in self._live and self._next_use(name, index) == _FAR:
                    del self._live[name]
        return self.program.replace(values=self.values, ops=tuple(self.ops))

    def origin(self, name: str) -> str:
        """The program's value that a moved form belongs to."""
        return self._origin.get(name, name)

    def decisions(self) -> tuple[ValuePlacement, ...]:
        """What was decided for every value that an op of the program makes."""
        made = []
        for op in self.program.ops:
            for name in op.outputs:
                reason, obstacle = self._reasons.get(name, ("", ""))
                spec = self.values[name]
                size = tensor_bank_bytes(spec, self.chip)
                made.append(ValuePlacement(name, spec.memory, size, reason, obstacle))
        return tuple(made)

    # --- choosing -----------------------------------------------------------------------------

    def _choose(self, index: int, op: Op) -> _Way:
        ways = self._ways(index, op)
        fitting = [way for way in ways if way.peak_bytes <= self.budget]
        best = min(ways, key=lambda way: way.total_ns)
        kept = min(fitting, key=lambda way: way.total_ns) if fitting else None
        if kept is not best:
            victims = self._victims(index, op, best.peak_bytes - self.budget, farther=True)
            price = sum(self._spill_ns(name, op) for name in victims or ())
            if victims is not None and (kept is None or best.total_ns + price < kept.total_ns):
                return self._after_spill(index, op, victims)
        if kept is None:
            kept = self._make_room(index, op, ways)
        self._explain(op, kept, ways)
        return kept

    def _ways(self, index: int, op: Op) -> list[_Way]:
        inputs = [self.values[self._now.get(name, name)] for name in op.inputs]
        outputs = [self.program.spec(name) for name in op.outputs]
        base = sum(self._live.values())
        found = []
        for mode in self._modes_of(index, op, inputs, outputs):
            to_dram = [self._must_be_dram(name) for name in op.outputs]
            if any(to_dram) and mode.halo is None and any(m.buffer == "sram" for m in mode.outputs):
                continue  # a result that ends in DRAM is written there at once
            pieces = expand(
                op, self._keys[index], mode, inputs, outputs, sram=self.sram, to_dram=to_dram
            )
            run_ns = sum(self.meter.measure(piece)[0] for piece in pieces)
            ahead_ns = 0.0
            if self.sram:
                for name, spec, dram in zip(op.outputs, outputs, to_dram, strict=True):
                    memory = DRAM if dram else mode.outputs[op.outputs.index(name)]
                    ahead_ns += self._readers_ns(name, index, spec.with_memory(memory))
            found.append(_Way(mode, pieces, run_ns, ahead_ns, base + self._peak(pieces)))
        return found

    def _modes_of(
        self, index: int, op: Op, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> list[Mode]:
        key = (self._keys[index], tuple(inputs), tuple(outputs))
        if key not in self._modes:
            self._modes[key] = modes(
                op, inputs, outputs, self.chip, sram=self.sram, level=self.level
            )
        return self._modes[key]

    def _must_be_dram(self, name: str) -> bool:
        return not self.sram or name in self._outputs or name in self.forced

    def _readers_ns(self, name: str, index: int, spec: TensorSpec) -> float:
        """Best modelled time of the next readers if the value lies as ``spec`` says."""
        total = 0.0
        for reader in self._uses.get(name, ())[:_READERS]:
            op = self.program.ops[reader]
            # Hundreds of slices that are joined again lie alike; looking at each would square.
            alike = len(op.inputs) > _MANY
            inputs = tuple(
                spec if alike or operand == name else self.values[self._now.get(operand, operand)]
                for operand in (op.inputs[:_MANY] if alike else op.inputs)
            )
            to_dram = [self._must_be_dram(out) for out in op.outputs]
            key = (self._keys[reader], inputs, tuple(to_dram))
            known = self._ahead.get(key)
            if known is None:
                known = self._ahead[key] = self._best_ns(reader, op, inputs, to_dram)
            total += known
        return total

    def _best_ns(
        self, index: int, op: Op, inputs: Sequence[TensorSpec], to_dram: Sequence[bool]
    ) -> float:
        outputs = [self.program.spec(name) for name in op.outputs]
        times = []
        for mode in self._modes_of(index, op, inputs, outputs):
            pieces = expand(
                op, self._keys[index], mode, inputs, outputs, sram=self.sram, to_dram=to_dram
            )
            times.append(sum(self.meter.measure(piece)[0] for piece in pieces))
        return min(times)

    def _peak(self, pieces: Sequence[Piece]) -> int:
        """Most SRAM that the pieces take beside what is live: tensors they make, and buffers."""
        last = {source: i for i, piece in enumerate(pieces) for source in piece.inputs}
        alive: dict[int, int] = {}
        peak = 0
        for i, piece in enumerate(pieces):
            alive[-1 - i] = sum(self.meter.sram_bytes(spec) for spec in piece.output_specs)
            peak = max(peak, sum(alive.values()) + self.meter.measure(piece)[1])
            for source in [s for s in alive if s in last and last[s] == i]:
                del alive[source]
        return peak

    # --- spilling -----------------------------------------------------------------------------

    def _next_use(self, name: str, index: int) -> int:
        return next((use for use in self._uses.get(name, ()) if use > index), _FAR)

    def _victims(self, index: int, op: Op, excess: int, *, farther: bool) -> list[str] | None:
        """Live values to spill, farthest next use first; None when they are not enough.

        With ``farther`` only values that are needed later than the op's own results qualify.
        """
        limit = min((self._next_use(name, index) for name in op.outputs), default=0)
        order = sorted(
            (name for name in self._live if name not in op.inputs),
            key=lambda name: (-self._next_use(name, index), name),
        )
        chosen: list[str] = []
        for name in order:
            if excess <= 0 or (farther and self._next_use(name, index) <= limit):
                break
            chosen.append(name)
            excess -= self._live[name]
        return chosen if excess <= 0 else None

    def _spill_ns(self, name: str, op: Op) -> float:
        """The move out and, about as long, reading it back; unread it starts in DRAM instead."""
        spec = self.values[self._now.get(name, name)]
        once = self.meter.measure(move(spec, DRAM, 0, op))[0]
        return 2 * once if name in self._read else once

    def _spill(self, name: str, op: Op, why: str) -> None:
        """Move a value to DRAM before ``op``; its readers follow."""
        now = self._now.get(name, name)
        piece = move(self.values[now], DRAM, 0, op)
        self._add(piece, [now], [self._fresh(name, "dram")], name)
        del self._live[name]
        self.spilled.append(name)
        if name not in self._read:
            self.unread_spills[name] = why
        self._reasons[name] = (self._reasons.get(name, ("", ""))[0], why)

    def _after_spill(self, index: int, op: Op, victims: Sequence[str]) -> _Way:
        label = op.outputs[0] if op.outputs else op.kind
        for name in victims:
            if name in op.inputs:
                why = f"{label} reads it and needs its bytes for circular buffers"
            else:
                later = self._next_use(name, index)
                why = f"spilled for {label}: the farthest next use of all, op {later}"
            self._spill(name, op, why)
        ways = [way for way in self._ways(index, op) if way.peak_bytes <= self.budget]
        if not ways:
            return self._make_room(index, op, self._ways(index, op))
        best = min(ways, key=lambda way: way.total_ns)
        self._explain(op, best, ways)
        return best

    def _make_room(self, index: int, op: Op, ways: Sequence[_Way]) -> _Way:
        """No mode fits: spill what is alive, the op's own operands last."""
        smallest = min(ways, key=lambda way: way.peak_bytes)
        others = self._victims(index, op, smallest.peak_bytes - self.budget, farther=False)
        names = others if others is not None else [*self._live]
        if not names:
            raise DoesNotFit(index, op, self._too_big(op, smallest), [])
        return self._after_spill(index, op, names)

    def _too_big(self, op: Op, way: _Way) -> OutOfMemoryError:
        circular = max(self.meter.measure(piece)[1] for piece in way.pieces)
        tensors = max(0, way.peak_bytes - circular)
        name = op.source.module or (op.outputs[0] if op.outputs else op.kind)
        return OutOfMemoryError(
            f"{name} ({op.kind}) does not fit in SRAM (level {self.level}).",
            needs=(
                f"{count(circular)} B circular buffers + {count(tensors)} B tensors a core; "
                f"a core of {self.chip.name} has {count(self.budget)} B"
            ),
        )

    # --- emitting -----------------------------------------------------------------------------

    def _emit(self, op: Op, way: _Way) -> None:
        names: dict[int, str] = {}
        main = next(i for i, piece in enumerate(way.pieces) if piece.main)
        for i, piece in enumerate(way.pieces):
            sources = [
                self._now.get(op.inputs[k], op.inputs[k]) if k >= 0 else names[k]
                for k in piece.inputs
            ]
            if i < main:
                first = piece.inputs[0]
                root = op.inputs[first] if first >= 0 else self._origin[names[first]]
                tag = "halo" if piece.op.kind == "Halo" else piece.output_specs[0].memory.sharding
                names[-1 - i] = self._fresh(root, tag)
                self._add(piece, sources, [names[-1 - i]], root, keep=False)
            elif i == main:
                self._emit_main(op, piece, sources, way, names, -1 - i)
            else:
                self._add(piece, sources, [op.outputs[i - main - 1]], op.outputs[i - main - 1])
        for name in op.inputs:
            if name in self._live:
                self._read.add(name)

    def _emit_main(
        self,
        op: Op,
        piece: Piece,
        sources: Sequence[str],
        way: _Way,
        names: dict[int, str],
        own: int,
    ) -> None:
        moved = len(way.pieces) + own  # pieces after this one: results that go on to DRAM
        outs = []
        for k, (name, spec) in enumerate(zip(op.outputs, piece.output_specs, strict=True)):
            if k < moved and spec.memory.buffer == "sram":
                fresh = self._fresh(name, spec.memory.sharding)
                outs.append(fresh)
                self._origin[fresh] = name
                names[own] = fresh
            else:
                outs.append(name)
                size = self.meter.sram_bytes(spec)
                if size:
                    self._live[name] = size
        self._add(piece, sources, outs, None)

    def _add(
        self,
        piece: Piece,
        sources: Sequence[str],
        outs: Sequence[str],
        root: str | None,
        *,
        keep: bool = True,
    ) -> None:
        self.ops.append(
            Op(piece.op.kind, tuple(sources), tuple(outs), piece.op.attrs, piece.op.source)
        )
        for name, spec in zip(outs, piece.output_specs, strict=True):
            self.values[name] = spec
            if root is not None and name != root:
                self._origin[name] = root
                if keep:
                    self._now[root] = name
        self.time_ns += self.meter.measure(piece)[0]

    def _fresh(self, name: str, tag: str) -> str:
        stem = f"{name}__{tag}"
        number, fresh = 1, stem
        while fresh in self.values:
            number += 1
            fresh = f"{stem}{number}"
        return fresh

    # --- reasons ------------------------------------------------------------------------------

    def _explain(self, op: Op, way: _Way, ways: Sequence[_Way]) -> None:
        in_dram = [w for w in ways if all(m == DRAM for m in w.mode.outputs)]
        for name, memory in zip(op.outputs, way.mode.outputs, strict=True):
            if name in self._outputs:
                self._reasons[name] = ("DRAM", "an output of the program")
            elif name in self.forced:
                self._reasons[name] = ("DRAM", self.forced[name])
            elif not self.sram:
                self._reasons[name] = ("DRAM", f"level {self.level} keeps tensors in DRAM")
            elif memory.buffer == "sram":
                plain = min((w.total_ns for w in in_dram), default=None)
                gain = f", {(plain - way.total_ns) / 1000:.1f} us less than DRAM" if plain else ""
                self._reasons[name] = (f"{way.mode.name}: least modelled time{gain}", "")
            else:
                self._reasons[name] = ("DRAM", self._obstacle(way, ways))

    def _obstacle(self, way: _Way, ways: Sequence[_Way]) -> str:
        faster = [w for w in ways if w.total_ns < way.total_ns and w.mode.outputs[0] != DRAM]
        if faster:
            best = min(faster, key=lambda w: w.total_ns)
            return (
                f"needs {count(best.peak_bytes)} B a core with what is live; "
                f"{count(self.budget)} B may be used"
            )
        others = [w for w in ways if w.mode.outputs and w.mode.outputs[0].buffer == "sram"]
        if not others:
            return "the op writes DRAM only"
        best = min(others, key=lambda w: w.total_ns)
        return f"SRAM would take {(best.total_ns - way.total_ns) / 1000:.1f} us more (modelled)"
