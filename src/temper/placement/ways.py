"""The ways an op may run from where its operands lie, weighed once for all equal situations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from temper.placement.mode import Mode
from temper.placement.modes import WINDOWS, modes
from temper.placement.pieces import Meter, Piece, attrs_key, expand
from temper.placement.window_modes import window_configs
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import DRAM, Memory, TensorSpec

# Readers of a value whose best answers are weighed; later ones rarely change the choice.
_READERS = 2
# Operands of a reader that are looked at one by one; hundreds of slices that are joined lie alike.
_MANY = 8


@dataclass(frozen=True, slots=True)
class Way:
    """One mode of an op with its pieces and their modelled time.

    ``kept`` is the operand whose moved form stays for later readers, -1 when none does.
    """

    mode: Mode
    pieces: tuple[Piece, ...]
    run_ns: float
    sizes: tuple[tuple[int, ...], ...]  # SRAM bytes of each piece's results
    circular: tuple[int, ...]  # bytes of each piece's circular buffers
    results: tuple[TensorSpec, ...]  # where the op's results end up
    kept: int = -1
    kept_piece: int = -1


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why SRAM had no room for a value, and the modelled time that this costs."""

    why: str
    time_ns: float


class WayBook:
    """All ways of a program's ops; equal ops on equal operands share theirs."""

    def __init__(
        self,
        program: Program,
        meter: Meter,
        *,
        sram: bool,
        level: int,
        forced_dram: Mapping[str, Shortage] | None = None,
    ) -> None:
        self.program, self.meter, self.sram, self.level = program, meter, sram, level
        self.forced = dict(forced_dram or {})
        self._keys = [attrs_key(op) for op in program.ops]
        self._outputs = frozenset(program.outputs)
        self.uses: dict[str, list[int]] = {}
        for index, op in enumerate(program.ops):
            for name in dict.fromkeys(op.inputs):
                self.uses.setdefault(name, []).append(index)
        self._ids: dict[TensorSpec, int] = {}
        self._specs: list[TensorSpec] = []
        self._ways: dict[tuple[object, ...], tuple[Way, ...]] = {}
        self._best: dict[tuple[object, ...], float] = {}
        self.home = {name: self.id(spec) for name, spec in program.values.items()}
        self._key_ids = self._intern_keys()

    def _intern_keys(self) -> list[int]:
        known: dict[tuple[object, ...], int] = {}
        found = []
        for key, op in zip(self._keys, self.program.ops, strict=True):
            whole = (key, *(self.home[name] for name in op.outputs), *self._ends(op))
            found.append(known.setdefault(whole, len(known)))
        return found

    def id(self, spec: TensorSpec) -> int:
        """A small number for a spec, so that situations compare quickly."""
        known = self._ids.get(spec)
        if known is None:
            known = self._ids[spec] = len(self._specs)
            self._specs.append(spec)
        return known

    def spec(self, number: int) -> TensorSpec:
        return self._specs[number]

    def is_output(self, name: str) -> bool:
        return name in self._outputs

    def _ends(self, op: Op) -> tuple[bool, ...]:
        """Which results must be written to DRAM."""
        return tuple(
            not self.sram or name in self._outputs or name in self.forced for name in op.outputs
        )

    def ways(self, index: int, inputs: tuple[int, ...]) -> tuple[Way, ...]:
        """The ways of an op whose operands lie as the numbers say."""
        key = (self._key_ids[index], inputs)
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._weigh(index, inputs)
        return found

    def _weigh(self, index: int, numbers: Sequence[int]) -> tuple[Way, ...]:
        op = self.program.ops[index]
        inputs = [self._specs[number] for number in numbers]
        outputs = [self.program.spec(name) for name in op.outputs]
        to_dram = self._ends(op)
        found = []
        every = modes(
            op, inputs, outputs, self.meter.chip, sram=self.sram, level=self.level,
            wanted=self._wanted(op, inputs),
        )  # fmt: skip
        if any(to_dram):
            # A result that ends in DRAM is written there at once, where the op can.
            every = [m for m in every if m.halo or m.outputs[0].buffer != "sram"] or every
        for mode in every:
            pieces = expand(
                op, self._keys[index], mode, inputs, outputs, sram=self.sram, to_dram=to_dram
            )
            found.append(self._way(mode, pieces, outputs, to_dram))
            if mode.halo is not None and self.sram and not any(to_dram):
                # A window writes shards; its result may go on to DRAM at once.
                out = [True] * len(outputs)
                pieces = expand(
                    op, self._keys[index], mode, inputs, outputs, sram=True, to_dram=out
                )
                found.append(self._way(mode, pieces, outputs, out))
        return tuple(found)

    def _wanted(self, op: Op, inputs: Sequence[TensorSpec]) -> list[Memory]:
        """Shards in which windows could read a result that the host sends up."""
        if not inputs or inputs[0].memory.buffer != "host":
            return []
        found: dict[Memory, None] = {}
        for reader in (self.program.ops[use] for use in self.uses.get(op.outputs[0], ())):
            if reader.kind in WINDOWS:
                specs = [self.program.spec(name) for name in reader.inputs]
                outs = [self.program.spec(name) for name in reader.outputs]
                for config in window_configs(
                    reader, specs, outs, self.meter.chip, every_scheme=True
                ):
                    found[config.in_memory] = None
        return list(found)

    def _way(
        self,
        mode: Mode,
        pieces: Sequence[Piece],
        outputs: Sequence[TensorSpec],
        to_dram: Sequence[bool],
    ) -> Way:
        measured = [self.meter.measure(piece) for piece in pieces]
        sizes = tuple(
            tuple(self.meter.sram_bytes(spec) for spec in piece.output_specs) for piece in pieces
        )
        results = tuple(
            spec.with_memory(DRAM if dram and memory.buffer == "sram" else memory)
            for spec, memory, dram in zip(outputs, mode.outputs, to_dram, strict=True)
        )
        run_ns = sum(time_ns for time_ns, _ in measured)
        return Way(mode, tuple(pieces), run_ns, sizes, tuple(b for _, b in measured), results)

    def readers_ns(self, name: str, index: int, number: int, lies: Mapping[str, int]) -> float:
        """Best modelled time of the next readers if the value lies as ``number`` says."""
        total = 0.0
        ahead = [use for use in self.uses.get(name, ()) if use > index][:_READERS]
        for reader in ahead:
            op = self.program.ops[reader]
            if len(op.inputs) > _MANY:
                inputs: tuple[int, ...] = (number,) * len(op.inputs)
            else:
                inputs = tuple(
                    number if operand == name else lies.get(operand, self.home[operand])
                    for operand in op.inputs
                )
            key = (self._key_ids[reader], inputs)
            best = self._best.get(key)
            if best is None:
                best = min(way.run_ns for way in self.ways(reader, inputs))
                self._best[key] = best
            total += best
        return total
