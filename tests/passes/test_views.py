"""Views through the whole compiler: any chain of them, heads in any spelling, attention's masks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from temper.compiler.moving import moving_share
from temper.compiler.pipeline import Built, compile_model
from temper.cost import estimate
from temper.formats import pcc
from temper.targets.virtual.executor import Executor

MOVES = {"Reshape", "Permute", "Transpose", "Slice", "Repeat", "Tilize", "Untilize", "Concat"}


class Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def build(model: nn.Module, *args: torch.Tensor, level: int = 1, **options: Any) -> Built:
    inputs = tuple(a.bfloat16() if a.is_floating_point() else a for a in args)
    made = model.eval().bfloat16()
    return compile_model(made, inputs, options={"optimization_level": level, **options}).graphs[0]


def run(built: Built, *args: torch.Tensor) -> torch.Tensor:
    inputs = [a.bfloat16() if a.is_floating_point() else a for a in args]
    return Executor(built.program, built.weights).run(inputs)[0]


def kinds(built: Built) -> Counter[str]:
    return Counter(op.kind for op in built.program.ops)


def moved(built: Built) -> list[str]:
    """Moves that are more than another name for the same pages."""
    cost = estimate(built.program, traced=True)
    timed = zip(built.program.ops, cost.ops, strict=True)
    return [op.kind for op, one in timed if op.kind in MOVES and one.kernel_ns]


# --- any chain ----------------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, tuple[int, ...]]]]:
    """A shape and views of it, as names of torch's methods and their arguments."""
    shape = tuple(draw(st.lists(st.sampled_from([2, 3, 4, 32, 49]), min_size=2, max_size=4)))
    steps: list[tuple[str, tuple[int, ...]]] = []
    now = torch.empty(shape)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["reshape", "permute", "narrow", "flip", "roll", "repeat"]))
        dim = draw(st.integers(0, now.dim() - 1))
        if kind == "reshape":
            flat = now.numel()
            parts = []
            for _ in range(draw(st.integers(0, 3))):
                parts.append(
                    draw(st.sampled_from([d for d in (1, 2, 3, 4, 7, 32) if flat % d == 0]))
                )
                flat //= parts[-1]
            values = (*parts, flat)
        elif kind == "permute":
            values = tuple(draw(st.permutations(range(now.dim()))))
        elif kind == "narrow":
            start = draw(st.integers(0, now.shape[dim] - 1))
            values = (dim, start, draw(st.integers(1, now.shape[dim] - start)))
        elif kind == "flip":
            values = (dim,)
        elif kind == "roll":
            values = (draw(st.integers(1, 3)), dim)
        else:
            values = tuple(2 if i == dim else 1 for i in range(now.dim()))
        after = getattr(now, kind)(*values)
        if after.numel() > 40_000:
            continue
        steps.append((kind, values))
        now = after
    return shape, steps


@settings(derandomize=True, max_examples=25, deadline=None)
@given(chains())
def test_any_chain_of_views_is_exact_and_costs_no_more_than_its_ops(
    chain: tuple[tuple[int, ...], list[tuple[str, tuple[int, ...]]]],
) -> None:
    shape, steps = chain

    def views(x: torch.Tensor) -> torch.Tensor:
        for kind, values in steps:
            x = getattr(x, kind)(*values)
        return x * 2

    count = math.prod(shape)
    x = torch.arange(count).remainder(251).view(shape).float()
    built = build(Function(views), x)
    assert torch.equal(run(built, x).float(), views(x.bfloat16()).float())
    plain = build(Function(views), x, enable_layout_optimization=False)
    ours, theirs = (estimate(b.program, traced=True).device_ns for b in (built, plain))
    # Rolls are done by a lookup of rows, which for a handful of them can cost a launch more.
    if not any(kind == "roll" for kind, _ in steps):
        assert ours <= theirs * 1.001


