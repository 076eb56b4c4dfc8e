"""Averages of whole images and gates beside them: matmuls with constants, against torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.chips import get
from temper.compiler.pipeline import compile_model
from temper.cost import estimate
from temper.lowering.averages import _averaging


class _Gated(nn.Module):
    """A convolution, a gate of each sample and channel, and a head over the average."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.down, self.up = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)
        self.head = nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = F.relu(self.stem(x))
        x = torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1))))) * x
        return self.head(x.mean((2, 3))), x


def _compiled(model: nn.Module, x: torch.Tensor, level: int = 2, **options: object):
    built = compile_model(
        model.to(torch.bfloat16).eval(), (x.to(torch.bfloat16),),
        options={"optimization_level": level, "chip": "n150", "enable_trace": True,
                 "compile_cache": False, **options},
    )  # fmt: skip
    return built.programs[0]


@pytest.mark.parametrize("pixels", [1, 49, 64, 784])
@pytest.mark.parametrize("slices", [1, 7])
def test_weights_of_an_average_are_bfloat16_and_sum_to_one(pixels, slices):
    images = 7
    matrix = _averaging(images, pixels, slices)
    assert torch.equal(matrix, matrix.to(torch.bfloat16).float())
    whole = matrix if slices == 1 else matrix.permute(1, 0, 2).reshape(images, -1)
    assert torch.equal(whole.double().sum(1), torch.ones(images, dtype=torch.float64))
    spread = whole[whole > 0]
    assert spread.numel() == images * pixels
    assert (spread * pixels - 1).abs().max() <= 2.0**-7  # a step of bfloat16


@pytest.mark.parametrize(("batch", "size", "channels", "level"), [
    (1, (7, 7), 32, 2), (3, (7, 7), 40, 2), (4, (16, 16), 32, 1), (8, (14, 14), 64, 2),
])  # fmt: skip
def test_gates_and_averages_equal_torch(batch, size, channels, level):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = _Gated(channels), torch.randn(batch, 3, *size)
    with torch.no_grad():
        wanted = model(x)
        made = torch.compile(
            model.to(torch.bfloat16), backend="tt",
            options={"optimization_level": level, "chip": "n150"},
        )(x.to(torch.bfloat16))  # fmt: skip
    for mine, right in zip(made, wanted, strict=True):
        assert (mine.float() - right).abs().max() <= 0.02 * right.abs().max()


@pytest.mark.parametrize("batch", [1, 64])
def test_a_gate_moves_no_image(batch):
    program = _compiled(_Gated(64), torch.zeros(batch, 3, 28, 28))
    # The result itself is an image in torch's order: one permute at the end.
    assert [op.kind for op in program.ops].count("Permute") <= 1
    kinds = [op.kind for op in program.ops]
    last = kinds.index("Permute") if "Permute" in kinds else len(kinds)
    assert not {"Untilize", "Permute", "Transpose"} & set(kinds[2:last])


@pytest.mark.parametrize(("board", "batch"), [("n150", 16), ("p150", 16)])
def test_an_average_of_ragged_images_costs_less_than_reading_them_twice(board, batch):
    model = nn.Sequential(nn.Conv2d(3, 1024, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    program = _compiled(model, torch.zeros(batch, 3, 7, 7), chip=board)
    cost = estimate(program, traced=True)
    averages = [
        one.kernel_ns
        for op, one in zip(program.ops, cost.ops, strict=True)
        if program.spec(op.outputs[0]).matrix[1] == batch and one.bound != "host"
    ]
    image_bytes = batch * 49 * 1024 * 2
    assert sum(averages) <= 2e3 + 20 * image_bytes / get(board).dram_peak_gbps


def test_equal_gates_share_their_constants():
    torch.manual_seed(0)
    model = nn.Sequential(_Twice(32), _Twice(32))
    program = _compiled(model, torch.zeros(4, 32, 14, 14))
    names = [path for path in program.weights.values() if path.startswith("constant.")]
    assert len(names) == 2  # one to average, one to spread


class _Twice(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(x)
        return x * torch.sigmoid(x.mean((2, 3), keepdim=True))
