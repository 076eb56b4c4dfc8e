"""Host kernels of ops that move data: exact copies or, where strides allow it, views of no cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F

from temper.program import Op
from temper.program.tensor import BLOCK_FORMATS, INTEGER_FORMATS
from temper.targets.fold import fold_to
from temper.targets.virtual import native
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.values import holds, to_integer

Tensor = torch.Tensor


def convert(b: Emitter, op: Op, view: Tensor, *, moved: bool = True, index: int = 0) -> Tensor:
    """The moved data in the output's format: a view when the format holds every value already.

    Rule: values are unchanged; a narrower output format rounds once (floats) or truncates as
    ttnn's typecast (integers). Data in a block format that was moved stands in other groups of 16,
    and is packed anew.
    """
    source = b.spec(op.inputs[0]).format
    target = b.spec(op.outputs[index]).format
    if holds(target, source) and not (moved and target in BLOCK_FORMATS):
        return view
    if target in INTEGER_FORMATS:
        return b.compute(op, lambda: to_integer(view, target), index=index)
    out = b.output(op, index)
    step = native.elementwise(out, [view], target)
    if step is not None:
        b.emit_fused(step, out, target)
        return out
    b.emit(lambda: out.copy_(view))
    b.finish(out, target)
    return out


def as_shape(b: Emitter, x: Tensor, shape: Sequence[int]) -> Tensor:
    """The data in another shape: a view if strides allow it, else of a contiguous copy."""
    try:
        return x.view(tuple(shape))
    except RuntimeError:
        return b.contiguous(x).view(tuple(shape))


def in_place_or_new(b: Emitter, op: Op, *positions: int) -> Tensor:
    """The memory of an operand that dies here, or a fresh buffer."""
    for position in positions:
        out = b.in_place(op, position)
        if out is not None:
            return out
    return b.output(op)


@kernel(
    "Halo",
    "Move",
    "FillPad",
    "ScaleMask",
    "Typecast",
    "Tilize",
    "Untilize",
    "InterleavedToSharded",
    "ShardedToInterleaved",
    "Reshard",
    "Copy",
)
def same_values(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: the same values in another place, layout or format."""
    shape = b.spec(op.outputs[0]).shape
    x = inputs[0]
    return [convert(b, op, as_shape(b, x, shape), moved=tuple(x.shape) != shape)]


