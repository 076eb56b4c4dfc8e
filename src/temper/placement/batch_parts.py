"""Run the first ops of a program on parts of its batch, one part after the other, then join them.

Where the tensors of a large batch do not fit in SRAM, those of a half or a quarter of it do: hand
written programs run the first stages of a network in such parts. Every part is the same program on
fewer rows, so that numbers stay the same; what later ops read is joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from temper.placement.batch_rules import Cut, first_dim, part_attrs, part_shape
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import TILE, TensorSpec


@dataclass(frozen=True)
class Parts:
    """A program whose ops before ``stop`` may run in parts; ``cut`` are the values that are."""

    program: Program
    parts: int
    attrs: dict[int, dict[str, object]]  # ops that run in parts, and their attributes there
    cut: frozenset[str]
    entries: frozenset[str]  # values that are whole and of which parts are sliced
    stop: int

    def joined(self, end: int) -> list[str]:
        """Values that must be joined when ops from ``end`` on run whole."""
        made = {n for i in self.attrs if i < end for n in self.program.ops[i].outputs}
        read = {n for op in self.program.ops[end:] for n in op.inputs} | set(self.program.outputs)
        return sorted(made & read)

    def ends(self) -> list[int]:
        """Where the parts may be joined: values of whole tiles, or rows that are not tiled."""
        found = []
        for end in sorted(i + 1 for i in self.attrs if i < self.stop):
            last = self.program.ops[end - 1]
            if last.kind != "FoldImage" and all(map(self._joins, self.joined(end))):
                found.append(end)
        return found

    def name(self, value: str, number: int) -> str:
        """The name of a value's part; a value that is not cut has its own."""
        return f"{value}__part{number}of{self.parts}" if value in self.cut else value

    def dim(self, value: str) -> int:
        """The dimension along which a value is cut."""
        return first_dim(self.program.spec(value).shape)

    def part_spec(self, value: str) -> TensorSpec:
        """One part of a value that is cut."""
        spec = self.program.spec(value)
        shape = part_shape(spec.shape, self.parts)
        assert shape is not None
        return replace(spec, shape=shape)

    def _joins(self, name: str) -> bool:
        return _whole_pages(self.program.spec(name), self.parts)

    def build(self, end: int, first_only: bool = False) -> Program:
        """The program with the ops before ``end`` in parts; ``first_only``: just the first part."""
        return _Writer(self, end).write(first_only=first_only)


def cut_batch(program: Program, parts: int) -> Parts | None:
    """How far a program can run in so many parts; None when not at all.

    An input is cut as soon as it, or what ops make of it, can be: token numbers in tiles cannot.
    """
    batch = program.spec(program.inputs[0]).shape[:1] if program.inputs else ()
    pending = {n for n in program.inputs if program.spec(n).shape[:1] == batch != (1,)}
    cut = {name for name in pending if _starts(program.spec(name), parts)}
    entries = set(cut)
    attrs: dict[int, dict[str, object]] = {}
    stop = len(program.ops)
    for index, op in enumerate(program.ops):
        which = [name in cut for name in op.inputs]
        if any(which):
            found = _attrs_of(program, op, which, parts)
            if found is None:  # a token repeated for every sample, say, is sliced too
                fresh = {n for n in op.inputs if program.spec(n).shape[:1] == batch} - cut
                fresh = {name for name in fresh if _starts(program.spec(name), parts)}
                which = [name in cut or name in fresh for name in op.inputs]
                found = _attrs_of(program, op, which, parts) if fresh else None
                if found is None:
                    stop = index
                    break
                entries |= fresh
                cut |= fresh
            attrs[index] = found
            cut.update(op.outputs)
        elif pending.intersection(op.inputs):
            fresh = {n for n in op.outputs if program.spec(n).shape[:1] == batch}
            pending |= fresh
            entries |= {name for name in fresh if _starts(program.spec(name), parts)}
            cut |= entries
    return Parts(program, parts, attrs, frozenset(cut), frozenset(entries), stop) if attrs else None


def _starts(spec: TensorSpec, parts: int) -> bool:
    """Whether parts can be had of a value that is whole."""
    if spec.memory.buffer == "host":
        return part_shape(spec.shape, parts) is not None
    return _whole_pages(spec, parts)


