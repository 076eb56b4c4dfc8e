"""Whole compiled models offered to the real ttnn on a mocked device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from card_models import FAMILIES

from temper.compiler.pipeline import compile_model
from temper.options import resolve
from temper.targets.ttnn.environment import find
from temper.targets.ttnn.legality import check


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chip", ["n150", "p150"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_ttnn_runs_a_model_as_the_program_says_in_the_memory_that_it_says(
    ttnn_here: Path, family: str, chip: str, level: int
) -> None:
    torch.manual_seed(0)
    model, args, kwargs = FAMILIES[family]()
    options = resolve({"chip": chip, "optimization_level": level})
    compiled = compile_model(model.to(torch.bfloat16).eval(), args, kwargs, options)
    for program in compiled.programs:
        found = check(program, find(chip), options)
        wrong = [v for v in found.verdicts if v.verdict not in ("accepted", "host")]
        assert not wrong, "\n".join(f"{v.kind} of {v.label}: {v.message}" for v in wrong)
        assert len(found.verdicts) >= 5
        for planned, real in (found.sram, found.tensors, found.dram):
            assert abs(planned - real) <= real / 100


class _Places(torch.nn.Module):
    """Places of largest and smallest values, rows by place, far axes turned, a group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(8, 64)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        users = torch.arange(ids.shape[0])
        return (
            x[users, ids.argmax(-1)],
            x[users, ids.argmin(-1)] + 1,
            x.argmin(-1),
            x.transpose(0, 2) * 2,
            self.norm(x.reshape(4, 64, 8, 8)),
            torch.nn.functional.pad(x[:, :50, :50], (0, 3, 0, 2)) + 1,
        )


@pytest.mark.parametrize("level", [0, 2])
def test_ttnn_takes_places_of_integers_and_group_norms(ttnn_here: Path, level: int) -> None:
    torch.manual_seed(0)
    args = (torch.randint(0, 50, (4, 40)), torch.randn(4, 64, 64, dtype=torch.bfloat16))
    model = _Places().to(torch.bfloat16).eval()
    options = resolve({"optimization_level": level})
    for program in compile_model(model, args, {}, options).programs:
        assert {"ArgMax", "GroupNorm"} <= {op.kind for op in program.ops}
        found = check(program, find("n150"), options)
        wrong = [v for v in found.verdicts if v.verdict not in ("accepted", "host")]
        assert not wrong, "\n".join(f"{v.kind} of {v.label}: {v.message}" for v in wrong)
        assert abs(found.sram[0] - found.sram[1]) <= found.sram[1] / 100
        assert abs(found.dram[0] - found.dram[1]) <= found.dram[1] / 100


class _Patches(torch.nn.Module):
    """An image whose patches are computed in parts that end inside a tile."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = torch.nn.Conv2d(3, 256, 16, 16)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.cut(image).flatten(2).transpose(1, 2)


def test_ttnn_joins_parts_that_end_inside_a_tile_as_rows(ttnn_here: Path) -> None:
    options = resolve({"optimization_level": 0})
    image = torch.randn(1, 3, 224, 224, dtype=torch.bfloat16)
    model = _Patches().to(torch.bfloat16).eval()
    (program,) = compile_model(model, (image,), {}, options).programs
    (join,) = [op for op in program.ops if op.kind == "Concat"]
    assert any(program.spec(name).shape[2] % 32 for name in join.inputs)
    found = check(program, find("n150"), options)
    wrong = [v for v in found.verdicts if v.verdict != "accepted"]
    assert not wrong, "\n".join(f"{v.kind} of {v.label}: {v.message}" for v in wrong)


def test_ttnn_takes_shared_exponents_that_a_convolution_finds_in_dram(ttnn_here: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(64, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, padding=1),
    )
    options = resolve({"chip": "n150", "optimization_level": 1, "activation_dtype": "bfloat8_b",
                       "conv_weight_dtype": "bfloat8_b"})  # fmt: skip
    x = torch.randn(1, 64, 32, 32, dtype=torch.bfloat16)
    for program in compile_model(model.to(torch.bfloat16).eval(), (x,), {}, options).programs:
        found = check(program, find("n150"), options)
        refused = [v for v in found.verdicts if v.verdict == "refused"]
        assert not refused, "\n".join(f"{v.kind} of {v.label}: {v.message}" for v in refused)