@kernel("Reshape")
def reshape(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: the same values in row-major order under another shape."""
    return [convert(b, op, as_shape(b, inputs[0], b.spec(op.outputs[0]).shape))]


@kernel("Permute")
def permute(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; the host keeps a strided view."""
    return [convert(b, op, inputs[0].permute(op.attr("dims")))]


@kernel("Transpose")
def transpose(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; the host keeps a strided view."""
    return [convert(b, op, inputs[0].transpose(*op.attr("dims")))]


@kernel("Slice")
def slice_(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; the host keeps a strided view."""
    begins, ends = op.attr("begins"), op.attr("ends")
    steps = op.attr("steps") or [1] * len(begins)
    key = tuple(slice(*bounds) for bounds in zip(begins, ends, steps, strict=True))
    return [convert(b, op, as_shape(b, inputs[0][key], b.spec(op.outputs[0]).shape))]


@kernel("Concat")
def concat(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact."""
    out, dim = b.output(op), op.attr("dim")
    parts = [x.to(out.dtype) if x.dtype != out.dtype else x for x in inputs]
    position = 0
    for x in parts:
        size = x.shape[dim]
        if x.numel():
            b.emit(native.strided_copy(out.narrow(dim, position, size), x))
        position += size
    target = b.spec(op.outputs[0]).format
    exact = all(holds(target, b.spec(name).format) for name in op.inputs)
    if not exact or target in BLOCK_FORMATS:
        b.finish(out, target)
    return [out]


@kernel("Pad")
def pad(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; the filling value is rounded to the output format."""
    x, value = inputs[0], op.attr("value")
    pads = [tuple(p) for p in op.attr("pads")]
    if any(p < 0 for pair in pads for p in pair):
        flat = [p for pair in reversed(pads) for p in pair]
        return [b.compute(op, lambda: F.pad(x, flat, value=value))]
    out = b.output(op)
    inner = out
    for dim, (before, _) in enumerate(pads):
        inner = inner.narrow(dim, before, x.shape[dim])
    b.emit(partial(out.fill_, value))
    b.emit(native.strided_copy(inner, x))
    b.finish(out, b.spec(op.outputs[0]).format)
    return [out]


@kernel("FoldImage")
def fold_image(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; padding is zero."""
    x, out = inputs[0], b.output(op)
    if not x.is_contiguous():
        held = b.empty(tuple(x.shape))
        b.emit(native.strided_copy(held, x))
        x = held
    b.emit(lambda: fold_to(op, x.data_ptr(), out.data_ptr(), x.element_size(), tuple(x.shape)))
    b.finish(out, b.spec(op.outputs[0]).format)
    return [out]


@kernel("Repeat")
def repeat(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; repeating dimensions of size one is a view."""
    x, repeats = inputs[0], list(op.attr("repeats"))
    x = x.reshape((1,) * (len(repeats) - x.dim()) + tuple(x.shape))
    if all(count == 1 or size == 1 for count, size in zip(repeats, x.shape, strict=True)):
        return [convert(b, op, x.expand(b.spec(op.outputs[0]).shape))]
    return [b.compute(op, lambda: x.repeat(repeats))]


@kernel("CreateQkvHeads")
def create_heads(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; (B, S, (h + 2 kv) d) cut into q, k, v of (B, heads, S, d), as views."""
    x, heads, kv_heads = inputs[0], op.attr("heads"), op.attr("kv_heads")
    x = x.view(x.shape[-3] if x.dim() > 2 else 1, x.shape[-2], heads + 2 * kv_heads, -1)
    edges = (0, heads, heads + kv_heads, heads + 2 * kv_heads)
    q, k, v = (x[:, :, first:last].transpose(1, 2) for first, last in pairwise(edges))
    k = k.transpose(-1, -2) if op.attr("transpose_k") else k
    return [convert(b, op, part, index=index) for index, part in enumerate((q, k, v))]


@kernel("ConcatHeads")
def concat_heads(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact; (B, h, S, d) to (B, S, h d)."""
    joined = as_shape(b, inputs[0].transpose(-3, -2), b.spec(op.outputs[0]).shape)
    return [convert(b, op, joined)]


def _within(ids: Tensor, low: Tensor, high: Tensor, axis: int) -> None:
    rows = ids.view(-1, low.numel()) if axis else ids.view(low.numel(), -1).t()
    if bool(((rows < low) | (rows >= high)).any()):
        raise IndexError("index out of range in self")


@kernel("Embeddings")
def embeddings(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact rows of the table; an id beyond its own table's rows is an error, as in torch."""
    ids, table = inputs
    limits = op.attr("limits")
    if limits:
        low = torch.tensor(limits[:-1])
        high = torch.tensor(limits[1:]).maximum(low + 1)  # columns behind the ids have one row
        b.emit(partial(_within, ids, low, high, op.attr("limits_axis")))
    ids = as_shape(b, ids, (-1,))
    out = b.output(op)
    rows = out.view(-1, table.shape[-1])
    table = as_shape(b, table, (-1, table.shape[-1]))
    if ids.dtype == torch.int64:
        b.emit(partial(torch.index_select, table, 0, ids, out=rows))
    else:
        b.emit(lambda: torch.index_select(table, 0, ids.to(torch.int64), out=rows))
    if not holds(b.spec(op.outputs[0]).format, b.spec(op.inputs[1]).format):
        b.finish(out, b.spec(op.outputs[0]).format)
    return [out]


@kernel("Gather")
def gather(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact."""
    x, index = inputs
    dim = op.attr("dim")
    return [b.compute(op, lambda: torch.gather(x, dim, index.to(torch.int64)), exact=True)]


_SCATTERED = {"add": "sum", "multiply": "prod", "amax": "amax", "amin": "amin"}


@kernel("Scatter")
def scatter(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: places written are exact; where several values meet they are reduced in float32 with
    what was there, and rounded once."""
    x, index, src = inputs
    dim, reduce = op.attr("dim"), op.attr("reduce")

    def compute() -> Tensor:
        places = index.to(torch.int64)
        if reduce is None:
            return torch.scatter(x, dim, places, src.to(x.dtype))
        return torch.scatter_reduce(x, dim, places, src.to(x.dtype), _SCATTERED[reduce])

    return [b.compute(op, compute, exact=reduce is None)]


@kernel("ArgMax")
def argmax(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: index of the first greatest (or least) value; without dim, of the flattened tensor."""
    x, dim, keepdim = inputs[0], op.attr("dim"), op.attr("keepdim")
    function = torch.argmax if op.attr("largest") else torch.argmin
    return [b.compute(op, lambda: function(x, dim, keepdim), exact=True)]


@kernel("TopK")
def topk(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact values and their indices; which of several equal values is unspecified."""
    x = inputs[0]
    arguments = (op.attr("k"), op.attr("dim"), op.attr("largest"), op.attr("sorted"))
    values, indices = b.output(op, 0), b.output(op, 1)
    _emit_pair(b, op, values, indices, lambda: torch.topk(x, *arguments))
    return [values, indices]


@kernel("Sort")
def sort(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: exact values and their indices, equal values in their order."""
    x, dim, descending = inputs[0], op.attr("dim"), op.attr("descending")
    values, indices = b.output(op, 0), b.output(op, 1)
    _emit_pair(
        b, op, values, indices, partial(torch.sort, x, dim=dim, descending=descending, stable=True)
    )
    return [values, indices]


def _emit_pair(
    b: Emitter,
    op: Op,
    values: Tensor,
    indices: Tensor,
    function: Callable[[], tuple[Tensor, Tensor]],
) -> None:
    def step() -> None:
        first, second = function()
        values.copy_(first)
        indices.copy_(second)

    b.emit(step)
    b.finish(values, b.spec(op.outputs[0]).format)


@kernel("CumSum")
def cumsum(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: running sums in float32, each rounded once."""
    x, dim = inputs[0], op.attr("dim")
    return [b.compute(op, lambda: torch.cumsum(x, dim))]


@kernel("Full")
def full(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: the value rounded to the output format."""
    out = b.output(op)
    b.emit(partial(out.fill_, op.attr("value")))
    b.finish(out, b.spec(op.outputs[0]).format)
    return [out]


@kernel("Arange")
def arange(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: start + i * step, rounded once."""
    bounds = (op.attr("start"), op.attr("end"), op.attr("step"))
    return [b.compute(op, lambda: torch.arange(*bounds, dtype=torch.float64))]
