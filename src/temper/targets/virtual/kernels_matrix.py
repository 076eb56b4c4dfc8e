"""Host kernels of the matrix engine: matmul and attention.

Rule of both: operands are masked as the fidelity says (``fidelity.py``; weights once per version),
products are summed in float32, bias and activations follow in float32, and the result is rounded
once to its format. With ``fp32_acc`` off the chip also rounds Dest to bfloat16 after every 16-deep
step of K (FACTS 3.8). The fast rule leaves that out, and is therefore optimistic for long sums:
on random operands its relative error stays at 1.7e-3, while the exact rule's is 2.7e-3 at K = 64,
8e-3 at 768 and 1.6e-2 at 3072. Exact accumulation (the option ``exact_accumulation``)
follows the steps, at 2 to 3 times the time of a large matmul; every verdict on accuracy uses it.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest

import torch

from temper.program import Op
from temper.targets.virtual import native
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.fidelity import Part, products, take_part
from temper.targets.virtual.functions import Chain, apply, stages
from temper.targets.virtual.kernels_data import as_shape
from temper.targets.virtual.values import round_

Tensor = torch.Tensor
_DEST_STEP = 16  # depth of one MVMUL
# With so few rows the product reads the weight once, along its columns: 1.6 times faster so.
_FEW_ROWS = 4
# Above this many outer batches a copy is cheaper than one call a batch.
_MAX_BATCH_CALLS = 16


def masked(b: Emitter, name: str | None, x: Tensor, part: Part, *, alone: bool = True) -> Tensor:
    """The operand's part: computed once for constants, at every replay otherwise.

    ``alone`` says that no other part of this operand is taken, so that a constant which only this
    op reads may be rewritten in its own memory.
    """
    if part.whole:
        return x
    if name is not None and b.is_constant(name):
        if alone and x.is_contiguous() and b.sole_use(name):
            b.prepare(lambda: take_part(x, part, x))
            return x
        order = sorted(range(x.dim()), key=x.stride, reverse=True)
        base = x.permute(order)  # the weight in its own memory order, whatever the view of it
        if base.is_contiguous():
            held = torch.empty(base.shape, dtype=torch.float32)
            b.prepare(lambda: take_part(base, part, held))
            return held.permute([order.index(d) for d in range(x.dim())])
    held = b.contiguous(x)
    # A copy of ours may be masked in place, but a remainder needs the whole value beside it.
    out = b.empty(x.shape) if held is x or part.remainder else held
    b.emit(partial(take_part, held, part, out))
    return out


def _merge_batch(x: Tensor) -> Tensor | None:
    """(..., M, K) as (B, M, K) without a copy, or None."""
    try:
        return x.view(-1, *x.shape[-2:])
    except RuntimeError:
        return None


def emit_products(
    b: Emitter, out: Tensor, pairs: list[tuple[Tensor, Tensor]], rounded: bool
) -> None:
    """Emit out = sum of a @ b over the pairs; ``rounded`` follows the bfloat16 Dest."""
    if rounded:
        b.emit(lambda: out.copy_(accumulate_bfloat16(pairs, out.shape)))
        return
    for number, (left, right) in enumerate(pairs):
        _emit_product(b, out, left, right, add=number > 0)


def accumulate_bfloat16(pairs: list[tuple[Tensor, Tensor]], shape: torch.Size) -> Tensor:
    """Sum over K in 16-deep float32 steps, Dest rounded to bfloat16 after each of them."""
    depth = pairs[0][0].shape[-1]
    dest = torch.zeros(shape, dtype=torch.float32)
    for start in range(0, depth, _DEST_STEP):
        stop = min(start + _DEST_STEP, depth)
        for left, right in pairs:
            dest += torch.matmul(left[..., start:stop], right[..., start:stop, :])
        round_(dest, "bfloat16")
    return dest


def _emit_product(b: Emitter, out: Tensor, left: Tensor, right: Tensor, add: bool) -> None:
    flat = _merge_rows(out)
    if flat is not None and all(size == 1 for size in right.shape[:-2]):
        matrix = (
            right.view(right.shape[-2:])
            if right.is_contiguous()
            else right[(0,) * (right.dim() - 2)]
        )
        rows = _merge_rows(left)
        if rows is None:
            rows = b.contiguous(left).view(-1, left.shape[-1])
        b.emit(
            partial(torch.addmm, flat, rows, matrix, out=flat)
            if add
            else partial(torch.mm, rows, matrix, out=flat)
        )
        return
    batch = out.shape[:-2]
    left = left.expand(*batch, *left.shape[-2:])
    right = right.expand(*batch, *right.shape[-2:])
    _emit_batched(b, out, left, right, add)


def _merge_rows(x: Tensor) -> Tensor | None:
    """(..., M, K) as (rows, K) if the GEMM can read it in place."""
    if x.dim() == 2:
        return x
    try:
        return x.view(-1, x.shape[-1])
    except RuntimeError:
        return None


def _emit_batched(b: Emitter, out: Tensor, left: Tensor, right: Tensor, add: bool) -> None:
    """bmm over all batches at once, or a call for each outer batch when heads are views."""
    o, x, y = (_merge_batch(t) for t in (out, left, right))
    if o is not None and x is not None and y is not None:
        b.emit(partial(torch.baddbmm, o, x, y, out=o) if add else partial(torch.bmm, x, y, out=o))
    elif out.dim() > 3 and out.shape[0] <= _MAX_BATCH_CALLS:
        for index in range(out.shape[0]):
            _emit_batched(b, out[index], left[index], right[index], add)
    elif o is None:
        whole = b.contiguous(out) if add else b.empty(out.shape)
        _emit_batched(b, whole, left, right, add)
        b.emit(lambda: out.copy_(whole))
    else:
        copies = [b.contiguous(t) for t in (left, right)]
        _emit_batched(b, out, copies[0], copies[1], add)


def emit_epilogue(
    b: Emitter, out: Tensor, bias: Tensor | None, chain: Chain, format_name: str
) -> None:
    """Emit, in place: + bias along the last dimension, the activations, the one rounding."""
    step = native.epilogue(out, out, bias, chain, format_name)
    if step is not None:
        b.emit_fused(step, out, format_name)
        return
    if bias is not None:
        b.emit(partial(out.add_, bias))
    if chain:
        b.emit(lambda: out.copy_(apply(out, chain)))
    b.finish(out, format_name)


def _column_major(b: Emitter, weight: Tensor) -> Tensor:
    """The same matrix with its columns contiguous in memory, copied once per version."""
    if weight.dim() != 2 or not weight.is_contiguous():
        return weight
    held = torch.empty(weight.shape[1], weight.shape[0], dtype=torch.float32)
    b.prepare(lambda: held.copy_(weight.t()))
    return held.t()


def _zip_right(first: torch.Size, second: torch.Size) -> list[tuple[int, int]]:
    """Sizes of two batch shapes side by side, aligned at the right as broadcasting does."""
    return list(zip_longest(reversed(first), reversed(second), fillvalue=1))[::-1]


@kernel("Matmul")
def matmul(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: this file's; bias (N) is added before the activations."""
    left = inputs[0] if inputs[0].dim() > 1 else inputs[0].unsqueeze(0)
    right = inputs[1] if inputs[1].dim() > 1 else inputs[1].unsqueeze(1)
    parts = products(op.attr("fidelity"), *(b.spec(name).format for name in op.inputs[:2]))
    rounded = b.exact_accumulation and not op.attr("fp32_acc")
    out = b.output(op)
    pairs = []
    for left_part, right_part in parts:
        x = masked(b, op.inputs[0], left, left_part, alone=len(parts) == 1)
        y = masked(b, op.inputs[1], right, right_part, alone=len(parts) == 1)
        pairs.append(
            (
                x.transpose(-1, -2) if op.attr("transpose_a") else x,
                y.transpose(-1, -2) if op.attr("transpose_b") else y,
            )
        )
    if b.is_constant(op.inputs[1]) and out.numel() <= _FEW_ROWS * out.shape[-1]:
        pairs = [(x, _column_major(b, y)) for x, y in pairs]
    rows, columns = pairs[0][0].shape[-2], pairs[0][1].shape[-1]
    batch = [max(sizes) for sizes in _zip_right(pairs[0][0].shape[:-2], pairs[0][1].shape[:-2])]
    full = out.view(*batch, rows, columns)
    emit_products(b, full, pairs, rounded)
    bias = as_shape(b, inputs[2], (-1,)) if len(inputs) > 2 else None
    emit_epilogue(b, out, bias, stages(op.attr("activations")), b.spec(op.outputs[0]).format)
    return [out]