def _whole_pages(spec: TensorSpec, parts: int) -> bool:
    shape = part_shape(spec.shape, parts)
    if shape is None:
        return False
    dim = first_dim(spec.shape)
    if spec.layout == "row_major":
        return dim < len(shape) - 1
    return dim < len(shape) - 2 or (dim == len(shape) - 2 and shape[dim] % TILE == 0)


def _attrs_of(program: Program, op: Op, which: list[bool], parts: int) -> dict[str, object] | None:
    inputs, outputs = program.input_specs(op), program.output_specs(op)
    if op.kind == "FoldImage":
        whole = part_shape(outputs[0].shape, parts) is not None and not op.attr("images")
        return dict(op.attrs) if whole else None
    if inputs[0].memory.buffer == "host" and op.kind != "Reshape":
        return None
    found = part_attrs(Cut(op, inputs, outputs, which, parts))
    return None if found is None else dict(found)


class _Writer:
    """Writes one cut program."""

    def __init__(self, parts: Parts, end: int) -> None:
        self.parts, self.end = parts, end
        self.program = parts.program
        self.values = dict(self.program.values)

    def write(self, *, first_only: bool) -> Program:
        numbers = range(1 if first_only else self.parts.parts)
        before = [op for i, op in enumerate(self.program.ops[: self.end])
                  if i not in self.parts.attrs]  # fmt: skip
        mine = [i for i in sorted(self.parts.attrs) if i < self.end]
        # The host sends all parts before the first op runs.
        up = [i for i in mine if self._on_the_way_up(i)]
        ops = [*before, *(self._part(i, n) for n in numbers for i in up)]
        for number in numbers:
            ops += self._slices((i for i in mine if i not in up), number)
            ops += [self._part(i, number) for i in mine if i not in up]
        joined = self.parts.joined(self.end)
        if first_only:
            return self.program.replace(
                values=self.values, ops=tuple(ops),
                outputs=tuple(self._name(name, 0) for name in joined),
            )  # fmt: skip
        ops += [self._join(name) for name in joined]
        ops += self.program.ops[self.end :]
        for index in mine:
            for name in self.program.ops[index].outputs:
                if name not in joined:
                    del self.values[name]
        return self.program.replace(values=self.values, ops=tuple(ops))

    def _on_the_way_up(self, index: int) -> bool:
        op = self.program.ops[index]
        host = self.program.spec(op.inputs[0]).memory.buffer == "host"
        folded = {o for p in self.program.ops if p.kind == "FoldImage" for o in p.outputs}
        return host or (op.kind == "Reshape" and op.inputs[0] in folded)

    def _name(self, name: str, number: int) -> str:
        """A value's part, declared at its first mention; a value that is not cut is whole."""
        fresh = self.parts.name(name, number)
        if fresh not in self.values:
            self.values[fresh] = self.parts.part_spec(name)
        return fresh

    def _part(self, index: int, number: int) -> Op:
        op, attrs = self.program.ops[index], self.parts.attrs[index]
        inputs = tuple(self._name(name, number) for name in op.inputs)
        if op.kind == "FoldImage":
            images = self.program.spec(op.inputs[0]).shape[0] // self.parts.parts
            attrs = {**attrs, "images": [number * images, (number + 1) * images]}
            inputs = op.inputs
        outputs = tuple(self._name(name, number) for name in op.outputs)
        return Op(op.kind, inputs, outputs, attrs, op.source)

    def _slices(self, indices: Iterable[int], number: int) -> list[Op]:
        """The parts of values that the device holds whole."""
        made: dict[str, Op] = {}
        for index in indices:
            op = self.program.ops[index]
            for name in op.inputs:
                if name not in self.parts.entries or name in made:
                    continue
                spec = self.program.spec(name)
                size = spec.shape[0] // self.parts.parts
                attrs = {
                    "begins": [number * size, *(0 for _ in spec.shape[1:])],
                    "ends": [(number + 1) * size, *spec.shape[1:]],
                    "steps": [1] * len(spec.shape),
                }
                made[name] = Op("Slice", (name,), (self._name(name, number),), attrs, op.source)
        return list(made.values())

    def _join(self, name: str) -> Op:
        parts = tuple(self._name(name, number) for number in range(self.parts.parts))
        maker = next(op for op in self.program.ops if name in op.outputs)
        return Op("Concat", parts, (name,), {"dim": self.parts.dim(name)}, maker.source)
