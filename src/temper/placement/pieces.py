"""Ops as placement weighs them: kind, attributes and specs, with cached time and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from temper.chips import Chip
from temper.placement.mode import Mode, accepts
from temper.program.allocator import tensor_bank_bytes
from temper.program.circular_buffers import circular_buffer_bytes, inside_bytes
from temper.program.op import Op
from temper.program.tensor import BLOCK_FORMATS, DRAM, SRAM, Memory, TensorSpec


class Cost(Protocol):
    """What placement reads of an op's cost."""

    @property
    def kernel_ns(self) -> float: ...
    @property
    def gap_ns(self) -> float: ...


Estimate = Callable[[Op, Sequence[TensorSpec], Sequence[TensorSpec], Chip], Cost]


Dispatch = Callable[[Chip, Sequence[TensorSpec]], float]


@dataclass(frozen=True, slots=True)
class Piece:
    """One op to be: ``inputs`` index the op's operands (>= 0) or earlier pieces (-1 - piece)."""

    op: Op
    key: str
    inputs: tuple[int, ...]
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    main: bool = False  # the op itself, not a move before or after it


class Meter:
    """Modelled time and circular buffers of pieces, each computed once."""

    def __init__(self, chip: Chip, estimate: Estimate, dispatch: Dispatch | None = None) -> None:
        self.chip = chip
        self._estimate = estimate
        self._dispatch = dispatch  # what the host takes for an op; None where a trace replays
        self._known: dict[tuple[Any, ...], tuple[float, int]] = {}
        self._bytes: dict[TensorSpec, int] = {}

    def measure(self, piece: Piece) -> tuple[float, int]:
        """(modelled ns with the gap after it, circular-buffer bytes of a core)."""
        key = (piece.key, piece.input_specs, piece.output_specs)
        known = self._known.get(key)
        if known is None:
            cost = self._estimate(piece.op, piece.input_specs, piece.output_specs, self.chip)
            specs = piece.input_specs, piece.output_specs
            circular = circular_buffer_bytes(piece.op, *specs, self.chip)
            circular += inside_bytes(piece.op, *specs, self.chip)
            time_ns = cost.kernel_ns + cost.gap_ns
            if self._dispatch is not None and cost.kernel_ns:
                time_ns = max(time_ns, self._dispatch(self.chip, piece.input_specs))
            known = self._known[key] = (time_ns, circular)
        return known

    def sram_bytes(self, spec: TensorSpec) -> int:
        """Bytes of every core's SRAM that a tensor takes; none when it lies elsewhere."""
        if spec.memory.buffer != "sram":
            return 0
        known = self._bytes.get(spec)
        if known is None:
            known = self._bytes[spec] = tensor_bank_bytes(spec, self.chip)
        return known


def attrs_key(op: Op) -> str:
    """Kind and attributes as text: equal for ops that cost the same on equal tensors."""
    return op.kind + repr(sorted(op.attrs.items(), key=lambda item: item[0]))


def move_kind(before: Memory, after: Memory) -> str:
    """The op that brings a tensor from one memory to another."""
    if before.sharded and after.sharded:
        return "Reshard"
    if before.sharded:
        return "ShardedToInterleaved"
    return "InterleavedToSharded" if after.sharded else "Copy"


def move(spec: TensorSpec, memory: Memory, source: int, like: Op) -> Piece:
    """A piece that moves a tensor; it carries the source line of the op that needs it."""
    kind = move_kind(spec.memory, memory)
    op = Op(kind, ("x",), ("y",), {}, like.source)
    return Piece(op, kind, (source,), (spec,), (spec.with_memory(memory),))


def expand(
    op: Op,
    key: str,
    mode: Mode,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    sram: bool,
    to_dram: Sequence[bool],
) -> list[Piece]:
    """The op in a mode as the pieces that run: moves, halo, the op, results to DRAM."""
    pieces: list[Piece] = []
    sources: list[int] = []
    specs: list[TensorSpec] = []
    for index, (need, spec) in enumerate(zip(mode.inputs, inputs, strict=True)):
        if accepts(need, spec.memory):
            sources.append(index)
            specs.append(spec)
            continue
        if isinstance(need, Memory):
            target = need
        else:
            target = SRAM if sram and need == "interleaved" else DRAM
        if need == "dram" and spec.memory == SRAM:
            target = DRAM
        pieces.append(move(spec, target, index, op))
        sources.append(-len(pieces))
        specs.append(spec.with_memory(target))
    if mode.halo is not None:
        x = specs[0]
        fmt = "bfloat16" if x.format in BLOCK_FORMATS else x.format
        halo = TensorSpec(x.shape, fmt, "row_major", mode.halo.halo_memory)
        window = {name: op.attrs[name] for name in _WINDOW if name in op.attrs}
        halo_op = Op("Halo", ("x",), ("y",), window, op.source)
        pieces.append(Piece(halo_op, "Halo" + repr(window), (sources[0],), (x,), (halo,)))
        sources[0], specs[0] = -len(pieces), halo
        if mode.moved:
            pieces.append(Piece(Op("Move", ("x",), ("y",), {}, op.source), "Move",
                                (sources[0],), (halo,), (halo,)))  # fmt: skip
            sources[0] = -len(pieces)
    chosen = op.with_attrs(**mode.attrs) if mode.attrs else op
    made = tuple(s.with_memory(m) for s, m in zip(outputs, mode.outputs, strict=True))
    full_key = key + repr(mode.attrs) if mode.attrs else key
    pieces.append(Piece(chosen, full_key, tuple(sources), tuple(specs), made, main=True))
    main = -len(pieces)
    for index, spec in enumerate(made):
        if to_dram[index] and spec.memory.buffer == "sram":
            piece = move(spec, DRAM, main, op)
            pieces.append(replace(piece, inputs=(main,)))
    return pieces


_WINDOW: Mapping[str, None] = dict.fromkeys(
    ("batch", "in_h", "in_w", "kernel", "stride", "padding", "dilation")
)
