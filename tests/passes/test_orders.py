"""Maps that meet broadcast operands, sums, joins and images on their way through a model."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from test_views import Function, build, moved, run
from torch import nn
from torch.nn import functional as F

from temper.compiler.moving import moving_share
from temper.compiler.pipeline import compile_model
from temper.cost import estimate
from temper.formats import pcc
from temper.targets.virtual.executor import Executor

X = torch.randn(4, 64, 96, generator=torch.Generator().manual_seed(2))


class SequenceOfAnImage(nn.Module):
    """Rows of an image in front of their batch with positions added, as DETR makes them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(3, 64, 4, 4)
        self.row, self.column = nn.Parameter(torch.rand(9, 32)), nn.Parameter(torch.rand(9, 32))
        self.query = nn.Parameter(torch.rand(40, 64))
        self.layers = nn.Transformer(64, 2, 1, 1, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.stem(x)
        high, wide = h.shape[-2:]
        columns = self.column[:wide].unsqueeze(0).repeat(high, 1, 1)
        rows = self.row[:high].unsqueeze(1).repeat(1, wide, 1)
        place = torch.cat([columns, rows], -1).flatten(0, 1).unsqueeze(1)
        source = place + 0.1 * h.flatten(2).permute(2, 0, 1)
        queries = self.query.unsqueeze(1).repeat(1, x.shape[0], 1)
        return self.layers(source, queries).transpose(0, 1)


def test_a_sequence_made_of_an_image_is_taken_batch_first() -> None:
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    model = SequenceOfAnImage().eval()
    expected = model(x).detach()
    built = build(model, x)
    heads = Counter(op.kind for op in built.program.ops)
    assert heads["ConcatHeads"] >= 2  # of the decoder's own queries it is done once, at the start
    assert not {"Permute", "Transpose", "Untilize"} & set(moved(built))
    assert pcc(expected, run(built, x).float()) > 0.999
    cost = estimate(built.program, traced=True)
    assert moving_share([(built.program, cost)]) < 0.3


@pytest.mark.parametrize("function", [
    lambda x: torch.stack(x.unbind(1), 1) * 2,
    lambda x: torch.cat(x.chunk(4, -1), -1) * 2,
    lambda x: torch.cat(x.split([7, 20, 37], 1), 1) * 2,
    lambda x: torch.stack([x[..., :32], x[..., 32:64], x[..., 64:]], 2).flatten(2) * 2,
    lambda x: torch.stack(x.transpose(0, 1).unbind(1), 0).transpose(1, 1) * 2,
])  # fmt: skip
def test_parts_that_are_put_together_again_are_not_moved(function: object) -> None:
    model = Function(function)  # type: ignore[arg-type]
    built = build(model, X)
    assert moved(built) == []
    assert torch.equal(run(built, X), model(X.bfloat16()))


@pytest.mark.parametrize("function", [
    lambda x: x.permute(2, 0, 1).sum(0),
    lambda x: x.transpose(0, 1).mean(2, keepdim=True).transpose(0, 1),
    lambda x: x.permute(1, 0, 2).flatten(1).view(64, 4, 96).amax(1),
    lambda x: x.movedim(0, 2).sum((0, 1)),
])  # fmt: skip
def test_a_sum_is_taken_in_front_of_a_turn(function: object) -> None:
    model = Function(function)  # type: ignore[arg-type]
    built = build(model, X)
    assert not {"Permute", "Transpose", "Tilize"} & set(moved(built))
    expected = model(X.bfloat16().float())
    torch.testing.assert_close(run(built, X).float(), expected, rtol=1e-2, atol=1e-2)


def test_a_mean_over_an_axis_of_one_element_is_not_one_over_all() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(0).permute(0, 2, 1, 3).mean(0)

    assert torch.equal(run(build(Function(function), X), X), function(X.bfloat16()))


@pytest.mark.parametrize("shape", [(64, 1, 96), (1, 4, 96), (64, 4, 1), (1, 1, 1), (96,)])
@pytest.mark.parametrize("turned", ["first", "second"])
def test_a_small_operand_follows_the_order_of_a_large_one(
    shape: tuple[int, ...], turned: str
) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        t = x.transpose(0, 1)
        return (t - y if turned == "first" else y - t).transpose(0, 1) * 2

    y = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    built = build(Function(function), X, y)
    large = [op for op in built.program.ops if op.kind in ("Transpose", "Permute")
             and built.program.values[op.inputs[0]].shape == (4, 64, 96)]  # fmt: skip
    assert not large
    assert torch.equal(run(built, X, y), function(X.bfloat16(), y.bfloat16()))


class Scored(nn.Module):
    """Attention by hand with keys that are read both ways and scores that get something added."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.q, self.k, self.v, self.out = (nn.Linear(128, 128) for _ in range(4))
        self.place = nn.Parameter(torch.randn(64, 96))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, _ = x.shape

        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, rows, 2, 64).transpose(1, 2).reshape(2 * batch, rows, 64)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = torch.bmm(q, k.transpose(1, 2) / 8) + (k @ self.place)[..., :rows].sigmoid()
        y = torch.bmm(torch.softmax(scores, -1), v).view(batch, 2, rows, 64)
        return self.out(y.permute(0, 2, 1, 3).reshape(batch, rows, 128))


def test_heads_that_are_read_turned_and_upright_are_split_once() -> None:
    x = torch.randn(2, 64, 128, generator=torch.Generator().manual_seed(9))
    model = Scored().eval()
    expected = model(x).detach()
    built = build(model, x)
    found = Counter(op.kind for op in built.program.ops)
    assert found["CreateQkvHeads"] == found["ConcatHeads"] == 1
    assert not {"Untilize", "Tilize", "Reshape"} & set(moved(built))
    assert pcc(expected, run(built, x).float()) > 0.999


IMAGE = torch.randn(2, 8, 12, 16, generator=torch.Generator().manual_seed(6)).bfloat16().float()
SPELLINGS = {
    "unflatten and movedim": lambda x: x.unflatten(3, (4, 4)).movedim(-1, 1).flatten(2) + 1,
    "chunks the other way round": lambda x: torch.cat(x.chunk(3, 2)[::-1], 2),
    "fold of unfold": lambda x: F.fold(F.unfold(x, 3, padding=1), (12, 16), 3, padding=1),
    "rolls": lambda x: x.roll((1, -3), (1, 3)) + x,
    "every other one, backwards": lambda x: x.flip(1, 3)[..., ::2].permute(3, 0, 2, 1),
    "places chosen": lambda x: x[:, torch.tensor([0, 3]), :, torch.tensor([1, -1])] * 1,
    "means added to every pixel": lambda x: (
        x.permute(2, 3, 0, 1) + x.mean((2, 3))[None, None]
    ).permute(2, 3, 0, 1),
    "parts that were changed": lambda x: torch.stack([a * 2 for a in x.unbind(1)], -1).sum(2),
}


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", SPELLINGS)
def test_odd_spellings_give_what_torch_gives(name: str, level: int) -> None:
    model = Function(SPELLINGS[name])
    options = {"optimization_level": level, "compile_cache": False}
    built = compile_model(model, (IMAGE,), options=options).graphs[0]
    ours = Executor(built.program, built.weights).run([IMAGE])[0]
    torch.testing.assert_close(ours, model(IMAGE), rtol=1e-2, atol=2e-2)
