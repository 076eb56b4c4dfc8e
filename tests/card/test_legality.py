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
@pytest.mark.parametrize(("chip", "level"), [("n150", 0), ("n150", 1), ("n150", 2), ("p150", 2)])
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
        # Level 0 reshapes between ragged shapes, whose maps in DRAM are counted too short.
        tenths = 100 if level == 0 else 10
        for (planned, real), most in zip(
            (found.sram, found.tensors, found.dram), (10, 10, tenths), strict=True
        ):
            assert abs(planned - real) <= real * most / 1000
