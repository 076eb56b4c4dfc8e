"""Whole compiled programs against the slow interpreter: equal programs give equal bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import temper
from temper.compiler.pipeline import Built, compile_model
from temper.frontdoor.loaded import LoadedGraph
from temper.targets.virtual.reference import interpret


class Block(nn.Module):
    """Attention with a residual and a norm, then two linears."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 48), nn.Linear(48, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(1, 9, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.norm(x + self.out(heads.transpose(1, 2).reshape(1, 9, 32)))
        return self.down(torch.nn.functional.gelu(self.up(x)))


def pictures() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(48, 10),
    )  # fmt: skip


# Small on purpose: the interpreter sums in float64, the kernels in float32, so that among many
# thousand sums one may lie where the two round to different neighbours.
MODELS = {
    "transformer": (Block, (1, 9, 32)),
    "convolutions": (pictures, (2, 3, 16, 16)),
}


def built(name: str, **options: object) -> tuple[Built, torch.Tensor]:
    torch.manual_seed(7)
    make, shape = MODELS[name]
    model = make().eval().to(torch.bfloat16)
    x = torch.randn(shape, dtype=torch.bfloat16)
    return compile_model(model, (x,), options=options).graphs[0], x


def interpreted(made: Built, x: torch.Tensor, *, exact: bool) -> np.ndarray:
    weights = {path: w.detach().float().numpy() for path, w in made.weights.items()}
    return interpret(made.program, weights, [x.float().numpy()], exact_accumulation=exact)[0]


@pytest.mark.parametrize(
    ("name", "level", "fmt"),
    list(itertools.product(MODELS, (0, 1, 2), ("", "bfp_bf8", "bfp_bf4"))),
)
@pytest.mark.parametrize("exact", [False, True])
def test_a_compiled_program_gives_the_interpreters_bits(
    name: str, level: int, fmt: str, exact: bool
) -> None:
    options = {"optimization_level": level, "exact_accumulation": exact}
    made, x = built(name, **options, **({"experimental_weight_dtype": fmt} if fmt else {}))
    (ran,) = LoadedGraph(made).run([x])
    assert ran.dtype == torch.bfloat16
    wanted = interpreted(made, x, exact=exact)
    np.testing.assert_array_equal(ran.float().numpy(), wanted.reshape(ran.shape))


@pytest.mark.parametrize("exact", [False, True])
def test_who_set_an_option_changes_no_bit(exact: bool) -> None:
    """Level 1 takes the bfloat16 accumulator by itself; asking for it gives the same program."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 32)).to(torch.bfloat16)
    x = torch.randn(32, 512, dtype=torch.bfloat16)
    outputs, ops = [], []
    for asked in ({}, {"fp32_dest_acc_en": False}):
        options = {"optimization_level": 1, "exact_accumulation": exact, **asked}
        made = compile_model(model.eval(), (x,), options=options).graphs[0]
        ops.append([(op.kind, op.attrs) for op in made.program.ops])
        outputs.append(LoadedGraph(made).run([x])[0])
    assert ops[0] == ops[1]
    assert {attrs["fp32_acc"] for kind, attrs in ops[0] if kind == "Matmul"} == {False}
    assert torch.equal(*outputs)


def test_a_bfloat16_accumulator_is_seen_where_the_chips_rule_is_asked_for() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2048, 64, bias=False).to(torch.bfloat16).eval().requires_grad_(False)
    x = torch.randn(32, 2048, dtype=torch.bfloat16)
    true = (x.double() @ model.weight.double().T).float()

    def error(**options: object) -> float:
        compiled = temper.compile(model, optimization_level=1, **options)
        return float((compiled(x).float() - true).norm() / true.norm())

    wide = error(exact_accumulation=True, fp32_dest_acc_en=True)
    narrow = error(exact_accumulation=True, fp32_dest_acc_en=False)
    assert narrow > 3 * wide
