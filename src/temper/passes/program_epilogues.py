"""Activations into the matmul or convolution before them, residuals into the norm after them.

ttnn's matmul takes a row as its bias and one activation, not a second full tensor: a residual
add stays an op of its own unless a layer norm follows, which takes it.
"""

from __future__ import annotations

from temper.options import Options
from temper.passes.draft import Draft
from temper.program import Op
from temper.program.conv_config import window_of
from temper.program.tensor import TILE

# What ttnn fuses behind each op (FACTS 6.4).
_ALLOWED = {
    "Matmul": {"relu", "sigmoid", "silu", "gelu", "gelu_tanh", "tanh"},
    "Conv2d": {"relu", "relu6", "silu", "sigmoid"},
    "LayerNorm": {"silu", "gelu", "relu"},
}


def fuse_epilogues(draft: Draft, options: Options) -> int:
    """Let an op run the function that alone reads it."""
    hits = 0
    for index, op in enumerate(draft.ops):
        if op is None:
            continue
        if op.kind == "Unary":
            hits += _activation(draft, index, op)
        elif op.kind == "LayerNorm":
            hits += _residual(draft, index, op)
    return hits


def _activation(draft: Draft, index: int, op: Op) -> int:
    functions = op.attr("functions")
    source = op.inputs[0]
    before = draft.maker(source)
    if before is None or len(functions) != 1 or not draft.sole_reader(source):
        return 0
    if before.kind == "Reshape":
        return _through_reshape(draft, index, op, before)
    if functions[0][0] not in _allowed(before) or before.attr("activations"):
        return 0
    if before.kind == "LayerNorm" and before.attr("norm") != "rms":
        return 0
    if draft.values[source].format != draft.values[op.outputs[0]].format:
        return 0
    if _waits_for_product(draft, before, op):
        return 0
    place = draft.producer[source]
    draft.remove(index)
    draft.replace(
        place,
        Op(
            before.kind,
            before.inputs,
            op.outputs,
            {**before.attrs, "activations": functions},
            before.source,
        ),
    )
    return 1


def _allowed(op: Op) -> set[str]:
    """What may follow; a pointwise convolution runs as a matmul."""
    product = op.kind == "Conv2d" and op.attr("groups") == 1 and window_of(op).is_matmul
    return _ALLOWED.get("Matmul" if product else op.kind, set())


def _waits_for_product(draft: Draft, matmul: Op, op: Op) -> bool:
    """A matmul of one row of tiles is bound by its weight and has few cores to spare: the
    activation costs less on the product's operand, which takes it as well (EXPERT 4.1 #11)."""
    rows = draft.values[matmul.inputs[0]].physical_2d[0] if matmul.kind == "Matmul" else 0
    readers = [draft.ops[i] for i in draft.readers[op.outputs[0]]]
    return (
        rows == TILE
        and len(readers) == 1
        and readers[0] is not None
        and (readers[0].kind == "BinaryNg")
    )


def _through_reshape(draft: Draft, index: int, op: Op, reshape: Op) -> int:
    """A reshape between an op and its activation changes no value: let the two swap places."""
    inner = draft.maker(reshape.inputs[0])
    if inner is None or inner.kind not in _ALLOWED or not draft.sole_reader(reshape.inputs[0]):
        return 0
    place = draft.producer[op.inputs[0]]
    draft.values[op.inputs[0]] = draft.values[reshape.inputs[0]]
    draft.remove(index)
    draft.replace(place, Op(op.kind, reshape.inputs, reshape.outputs, op.attrs, op.source))
    draft.replace(index, Op("Reshape", reshape.outputs, op.outputs, reshape.attrs, reshape.source))
    moved = draft.ops[place]
    assert moved is not None
    return _activation(draft, place, moved)


def _residual(draft: Draft, index: int, op: Op) -> int:
    source = op.inputs[0]
    before = draft.maker(source)
    operands = list(op.attr("operands"))
    if before is None or before.kind != "BinaryNg" or "residual" in operands:
        return 0
    if before.attr("function") != "add" or len(before.inputs) != 2 or not draft.sole_reader(source):
        return 0
    if any(before.attr(chain) for chain in ("lhs", "rhs", "post")):
        return 0
    left, right = (draft.values[n] for n in before.inputs)
    if left.shape != right.shape or left.format != right.format:
        return 0
    draft.remove(draft.producer[source])
    draft.replace(
        index,
        Op(
            op.kind,
            (before.inputs[0], *op.inputs[1:], before.inputs[1]),
            op.outputs,
            {**op.attrs, "operands": [*operands, "residual"]},
            op.source,
        ),
    )
    return 1
