"""Grouped and depthwise convolutions over runs of channels, against torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.cost import estimate

_CASES = {
    "depthwise 5x5": (nn.Conv2d(960, 960, 5, padding=2, groups=960), 7),
    "depthwise with a ragged end": (nn.Conv2d(1000, 1000, 5, padding=2, groups=1000), 7),
    "groups of sixteen": (nn.Conv2d(1024, 1024, 5, 1, 2, groups=64), 7),
}


class _Net(nn.Module):
    """A grouped convolution between pointwise ones."""

    def __init__(self, grouped: nn.Conv2d) -> None:
        super().__init__()
        torch.manual_seed(0)
        width = grouped.in_channels
        self.steps = nn.Sequential(
            nn.Conv2d(16, width, 1), grouped, nn.ReLU6(), nn.Conv2d(grouped.out_channels, 16, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)


def _convolutions(net: nn.Module, x: torch.Tensor, level: int):
    built = compile_model(
        net.to(torch.bfloat16).eval(), (x.to(torch.bfloat16),),
        options={"optimization_level": level, "chip": "n150", "enable_trace": True,
                 "compile_cache": False},
    )  # fmt: skip
    program = built.programs[0]
    return [op for op in program.ops if op.kind == "Conv2d"], estimate(program, traced=True)


@pytest.mark.parametrize("name", _CASES)
def test_runs_of_channels_give_what_the_whole_gives(name):
    grouped, size = _CASES[name]
    net, x = _Net(grouped), torch.randn(1, 16, size, size)
    torch._dynamo.reset()
    with torch.no_grad():
        wanted = net.float()(x)
        found, _ = _convolutions(net, x, 2)
        made = torch.compile(net, backend="tt", options={"optimization_level": 2, "chip": "n150"})(
            x.to(torch.bfloat16)
        )
    assert len(found) > 1
    assert sum(op.attr("groups") for op in found) == grouped.groups
    assert sum(op.attr("out_channels") for op in found) == grouped.out_channels
    assert all(op.attr("in_channels") % 32 == 0 for op in found[:-1])
    assert (made.float() - wanted).abs().max() <= 0.03 * wanted.abs().max()


def test_runs_read_less_than_the_dense_weights_would():
    # ttnn spreads 25 x 960 depthwise weights to 25 x 960 x 960: 46 MB, 0.16 ms at DRAM's peak.
    grouped, size = _CASES["depthwise 5x5"]
    found, cost = _convolutions(_Net(grouped), torch.zeros(1, 16, size, size), 2)
    assert len(found) > 1
    dense_ns = 25 * 960 * 960 * 2 / 288
    assert cost.device_ns < 2.5 * dense_ns


def test_few_channels_stay_whole():
    found, _ = _convolutions(
        _Net(nn.Conv2d(64, 64, 3, padding=1, groups=64)), torch.zeros(1, 16, 28, 28), 2
    )
    assert len(found) == 1


def test_level_0_leaves_groups_as_they_are():
    grouped, size = _CASES["depthwise 5x5"]
    found, _ = _convolutions(_Net(grouped), torch.zeros(1, 16, size, size), 0)
    assert [op.attr("groups") for op in found if op.attr("groups") > 1] == [960]
