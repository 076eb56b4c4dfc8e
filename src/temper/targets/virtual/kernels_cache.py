"""Host kernels of decoding: caches that are written in place, and attention over them.

A cache is state: its tensor outlives the call, and these kernels return the tensor that they
changed. A slot of -1 says that the user is idle: nothing is written and the result is zeros, as
ttnn skips it.
"""

from __future__ import annotations

import torch

from temper.program import Op
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.fidelity import Part, products, take_part
from temper.targets.virtual.kernels_matrix import accumulate_bfloat16
from temper.targets.virtual.values import holds, round_

Tensor = torch.Tensor


def _incoming(b: Emitter, op: Op, new: Tensor) -> Tensor:
    """What is written, in the format of the cache."""
    target = b.spec(op.inputs[0]).format
    if holds(target, b.spec(op.inputs[1]).format):
        return new
    rounded = b.empty(new.shape)
    b.emit(lambda: round_(rounded.copy_(new), target))
    return rounded


@kernel("FillCache")
def fill_cache(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: the first rows of one user's part of the cache, rounded to the cache's format."""
    cache, new = inputs[0], _incoming(b, op, inputs[1])
    target = cache[op.attr("batch_index")][:, : new.shape[2]]
    source = new[0]
    b.emit(lambda: target.copy_(source))
    return [cache]


@kernel("UpdateCache")
def update_cache(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: row slots[u] of user u's part of the cache, rounded to the cache's format."""
    cache, new, slots = inputs[0], _incoming(b, op, inputs[1]), inputs[2]
    users = torch.arange(cache.shape[0])
    rows = new[0]

    def write() -> None:
        busy = slots >= 0
        if bool(busy.all()):
            cache[users, :, slots] = rows
        else:
            cache[users[busy], :, slots[busy]] = rows[busy]

    b.emit(write)
    return [cache]


@kernel("SdpaDecode")
def sdpa_decode(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: as Sdpa, for one query a user over its keys 0 to slots[u], or the last ``window`` of
    them: q and the probabilities are masked as in0, k and v as in1; scores and softmax in float32;
    the probabilities are rounded to bfloat16; the result is rounded once."""
    q, k, v, slots = inputs
    _, users, heads, depth = q.shape
    groups = k.shape[1]
    formats = [b.spec(name).format for name in op.inputs[:3]]
    scale = op.attr("scale") if op.attr("scale") is not None else depth**-0.5
    window = op.attr("window")
    rounded = b.exact_accumulation and not op.attr("fp32_acc")
    scoring = products(op.attr("fidelity"), formats[0], formats[1])
    mixing = products(op.attr("fidelity"), "bfloat16", formats[2])
    places = torch.arange(k.shape[2])
    out = b.output(op)
    target = out.view(users, groups, heads // groups, v.shape[-1])

    def attend() -> None:
        last = int(slots.max())
        if last < 0:
            out.zero_()
            return
        first = max(0, int(slots.min()) + 1 - window) if window else 0
        keys, values = k[:, :, first : last + 1], v[:, :, first : last + 1]
        rows = q.view(users, groups, heads // groups, depth)
        scores = _product(rows, keys.transpose(-1, -2), scoring, rounded).mul_(scale)
        open_ = places[first : last + 1] <= slots[:, None]
        if window:
            open_ &= places[first : last + 1] > slots[:, None] - window
        if not bool(open_.all()):
            scores.masked_fill_(~open_[:, None, None], float("-inf"))
        shares = torch.softmax(scores, -1)
        if bool((slots < 0).any()):
            shares.masked_fill_((slots < 0)[:, None, None, None], 0.0)
        target.copy_(_product(round_(shares, "bfloat16"), values, mixing, rounded))

    b.emit(attend)
    b.finish(out, b.spec(op.outputs[0]).format)
    return [out]


def _product(left: Tensor, right: Tensor, parts: list[tuple[Part, Part]], rounded: bool) -> Tensor:
    pairs = [(_part(left, x), _part(right, y)) for x, y in parts]
    if rounded:
        return accumulate_bfloat16(pairs, torch.Size((*left.shape[:-1], right.shape[-1])))
    total = torch.matmul(*pairs[0])
    for pair in pairs[1:]:
        total += torch.matmul(*pair)
    return total


def _part(x: Tensor, part: Part) -> Tensor:
    if part.whole:
        return x
    held = x.contiguous()
    out = torch.empty_like(held)
    take_part(held, part, out)
    return out


@kernel("CreateQkvHeadsDecode")
def create_heads(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: (1, B, (h + 2 kv) d) to q (1, B, h, d), k and v (1, B, kv, d); values as they are."""
    x = inputs[0]
    users = x.shape[-2]
    depth = b.spec(op.outputs[0]).shape[-1]
    heads = x.reshape(1, users, -1, depth) if x.is_contiguous() else b.contiguous(x)
    heads = heads.view(1, users, -1, depth)
    q, kv = op.attr("heads"), op.attr("kv_heads")
    parts = (heads[:, :, :q], heads[:, :, q : q + kv], heads[:, :, q + kv :])
    made = []
    for index, part in enumerate(parts):
        out = b.output(op, index)
        b.emit(lambda out=out, part=part: out.copy_(part))  # type: ignore[misc]
        b.finish(out, b.spec(op.outputs[index]).format)
        made.append(out)
    return made


@kernel("ConcatHeadsDecode")
def concat_heads(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: (1, B, h, d) to (1, B, h d); values as they are."""
    return [b.contiguous(inputs[0]).view(b.spec(op.outputs[0]).shape)]
