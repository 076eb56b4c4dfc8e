"""Elementwise chains in one op: unary into unary, unary before and after binary."""

from __future__ import annotations

from temper.options import Options
from temper.passes.draft import Draft
from temper.program import Op

_SCALAR = {"add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt",
           "ge", "fmod", "remainder"}  # fmt: skip
_FLIPPED = {"add": "add", "mul": "mul", "sub": "rsub", "div": "rdiv", "pow": "rpow",
            "maximum": "maximum", "minimum": "minimum", "eq": "eq", "ne": "ne", "lt": "gt",
            "gt": "lt", "le": "ge", "ge": "le"}  # fmt: skip


def fuse_chains(draft: Draft, options: Options) -> int:
    """Ops with a number become unary functions first; then neighbours join, rounding once."""
    hits = 0
    for index, op in enumerate(draft.ops):
        if op is None:
            continue
        chain = as_chain(op)
        if chain is not None:
            hits += _join(draft, index, op, chain)
        elif op.kind == "BinaryNg" and len(op.inputs) == 2:
            hits += _absorb(draft, index, op)
    return hits


def as_chain(op: Op) -> list[list[object]] | None:
    """The unary functions that an op on one tensor applies, or None."""
    if op.kind == "Unary":
        return list(op.attr("functions"))
    if op.kind != "BinaryNg" or len(op.inputs) != 1 or op.attr("scalar") is None:
        return None
    name, scalar = op.attr("function"), op.attr("scalar")
    if op.attr("scalar_first"):
        if name not in _FLIPPED:
            return None
        name = _FLIPPED[name]
    elif name not in _SCALAR:
        return None
    return [*op.attr("lhs"), [name, scalar], *op.attr("post")]


def _join(draft: Draft, index: int, op: Op, chain: list[list[object]]) -> int:
    """Into the op before, when it is elementwise and nobody else reads it."""
    source = op.inputs[0]
    before = draft.maker(source)
    if before is None or not draft.sole_reader(source):
        return 0
    spec, out = draft.values[source], draft.values[op.outputs[0]]
    if (spec.format, spec.layout, spec.shape) != (out.format, out.layout, out.shape):
        return 0
    place = draft.producer[source]
    earlier = as_chain(before)
    if earlier is not None:
        new = Op("Unary", before.inputs, op.outputs, {"functions": [*earlier, *chain]}, op.source)
    elif before.kind == "BinaryNg" and len(before.inputs) == 2:
        new = Op(
            "BinaryNg",
            before.inputs,
            op.outputs,
            {**before.attrs, "post": [*before.attr("post"), *chain]},
            before.source,
        )
    else:
        return 0
    draft.remove(index)
    draft.replace(place, new)
    return 1


def _absorb(draft: Draft, index: int, op: Op) -> int:
    """A unary op that only this binary op reads becomes its lhs or rhs chain."""
    hits = 0
    for side, key in ((0, "lhs"), (1, "rhs")):
        current = draft.ops[index]
        assert current is not None
        source = current.inputs[side]
        before = draft.maker(source)
        if before is None or current.inputs.count(source) != 1 or not draft.sole_reader(source):
            continue
        chain = as_chain(before)
        if chain is None or current.attr(key):
            continue
        if draft.values[before.inputs[0]].format != draft.values[source].format:
            continue
        inputs = list(current.inputs)
        inputs[side] = before.inputs[0]
        draft.remove(draft.producer[source])
        draft.replace(
            index,
            Op(
                "BinaryNg",
                tuple(inputs),
                current.outputs,
                {**current.attrs, key: chain},
                current.source,
            ),
        )
        hits += 1
    return hits
