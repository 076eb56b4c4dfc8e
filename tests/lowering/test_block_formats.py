"""Block formats for activations and convolution weights: where they stand, how exact they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import temper
from temper.compiler.pipeline import compile_model
from temper.formats.measures import pcc

_BFP8 = {"activation_dtype": "bfloat8_b", "conv_weight_dtype": "bfloat8_b"}


class _Residual(nn.Module):
    """A stem, a pool, two residual blocks and a classifier, well conditioned."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32)
            )
            for _ in range(2)
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(x))
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return _Residual().eval()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_block_floats_keep_a_residual_network_exact_enough(model, level):
    x = torch.randn(2, 3, 64, 64)
    wanted = model(x)
    compiled = temper.compile(model.to(torch.bfloat16), optimization_level=level, **_BFP8)
    got = compiled(x.to(torch.bfloat16)).float()
    model.float()
    assert pcc(wanted, got) >= 0.99


def test_block_floats_of_few_phases_keep_a_calibrated_network_at_099():
    torch.manual_seed(0)
    steps: list[nn.Module] = [nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    for _ in range(6):
        steps += [nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    net = nn.Sequential(*steps, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 100))
    images = nn.functional.interpolate(torch.randn(16, 3, 8, 8), size=48, mode="bilinear")
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the mean of what is seen: statistics of these images
    with torch.no_grad():
        net.train()(images)
        wanted = net.eval()(images[:4])
        compiled = temper.compile(
            net.to(torch.bfloat16), level=2, activation_dtype="bfloat8_b",
            conv_weight_dtype="bfloat8_b", math_fidelity="LoFi",
        )  # fmt: skip
        got = compiled(images[:4].to(torch.bfloat16))
    assert pcc(wanted, got) >= 0.99


def test_convolution_weights_take_their_own_option_and_not_the_matmuls(model):
    def formats(**options: str) -> dict[str, set[str]]:
        lowered = compile_model(
            model.to(torch.bfloat16),
            (torch.zeros(1, 3, 64, 64, dtype=torch.bfloat16),),
            options={"optimization_level": 1, **options},
        ).programs[0]
        found: dict[str, set[str]] = {}
        made = {name for op in lowered.ops for name in op.outputs}
        for op in lowered.ops:
            # An average multiplies a constant by an activation: it has no weight.
            if op.kind in ("Conv2d", "Matmul") and op.inputs[1] not in made:
                columns = lowered.spec(op.inputs[1]).shape[-1]
                kind = "head" if columns == 10 else "conv"
                found.setdefault(kind, set()).add(lowered.spec(op.inputs[1]).format)
        return found

    assert formats(conv_weight_dtype="bfloat8_b") == {"conv": {"bfloat8_b"}, "head": {"bfloat16"}}
    matmuls = formats(experimental_weight_dtype="bfloat8_b")
    assert matmuls == {"conv": {"bfloat16"}, "head": {"bfloat8_b"}}
    assert formats(activation_dtype="bfloat8_b")["conv"] == {"bfloat16"}


def test_phases_that_multiply_bits_which_the_formats_lack_are_left_out(model):
    def fidelities(**options: str) -> set[str]:
        program = compile_model(
            model.to(torch.bfloat16),
            (torch.zeros(1, 3, 64, 64, dtype=torch.bfloat16),),
            options={"optimization_level": 1, **options},
        ).programs[0]
        # The stem reads bfloat16 rows.
        convs = [op for op in program.ops if op.kind == "Conv2d" and op.attr("kernel") == [3, 3]]
        return {op.attr("fidelity") for op in convs}

    assert fidelities() == {"HiFi4"}
    assert fidelities(conv_weight_dtype="bfloat8_b") == {"HiFi4"}
    assert fidelities(**_BFP8) == {"HiFi2"}
    assert fidelities(**{**_BFP8, "conv_weight_dtype": "bfloat4_b"}) == {"LoFi"}
    assert fidelities(**_BFP8, math_fidelity="HiFi3") == {"HiFi3"}
