"""The program as ttnn runs it: what the library refuses or takes apart stands apart here.

Found by offering programs to ttnn 0.81.1 on a mocked device. Lookups take unsigned indices; a
chain of functions and a softmax keep their operand's format; padding is filled before a reduction,
which goes one direction at a time; a mask is divided by the attention's scale; rows that end inside
a tile are joined and cut as rows, not as tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from temper.program import HOST, Op, Program, TensorSpec
from temper.program.conv_config import window_of
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
        self.gone: set[int] = set()  # ops whose work an earlier one does
        self.rules: dict[str, Callable[[Op], list[Op] | None]] = {
            "Embeddings": self._embedding,
            "Gather": self._gather,
            "Scatter": self._scatter,
            "Sort": self._ordered,
            "TopK": self._ordered,
            "ArgMax": self._argmax,
            "Repeat": self._repeat,
            "Unary": self._unary,
            "BinaryNg": self._binary,
            "Softmax": self._softmax,
            "Reduce": self._reduce,
            "Concat": self._concat,
            "Slice": self._slice,
            "Pad": self._pad,
            "Sdpa": self._attention,
            "Conv2d": self._pointwise,
            "Upsample": self._upsample,
        }

    def run(self) -> Program:
        self._unsigned_inputs()
        self._host_inputs()
        const_ops = list(self.program.const_ops)
        for op in self.program.ops:
            if id(op) in self.gone:
                continue
            if self._fixed(op):
                const_ops.append(op)
                continue
            rule = self.rules.get(op.kind)
            self.ops += (rule(op) if rule else None) or [op]
        return self.program.replace(
            values=self.values, ops=tuple(self.ops), const_ops=tuple(const_ops)
        )

    def _fixed(self, op: Op) -> bool:
        """The same numbers at every call: made once. ttnn would write them from the host."""
        return op.kind in ("Full", "Arange") and not {*op.outputs} & {*self.program.outputs}

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

    def _host_inputs(self) -> None:
        """Inputs that only host ops read are never sent to the chip."""
        for name in self.program.inputs:
            readers = {op.kind for op in self.program.ops if name in op.inputs}
            if readers == {"Host"} and name not in self.program.outputs:
                self.values[name] = replace(self.values[name], layout="row_major", memory=HOST)

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
            return self._scaled(op, "functions")
        if before.format in INTEGER_FORMATS and after.format not in INTEGER_FORMATS:
            cast = self._fresh(op.inputs[0], "cast", replace(before, format=after.format))
            first = Op("Typecast", op.inputs, (cast,), {}, op.source)
            return [first, replace(op, inputs=(cast,))]
        made = self._fresh(op.outputs[0], "exact", replace(after, format=before.format))
        return [replace(op, outputs=(made,)), Op("Typecast", (made,), op.outputs, {}, op.source)]

    def _binary(self, op: Op) -> list[Op] | None:
        return self._scaled(op, "post")

    def _scaled(self, op: Op, attribute: str) -> list[Op] | None:
        """A chain multiplies floats: integers are multiplied by ops of their own."""
        functions = list(op.attr(attribute))
        spec = self.values[op.outputs[0]]
        whole = all(self.values[n].format in INTEGER_FORMATS for n in (*op.inputs, *op.outputs))
        if not whole or all(function[0] != "mul" for function in functions):
            return None
        at = next(i for i, function in enumerate(functions) if function[0] == "mul")
        made, source = [], op.inputs[0]
        if op.kind != "Unary" or at:
            source = self._fresh(op.outputs[0], "unscaled", spec)
            made.append(replace(op.with_attrs(**{attribute: functions[:at]}), outputs=(source,)))
        scale = {"function": "mul", "scalar": functions[at][1]}
        rest = functions[at + 1 :]
        scaled = self._fresh(op.outputs[0], "scaled", spec) if rest else op.outputs[0]
        made.append(Op("BinaryNg", (source,), (scaled,), scale, op.source))
        if rest:
            last = Op("Unary", (scaled,), op.outputs, {"functions": rest}, op.source)
            made += self._scaled(last, "functions") or [last]
        return made

    def _softmax(self, op: Op) -> list[Op] | None:
        """Sums are wider inside; one rounding is at the end."""
        before, after = self.values[op.inputs[0]], self.values[op.outputs[0]]
        if before.format == after.format:
            return None
        name = op.outputs[0]
        readers = [other for other in self.program.ops if name in other.inputs]
        if len(readers) == 1 and readers[0].kind == "Typecast" and name not in self.program.outputs:
            cast = readers[0]
            if self.values[cast.outputs[0]].format == before.format:
                self.gone.add(id(cast))
                return [replace(op, outputs=cast.outputs)]
        wide = self._fresh(op.inputs[0], "cast", replace(before, format=after.format))
        return [
            Op("Typecast", op.inputs[:1], (wide,), {}, op.source),
            replace(op, inputs=(wide, *op.inputs[1:])),
        ]

    def _gather(self, op: Op) -> list[Op]:
        made = self._index(op) or [op]
        return [*made[:-1], *self._filled(made[-1], (0, 1))]

    def _scatter(self, op: Op) -> list[Op]:
        """Rows go in and out."""
        made = self._index(op) or [op]
        specs = [self.values[name] for name in made[-1].inputs]
        if any(s.layout != "tile" or not _can_be_rows(s) for s in specs):
            return made
        return [*made[:-1], *self._as_rows(made[-1])]

    def _ordered(self, op: Op) -> list[Op]:
        """Places in 16 bits where they fit and values have no more; ragged operands are filled."""
        places = self.values[op.outputs[1]] if len(op.outputs) > 1 else None
        ragged = self._filled(op, (0,))
        if places is None or places.format != "int32":
            return ragged
        spec = self.values[op.inputs[0]]
        size = spec.shape[op.attr("dim")] if spec.shape else 1
        wide = size >= 1 << 16 or (op.kind == "TopK" and spec.format == "float32")
        fmt = "uint32" if wide else "uint16"
        made, casts = self._as_given(ragged[-1], 1, replace(places, format=fmt))
        return [*ragged[:-1], made, *casts]

    def _argmax(self, op: Op) -> list[Op]:
        """Places come as unsigned rows. The smallest is the largest of the negative; integers, and
        places among all values, are looked for in rows."""
        before, name = self.values[op.inputs[0]], op.inputs[0]
        first: list[Op] = []
        if not op.attr("largest"):
            name = self._fresh(name, "negative", before)
            first.append(Op("Unary", op.inputs, (name,), {"functions": [["neg"]]}, op.source))
        if before.layout == "tile" and (before.format in INTEGER_FORMATS or op.attr("dim") is None):
            rows = self._fresh(name, "rows", replace(before, layout="row_major"))
            first.append(Op("Untilize", (name,), (rows,), {}, op.source))
            name = rows
        op = replace(op.with_attrs(largest=True), inputs=(name,))
        spec = replace(self.values[op.outputs[0]], format="uint32", layout="row_major")
        made, casts = self._as_given(op, 0, spec)
        return [*first, made, *casts]

    def _as_given(self, op: Op, place: int, given: TensorSpec) -> tuple[Op, list[Op]]:
        """The op with a result as ttnn gives it, and what makes the planned one of it."""
        name = op.outputs[place]
        wanted = self.values[name]
        if given == wanted:
            return op, []
        if not any(name in other.inputs for other in self.program.ops):
            self.values[name] = given  # nobody on the device reads it
            return op, []
        fresh = self._fresh(name, "given", given)
        casts, source = [], fresh
        if given.layout != wanted.layout:
            tiled = self._fresh(name, "tiled", replace(given, layout=wanted.layout))
            casts.append(Op("Tilize", (source,), (tiled,), {}, op.source))
            source = tiled
        casts.append(Op("Typecast", (source,), (name,), {}, op.source))
        outputs = (*op.outputs[:place], fresh, *op.outputs[place + 1 :])
        return replace(op, outputs=outputs), casts

    # --- padding ------------------------------------------------------------------------------

    def _reduce(self, op: Op) -> list[Op] | None:
        """Padding filled, one direction at a time, and the shape without the dimension last.

        ttnn does so by itself: a mean or a largest value over rows and columns is two device ops
        with a result of the operand's format between them; a sum keeps float32 there, so it stays
        one call.
        """
        spec, function = self.values[op.inputs[0]], op.attr("function")
        if not spec.shape or function not in ("sum", "mean", "max", "min", "var", "std"):
            return self._filled(op, (0,))
        rank = len(spec.shape)
        dims = sorted(int(d) % rank for d in op.attr("dims")) or list(range(rank))
        made = [op]
        result = self.values[op.outputs[0]]
        kept = tuple(1 if d in dims else size for d, size in enumerate(spec.shape))
        if not op.attr("keepdim") and result.shape != kept:
            whole = self._fresh(op.outputs[0], "kept", replace(result, shape=kept))
            made = [replace(op.with_attrs(keepdim=True), outputs=(whole,)),
                    Op("Reshape", (whole,), op.outputs, {}, op.source)]  # fmt: skip
        first, rest = made[0], made[1:]
        if function in ("mean", "max", "min") and spec.layout == "tile":
            split = [rank - 2, rank - 1] if rank > 1 else []
            if dims == split and (function == "min" or spec.tiles > 1):
                shape = (*spec.shape[:-1], 1)
                line = self._fresh(op.outputs[0], "line", replace(spec, shape=shape))
                across = first.with_attrs(dims=[rank - 1], keepdim=True, inner=True)
                across = replace(across, outputs=(line,))
                down = replace(first.with_attrs(dims=[rank - 2]), inputs=(line,))
                return [*self._filled(across, (0,)), down, *rest]
        if function not in ("var", "std"):
            return [*self._filled(first, (0,)), *rest]
        return made

    def _filled(self, op: Op, places: tuple[int, ...]) -> list[Op]:
        """The op after what tiles hold beyond its operands' shapes was written."""
        made, names = [], list(op.inputs)
        for place in places:
            spec = self.values[names[place]]
            if spec.layout == "tile" and _ragged(spec):
                filled = self._fresh(names[place], "filled", spec)
                made.append(Op("FillPad", (names[place],), (filled,), {}, op.source))
                names[place] = filled
        return [*made, replace(op, inputs=tuple(names))]

    def _attention(self, op: Op) -> list[Op] | None:
        """ttnn divides a mask by the scale before it calls its kernel, which multiplies by it."""
        depth = self.values[op.inputs[0]].shape[-1]
        scale = op.attr("scale") or depth**-0.5
        if len(op.inputs) < 4 or scale == 1.0:
            return None
        mask = op.inputs[3]
        scaled = self._fresh(mask, "scaled", self.values[mask])
        return [
            Op("ScaleMask", (mask,), (scaled,), {"scalar": 1.0 / scale}, op.source),
            replace(op, inputs=(*op.inputs[:3], scaled)),
        ]

    def _pointwise(self, op: Op) -> list[Op] | None:
        """A convolution that is a matmul reads tiles."""
        spec = self.values[op.inputs[0]]
        if spec.layout == "tile" or not window_of(op).is_matmul:
            return None
        tiled = self._fresh(op.inputs[0], "tiled", replace(spec, layout="tile"))
        return [
            Op("Tilize", op.inputs[:1], (tiled,), {}, op.source),
            replace(op, inputs=(tiled, *op.inputs[1:])),
        ]

    def _upsample(self, op: Op) -> list[Op] | None:
        """A bilinear one wants whole tiles of channels: zeros are added and cut off again."""
        x, out = self.values[op.inputs[0]], self.values[op.outputs[0]]
        channels = x.shape[-1]
        if op.attr("mode") != "bilinear" or channels % TILE == 0:
            return None
        more = TILE - channels % TILE
        wide = self._fresh(op.inputs[0], "wide", replace(x, shape=(*x.shape[:-1], channels + more)))
        made = self._fresh(
            op.outputs[0], "wide", replace(out, shape=(*out.shape[:-1], channels + more))
        )
        rank = len(out.shape)
        pads = [[0, 0]] * (rank - 1) + [[0, more]]
        cut = {"begins": [0] * rank, "ends": list(out.shape), "steps": [1] * rank}
        return [
            Op("Pad", op.inputs[:1], (wide,), {"pads": pads, "value": 0.0}, op.source),
            replace(op, inputs=(wide,), outputs=(made,)),
            Op("Slice", (made,), op.outputs, cut, op.source),
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

    def _repeat(self, op: Op) -> list[Op] | None:
        """Rows or columns that end inside a tile are repeated as rows; so is everything of more
        than four dimensions that ends inside one."""
        spec = self.values[op.inputs[0]]
        inner = len(spec.shape) > 4 or any(int(times) > 1 for times in op.attr("repeats")[-2:])
        if spec.layout != "tile" or not inner or not _ragged(spec) or not _can_be_rows(spec):
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
        spec, result = self.values[op.inputs[0]], self.values[op.outputs[0]]
        if spec.layout != result.layout:  # ttnn keeps the operand's layout
            rows = self._fresh(op.outputs[0], "rows", replace(result, layout="row_major"))
            return [replace(op, outputs=(rows,)), Op("Tilize", (rows,), op.outputs, {}, op.source)]
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
