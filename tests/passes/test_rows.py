"""Row-wise work on flat rows: the same numbers, without regrouping ragged batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.compiler import pipeline
from temper.compiler.pipeline import Built, compile_model
from temper.cost import estimate
from temper.formats import pcc
from temper.program import Op
from temper.targets.virtual.executor import Executor


class Block(nn.Module):
    """A ConvNeXt block: a depthwise convolution, then rows, and back."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale = nn.LayerNorm(width), nn.Parameter(torch.rand(width))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def stage() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 64, 4, 4), Block(), Block(), nn.Conv2d(64, 32, 2, 2))


class Gated(nn.Module):
    """Batches of 49 rows that are cut, gated and joined along their columns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.stem, self.one, self.two = (
            nn.Conv2d(3, 64, 4, 4),
            nn.Linear(64, 128),
            nn.Conv2d(64, 32, 1),
        )
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.stem(x).flatten(2).transpose(1, 2)
        a, b = self.one(self.norm(rows)).chunk(2, -1)
        both = torch.cat((a * torch.sigmoid(b), rows), -1).softmax(-1)[..., :64]
        return self.two(both.transpose(1, 2).reshape(-1, 64, 7, 7))


def built(model: nn.Module, x: torch.Tensor, **options: Any) -> Built:
    ready = (model.eval().bfloat16(), (x.bfloat16(),))
    return compile_model(*ready, options={"optimization_level": 1, **options}).graphs[0]


def run(made: Built, x: torch.Tensor) -> torch.Tensor:
    return Executor(made.program, made.weights).run([x.bfloat16()])[0]


def regroupings(made: Built) -> list[Op]:
    """Reshapes that move tiles."""
    cost = estimate(made.program, traced=True)
    timed = zip(made.program.ops, cost.ops, strict=True)
    return [op for op, one in timed if op.kind == "Reshape" and one.kernel_ns]


MODELS = {
    "two blocks": (stage, (2, 3, 56, 56)),
    "cut and joined": (Gated, (4, 3, 28, 28)),
}


@pytest.mark.parametrize("name", MODELS)
def test_rows_between_convolutions_stay_flat_and_keep_every_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, shape = MODELS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    expected = make().eval()(x)
    ours = built(make(), x)
    plain = [p for p in pipeline.PROGRAM_PASSES if p.name != "flatten-rows"]
    monkeypatch.setattr(pipeline, "PROGRAM_PASSES", tuple(plain))
    before = built(make(), x)
    assert len(regroupings(ours)) < len(regroupings(before))
    assert torch.equal(run(ours, x), run(before, x))
    assert pcc(expected, run(ours, x).float()) > 0.999
    ns = [estimate(one.program, traced=True).device_ns for one in (ours, before)]
    assert ns[0] < ns[1]


def test_batches_of_whole_tiles_are_left_as_they_are() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU())
    made = built(model, torch.randn(2, 64, 64))
    assert next(p for p in made.passes if p.name == "flatten-rows").hits == 0


# --- rows joined ----------------------------------------------------------------------------------


class Tokens(nn.Module):
    """A class token in front of patches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.stem, self.token = nn.Conv2d(3, 64, 4, 4), nn.Parameter(torch.randn(1, 1, 64))
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.stem(x).flatten(2).transpose(1, 2)
        return self.norm(torch.cat((self.token.expand(x.shape[0], -1, -1), rows), 1))


class Merging(nn.Module):
    """Four neighbours side by side, as between the stages of a Swin transformer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.norm, self.less = nn.LayerNorm(256), nn.Linear(256, 128, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.view(x.shape[0], 12, 12, 64)
        four = [y[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.less(self.norm(torch.cat(four, -1).view(x.shape[0], -1, 256)))


@pytest.mark.parametrize(
    ("make", "shape", "off"),
    [(Tokens, (4, 3, 28, 28), "join-rows"), (Merging, (2, 144, 64), "join-columns")],
)
def test_joined_rows_are_exact_and_moved_once(
    make: Any, shape: tuple[int, ...], off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    expected = make().eval()(x)
    ours = built(make(), x)
    for name in ("PROGRAM_PASSES", "GRAPH_PASSES"):
        kept = tuple(p for p in getattr(pipeline, name) if p.name != off)
        monkeypatch.setattr(pipeline, name, kept)
    before = built(make(), x)
    assert next(p.hits for p in ours.passes if p.name == off) == 1
    assert torch.equal(run(ours, x), run(before, x))
    assert pcc(expected, run(ours, x).float()) > 0.999
    ns = [estimate(one.program, traced=True).device_ns for one in (ours, before)]
    assert ns[0] < ns[1]


class Upscaler(nn.Module):
    """A pixel shuffle between convolutions, with a bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.wide, self.out = nn.Conv2d(32, 128, 3, padding=1), nn.Conv2d(32, 8, 3, padding=1)
        self.stem = nn.Conv2d(3, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(F.pixel_shuffle(self.wide(self.stem(x)), 2)))


def test_a_pixel_shuffle_moves_runs_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 12, 16, generator=torch.Generator().manual_seed(3))
    expected = Upscaler().eval()(x)
    ours = built(Upscaler(), x)
    kept = tuple(p for p in pipeline.GRAPH_PASSES if p.name != "shuffle-channels")
    monkeypatch.setattr(pipeline, "GRAPH_PASSES", kept)
    before = built(Upscaler(), x)
    assert torch.equal(run(ours, x), run(before, x))
    assert pcc(expected, run(ours, x).float()) > 0.999
    ns = [estimate(one.program, traced=True).device_ns for one in (ours, before)]
    assert ns[0] < 0.8 * ns[1]