# --- heads --------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Attention over a projection that is cut and joined by functions."""

    def __init__(self, cut: Any, join: Any, heads: int = 4, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(5)
        size = heads * width
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.cut, self.join, self.heads = cut, join, heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.cut(self.qkv(x), self.heads)
        return self.out(self.join(F.scaled_dot_product_attention(q, k, v)))


def timm(y: torch.Tensor, h: int) -> Any:
    b, n, c = y.shape
    return y.reshape(b, n, 3, h, c // 3 // h).permute(2, 0, 3, 1, 4).unbind(0)


def chunks(y: torch.Tensor, h: int) -> Any:
    return (p.unflatten(-1, (h, -1)).transpose(1, 2) for p in y.chunk(3, dim=-1))


def heads_outside(y: torch.Tensor, h: int) -> Any:
    """The columns of one head stand together: (h, 3, d)."""
    b, n, c = y.shape
    return y.view(b, n, h, 3, c // 3 // h).permute(3, 0, 2, 1, 4)


def innermost(y: torch.Tensor, h: int) -> Any:
    """The three alternate column by column: (h, d, 3)."""
    b, n, c = y.shape
    whole = y.view(b, n, h, c // 3 // h, 3).permute(4, 0, 2, 1, 3)
    return whole[0], whole[1], whole[2]


def flat_heads(y: torch.Tensor, h: int) -> Any:
    """Batch and heads in one axis, as nn.MultiheadAttention has them."""
    b, n, c = y.shape
    return (p.view(b, n, h, -1).transpose(1, 2).reshape(b * h, n, -1) for p in y.split(c // 3, -1))


def transposed(o: torch.Tensor) -> torch.Tensor:
    return o.transpose(1, 2).flatten(2)


def unflattened(o: torch.Tensor) -> torch.Tensor:
    return o.view(2, 4, *o.shape[1:]).permute(0, 2, 1, 3).reshape(2, o.shape[1], -1)


TOKENS = torch.randn(2, 40, 128, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("cut", "join"),
    [(timm, transposed), (chunks, transposed), (heads_outside, transposed),
     (innermost, transposed), (flat_heads, unflattened)],
)  # fmt: skip
def test_query_key_and_value_are_split_by_one_op_in_any_spelling(cut: Any, join: Any) -> None:
    model = Attention(cut, join)
    expected = model.eval()(TOKENS)
    built = build(model, TOKENS)
    found = kinds(built)
    assert (found["Matmul"], found["CreateQkvHeads"], found["ConcatHeads"]) == (2, 1, 1)
    assert moved(built) == []
    assert pcc(expected, run(built, TOKENS).float()) > 0.999


def test_heads_of_half_a_tile_are_padded_in_the_weights() -> None:
    model = Attention(timm, transposed, heads=4, width=48)
    x = torch.randn(2, 40, 192, generator=torch.Generator().manual_seed(2))
    expected = model.eval()(x)
    built = build(model, x)
    sdpa = next(op for op in built.program.ops if op.kind == "Sdpa")
    assert built.program.spec(sdpa.inputs[0]).shape == (2, 4, 40, 64)
    assert sdpa.attr("scale") == pytest.approx(48**-0.5)
    assert moved(built) == []
    assert pcc(expected, run(built, x).float()) > 0.999


@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_encoder_layer_moves_nothing_but_heads(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=batch_first).eval()
    model = Function(layer if batch_first else lambda x: layer(x.transpose(0, 1)).transpose(0, 1))
    model.layer = layer
    expected = model(TOKENS)
    built = build(model, TOKENS)
    assert kinds(built)["CreateQkvHeads"] == kinds(built)["ConcatHeads"] == 1
    assert moved(built) == []
    assert pcc(expected, run(built, TOKENS).float()) > 0.999


def test_a_sequence_in_front_of_its_batch_is_turned_at_the_door_alone() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = TOKENS.transpose(0, 1).contiguous()
    expected = model(x)
    built = build(model, x)
    assert kinds(built)["CreateQkvHeads"] == kinds(built)["ConcatHeads"] == 2
    assert len(moved(built)) == 2
    assert set(moved(built)) <= {"Transpose", "Permute"}  # whichever is modelled as faster
    assert pcc(expected, run(built, x).float()) > 0.999


def test_windows_of_a_shifted_image_are_one_gather_each_way() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        y = x.view(2, 14, 14, 64).roll((-3, -3), (1, 2))
        y = y.view(2, 2, 7, 2, 7, 64).transpose(2, 3).reshape(8, 49, 64)
        y = torch.softmax(y, 1)
        y = y.view(2, 2, 2, 7, 7, 64).transpose(2, 3).reshape(2, 14, 14, 64)
        return y.roll((3, 3), (1, 2)).view(2, 196, 64)

    x = torch.randn(2, 196, 64, generator=torch.Generator().manual_seed(3))
    built = build(Function(windows), x)
    assert kinds(built)["Embeddings"] == 2
    assert set(moved(built)) <= {"Untilize", "Slice"}
    assert pcc(windows(x), run(built, x).float()) > 0.999


# --- masks, scales, groups ----------------------------------------------------------------------

Q = torch.randn(2, 4, 64, 32, generator=torch.Generator().manual_seed(4))


def attention(built: Built) -> Any:
    return next(op for op in built.program.ops if op.kind == "Sdpa")


@pytest.mark.parametrize(
    ("mask", "causal", "operands"),
    [
        (torch.ones(2, 1, 64, 64, dtype=torch.bool), False, 3),
        (torch.zeros(1, 1, 64, 64), False, 3),
        (torch.ones(64, 64, dtype=torch.bool).tril(), True, 3),
        (torch.full((2, 1, 64, 64), torch.finfo(torch.bfloat16).min).triu(1), True, 3),
        (torch.ones(64, 64, dtype=torch.bool).tril().triu(-8), False, 4),
        (torch.linspace(-1, 0, 64 * 64).view(64, 64), False, 4),
    ],
)
def test_constant_masks_become_flags_only_where_they_say_no_more(
    mask: torch.Tensor, causal: bool, operands: int
) -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        m = mask if mask.dtype is torch.bool else mask.to(q.dtype)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=m)

    built = build(Function(attend), Q)
    assert attention(built).attr("causal") is causal
    assert len(attention(built).inputs) == operands
    assert pcc(attend(Q), run(built, Q).float()) > 0.999


def test_a_mask_that_comes_with_the_call_stays() -> None:
    def attend(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=seen[:, None, None, :].bool())

    seen = torch.ones(2, 64, dtype=torch.int64)
    seen[0, :20] = 0  # padded on the left
    built = build(Function(attend), Q, seen)
    assert len(attention(built).inputs) == 4
    assert pcc(attend(Q, seen), run(built, Q, seen).float()) > 0.999


def test_repeated_key_heads_and_scales_are_left_to_the_op() -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        k, v = ((q[:, :2] + i).unsqueeze(2).expand(2, 2, 2, 64, 32).flatten(1, 2) for i in (1, 2))
        return F.scaled_dot_product_attention(q * 0.5, k, v, scale=0.25)

    built = build(Function(attend), Q)
    assert kinds(built)["Repeat"] == 0
    assert attention(built).attr("scale") == pytest.approx(0.125)
    assert built.program.spec(attention(built).inputs[1]).shape[1] == 2
    assert pcc(attend(Q), run(built, Q).float()) > 0.999


def test_the_moving_share_counts_time_and_not_ops() -> None:
    built = build(Function(lambda x: x.transpose(1, 2) * 2), TOKENS)
    cost = estimate(built.program, traced=True)
    time = {op.kind: one.kernel_ns + one.gap_ns
            for op, one in zip(built.program.ops, cost.ops, strict=True)}  # fmt: skip
    turned = time.get("Transpose", 0.0) + time.get("Permute", 0.0)
    assert 0 < turned < sum(time.values())
    assert moving_share([(built.program, cost)]) == pytest.approx(turned / sum(time.values()))
