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

# Refused today, and shown by `temper legal`: blocks of a convolution that do not divide its rows.
KNOWN = {("mnist", "p150", 2)}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("chip", "level"), [("n150", 0), ("n150", 1), ("n150", 2), ("p150", 2)])
def test_ttnn_refuses_no_op_of_a_model(ttnn_here: Path, family: str, chip: str, level: int) -> None:
    torch.manual_seed(0)
    model, args, kwargs = FAMILIES[family]()
    options = resolve({"chip": chip, "optimization_level": level})
    compiled = compile_model(model.to(torch.bfloat16).eval(), args, kwargs, options)
    for program in compiled.programs:
        found = check(program, find(chip), options)
        wrong = [v for v in found.verdicts if v.verdict in ("refused", "differs")]
        if wrong and (family, chip, level) in KNOWN:
            pytest.xfail(f"known: {wrong[0].kind} of {wrong[0].label}: {wrong[0].message}")
        assert not wrong, "\n".join(f"{v.kind} of {v.label}: {v.message}" for v in wrong)
        assert len(found.verdicts) >= 5
