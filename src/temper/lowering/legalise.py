"""The program as ttnn runs it: what the library refuses or takes apart stands apart here.

Found by offering programs to ttnn 0.81.1 on a mocked device. Lookups take unsigned indices; a
chain of functions keeps its operand's format; padding is filled before a reduction; rows that end
inside a tile are joined and cut as rows, not as tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from temper.program import Op, Program, TensorSpec
from temper.program.tensor import BLOCK_FORMATS, INTEGER_FORMATS, TILE

_INDEX = {"Embeddings": 0, "Gather": 1, "Scatter": 1}


def legalise(program: Program) -> Program:
    """The same computation in ops that ttnn runs as they stand."""
    return _Legaliser(program).run()


class _Legaliser:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.values = dict(program.values)
        self.ops: list[Op] = []
        self.rules: dict[str, Callable[[Op], list[Op] | None]] = {
            "Embeddings": self._embedding,
            "Gather": self._index,
            "Scatter": self._index,
            "Unary": self._unary,
            "Reduce": self._reduce,
            "Concat": self._concat,
            "Slice": self._slice,
            "Pad": self._pad,
        }

    def run(self) -> Program:
        self._unsigned_inputs()
        for op in self.program.ops:
            rule = self.rules.get(op.kind)
            self.ops += (rule(op) if rule else None) or [op]
        return self.program.replace(values=self.values, ops=tuple(self.ops))

    def _fresh(self, name: str, tag: str, spec: TensorSpec) -> str:
        stem, number = f"{name}__{tag}", 2
        fresh = stem
        while fresh in self.values:
            fresh, number = f"{stem}{number}", number + 1
        self.values[fresh] = spec
        return fresh

    # --- formats ------------------------------------------------------------------------------

    def _unsigned_inputs(self) -> None:
        """Inputs that are nothing but indices are uploaded without a sign."""
        readers: dict[str, set[bool]] = {}
        for op in (*self.program.ops, *self.program.const_ops):
            for place, name in enumerate(op.inputs):
                readers.setdefault(name, set()).add(_INDEX.get(op.kind) == place)
        for name in self.program.inputs:
            spec = self.values[name]
            only_index = readers.get(name) == {True} and name not in self.program.outputs
            if spec.format == "int32" and only_index:
                self.values[name] = replace(spec, format="uint32")

    def _index(self, op: Op) -> list[Op] | None:
        place = _INDEX[op.kind]
        name = op.inputs[place]
        spec = self.values[name]
        if spec.format != "int32" or spec.memory.buffer == "host":
            return None
        unsigned = self._fresh(name, "index", replace(spec, format="uint32"))
        inputs = (*op.inputs[:place], unsigned, *op.inputs[place + 1 :])
        return [Op("Typecast", (name,), (unsigned,), {}, op.source), replace(op, inputs=inputs)]

    def _embedding(self, op: Op) -> list[Op] | None:
        """Tiles come out of the lookup itself only where tokens and columns fill them."""
        made = self._index(op) or [op]
        out, ids = self.values[op.outputs[0]], self.values[op.inputs[0]]
        whole = bool(ids.shape) and ids.shape[-1] % TILE == 0 and out.shape[-1] % TILE == 0
        if out.layout != "tile" or whole:
            return made
        rows = self._fresh(op.outputs[0], "rows", replace(out, layout="row_major"))
        made[-1] = replace(made[-1], outputs=(rows,))
        return [*made, Op("Tilize", (rows,), op.outputs, {}, op.source)]

    def _unary(self, op: Op) -> list[Op] | None:
        """A chain keeps the format of its operand."""
        before, after = self.values[op.inputs[0]], self.values[op.outputs[0]]
        if before.format == after.format:
            return None
        if before.format in INTEGER_FORMATS and after.format not in INTEGER_FORMATS:
            cast = self._fresh(op.inputs[0], "cast", replace(before, format=after.format))
            first = Op("Typecast", op.inputs, (cast,), {}, op.source)
            return [first, replace(op, inputs=(cast,))]
        made = self._fresh(op.outputs[0], "exact", replace(after, format=before.format))
        return [replace(op, outputs=(made,)), Op("Typecast", (made,), op.outputs, {}, op.source)]

    # --- padding ------------------------------------------------------------------------------

    def _reduce(self, op: Op) -> list[Op] | None:
        spec = self.values[op.inputs[0]]
        if spec.layout != "tile" or not _ragged(spec):
            return None
        filled = self._fresh(op.inputs[0], "filled", spec)
        return [
            Op("FillPad", op.inputs[:1], (filled,), {}, op.source),
            replace(op, inputs=(filled, *op.inputs[1:])),
        ]

    # --- rows instead of tiles ----------------------------------------------------------------

    def _concat(self, op: Op) -> list[Op] | None:
        specs = [self.values[name] for name in op.inputs]
        dim = op.attr("dim") % max(1, len(specs[0].shape))
        if any(s.layout != "tile" for s in specs) or dim != len(specs[0].shape) - 2:
            return None
        if all(s.shape[dim] % TILE == 0 for s in specs) or not _can_be_rows(specs[0]):
            return None
        return self._as_rows(op)

    def _slice(self, op: Op) -> list[Op] | None:
        spec = self.values[op.inputs[0]]
        begins, steps = op.attr("begins"), op.attr("steps") or []
        inside = any(int(b) % TILE for b in begins[-2:]) or any(int(s) != 1 for s in steps)
        if spec.layout != "tile" or not inside or not _can_be_rows(spec):
            return None
        return self._as_rows(op)

    def _pad(self, op: Op) -> list[Op] | None:
        """Tiles are padded at their end only."""
        spec = self.values[op.inputs[0]]
        front = any(int(before) for before, _ in op.attr("pads"))
        if spec.layout != "tile" or not front or not _can_be_rows(spec):
            return None
        return self._as_rows(op)

    def _as_rows(self, op: Op) -> list[Op]:
        made: list[Op] = []
        names: dict[str, str] = {}
        for name in dict.fromkeys(op.inputs):
            rows = self._fresh(name, "rows", replace(self.values[name], layout="row_major"))
            names[name] = rows
            made.append(Op("Untilize", (name,), (rows,), {}, op.source))
        result = self.values[op.outputs[0]]
        rows = self._fresh(op.outputs[0], "rows", replace(result, layout="row_major"))
        made.append(replace(op, inputs=tuple(names[n] for n in op.inputs), outputs=(rows,)))
        made.append(Op("Tilize", (rows,), op.outputs, {}, op.source))
        return made


def _ragged(spec: TensorSpec) -> bool:
    return any(size % TILE for size in spec.shape[-2:]) or len(spec.shape) < 2


def _can_be_rows(spec: TensorSpec) -> bool:
    """Block formats exist in tiles alone."""
    return spec.format not in BLOCK_FORMATS