@kernel("SparseMatmul")
def sparse_matmul(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: as Matmul, for each expert whose sparsity is not zero; zeros for the others."""
    left, right, sparsity = inputs
    parts = products(op.attr("fidelity"), *(b.spec(name).format for name in op.inputs[:2]))
    rounded = b.exact_accumulation and not op.attr("fp32_acc")
    pairs = [
        (
            masked(b, op.inputs[0], left, x, alone=len(parts) == 1),
            masked(b, op.inputs[1], right, y, alone=len(parts) == 1),
        )
        for x, y in parts
    ]
    out = b.output(op)
    flags = sparsity.view(-1)

    def compute() -> None:
        for expert, flag in enumerate(flags.tolist()):
            if not flag:
                out[expert].zero_()
                continue
            chosen = [(x[expert] if x.dim() == 3 else x, y[expert]) for x, y in pairs]
            if rounded:
                out[expert].copy_(accumulate_bfloat16(chosen, out.shape[1:]))
                continue
            torch.mm(*chosen[0], out=out[expert])
            for x, y in chosen[1:]:
                out[expert].addmm_(x, y)

    b.emit(compute)
    b.finish(out, b.spec(op.outputs[0]).format)
    return [out]


@kernel("Sdpa")
def sdpa(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: softmax(q k^T * scale + mask) v; q and the probabilities are masked as in0, k and v as
    in1; scores and softmax in float32; the probabilities are rounded to bfloat16, as the chip keeps
    them between its two matmuls; the result is rounded once. A query whose keys are all closed by
    minus infinity gives zeros, as torch defines it (what ttnn gives there is uncertain): padded
    batches would carry a NaN into every row otherwise."""
    q, k, v = inputs[:3]
    mask = inputs[3] if len(inputs) > 3 else None
    formats = [b.spec(name).format for name in op.inputs[:3]]
    batch, heads, queries, depth = q.shape
    keys, shared = k.shape[-2], heads // k.shape[1]
    scale = op.attr("scale") if op.attr("scale") is not None else depth**-0.5
    rounded = b.exact_accumulation and not op.attr("fp32_acc")
    if op.attr("causal"):
        mask = torch.full((queries, keys), float("-inf"), dtype=torch.float32).triu_(1)
    scores = b.empty((batch, heads, queries, keys))
    pairs = [
        (
            _grouped(masked(b, op.inputs[0], q, x, alone=False), shared),
            _shared(masked(b, op.inputs[1], k, y, alone=False), shared).transpose(-1, -2),
        )
        for x, y in products(op.attr("fidelity"), formats[0], formats[1])
    ]
    emit_products(b, _grouped(scores, shared), pairs, rounded)
    _emit_probabilities(b, scores, scale, mask)
    # (B, S, h, d) in memory, so that joining the heads afterwards is a view.
    held = b.empty((batch, queries, heads, v.shape[-1]))
    out = held.transpose(1, 2)
    pairs = [
        (
            _grouped(masked(b, None, scores, x), shared),
            _shared(masked(b, op.inputs[2], v, y, alone=False), shared),
        )
        for x, y in products(op.attr("fidelity"), "bfloat16", formats[2])
    ]
    emit_products(b, _grouped(out, shared), pairs, rounded)
    b.finish(held, b.spec(op.outputs[0]).format)
    return [out]


def _grouped(x: Tensor, shared: int) -> Tensor:
    """(B, h, S, d) as (B, kv, shared, S, d) when several query heads share a key head."""
    return x if shared == 1 else x.view(x.shape[0], -1, shared, *x.shape[2:])


def _shared(x: Tensor, shared: int) -> Tensor:
    return x if shared == 1 else x.unsqueeze(2)


def _emit_probabilities(b: Emitter, scores: Tensor, scale: float, mask: Tensor | None) -> None:
    step = native.softmax(scores, scores, scale, mask, "bfloat16", "attention")
    if step is not None:
        b.emit(step)
        return

    def compute() -> None:
        y = scores * scale if mask is None else scores * scale + mask
        closed = (y == float("-inf")).all(-1, keepdim=True)
        scores.copy_(torch.softmax(y, -1).masked_fill_(closed, 0.0))
        round_(scores, "bfloat16")

    b.emit(compute)
