"""The ladder: what each rung says that the compiler did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import make, no_batch
from torch import nn
from torch.nn import functional as F

from temper.cli import main
from temper.cost import ProgramCost, estimate
from temper.tuning import ladder
from temper.tuning.ladder import explain


class Attention(nn.Module):
    """Self attention without projections."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)


def attention() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Attention(), (torch.zeros(2, 8, 256, 64),)


def test_blocks_of_attention_are_named_where_they_are_chosen() -> None:
    rungs = {rung.name: rung for rung in explain(attention, accuracy=False)}
    assert "attention in blocks of" not in rungs["bfloat16"].did
    assert "attention in blocks of" in rungs["level 1"].did
    assert rungs["level 1"].gain > 1


def test_the_given_batch_is_used_by_every_rung_and_inputs_are_counted() -> None:
    found = explain(make, batch=8, accuracy=False)
    assert {rung.batch for rung in found} == {8}
    assert not any(rung.name.startswith("batch") for rung in found)
    fixed = explain(no_batch, accuracy=False)
    assert {rung.batch for rung in fixed} == {4}
    first = fixed.rungs[0]
    assert first.samples_per_s == pytest.approx(4 / first.call_ns * 1e9)


def test_the_best_rung_keeps_the_floor_and_a_rung_below_it_is_told_so() -> None:
    found = explain(make, batch=32, min_pcc=0.9995)
    verdicts = {rung.name: rung.verdict for rung in found}
    assert verdicts["bfp_bf4 weights"] == "below the floor"
    assert found.best is not None
    assert found.best.pcc is not None
    assert found.best.pcc >= 0.9995
    assert found.floor == "pcc at least 0.9995"


def test_a_rung_that_loses_is_shown_as_losing_and_not_built_upon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow_at_level_2(program: Any, *, traced: bool = False) -> ProgramCost:
        cost = estimate(program, traced=traced)
        if program.options["optimization_level"] != 2:
            return cost
        ops = tuple(replace(o, kernel_ns=o.kernel_ns * 50, low_ns=o.low_ns * 50,
                            high_ns=o.high_ns * 50) for o in cost.ops)  # fmt: skip
        return replace(cost, ops=ops, call_ns=cost.call_ns * 50, device_ns=cost.device_ns * 50)

    monkeypatch.setattr(ladder, "estimate", slow_at_level_2)
    found = explain(make, batch=8, accuracy=False)
    by_name = {rung.name: rung for rung in found}
    assert by_name["level 2"].verdict == "slower"
    assert not by_name["level 2"].kept
    assert by_name["trace"].settings["optimization_level"] == 1
    assert by_name["level 2, traced"].verdict == "slower"
    assert by_name["bfp_bf8 weights"].settings["optimization_level"] == 1
    assert found.best is not None
    assert found.best.settings["optimization_level"] == 1


def test_rungs_beyond_the_time_budget_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(make, accuracy=False, seconds=-1)
    assert not found.rungs
    assert any(text.startswith("level 2: the time budget") for text in found.skipped)


def test_rungs_are_told_as_they_come_unless_asked_to_be_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for flags, lines in (([], True), (["--quiet"], False)):
        with pytest.raises(SystemExit) as stopped:
            main(["explain", "tiny:no_batch", "--no-accuracy", *flags])
        assert stopped.value.code == 0
        out, err = capsys.readouterr()
        assert ("explain: level 1:" in err) is lines
        assert "best rung:" in out


class _WithCache(torch.nn.Module):
    """A step whose cache comes as a list of pairs, as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, cache: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        (keys, values) = cache[0]
        made = torch.softmax(self.linear(x) @ keys.transpose(-2, -1), -1) @ values
        return {"out": made, "cache": [(keys, values)]}


def _cached(batch: int) -> Any:
    torch.manual_seed(0)
    cache = [(torch.randn(batch, 32, 64) / 8, torch.randn(batch, 32, 64))]
    return _WithCache(), (torch.randn(batch, 1, 64), cache)


def test_a_float32_model_with_nested_inputs_is_cast_and_told_to_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ladder = explain(_cached, batch=2)
    by_name = {rung.name: rung for rung in ladder}
    # At level 0 there is no difference, so the cast is judged by the settings that came of it.
    assert by_name["bfloat16"].verdict == "no difference"
    wide, short = by_name["float32 again"], by_name["bfp_bf8 weights"]
    assert wide.settings == {k: v for k, v in short.settings.items() if "weight" not in k}
    gain = ladder.best.samples_per_s / wide.samples_per_s
    assert f"model.to(torch.bfloat16): ×{gain:.2f} with these settings" in ladder.cast
    assert f"{ladder.best.accuracy_text} instead of {wide.accuracy_text}" in ladder.cast
    assert "truncates float32 operands, while a cast rounds them" in ladder.cast
    assert ladder.cast in ladder.notes

    def in_bfloat16(batch: int) -> Any:
        model, (x, [(keys, values)]) = _cached(batch)
        cast = torch.bfloat16
        return model.to(cast), (x.to(cast), [(keys.to(cast), values.to(cast))])

    assert explain(in_bfloat16, batch=2, accuracy=False).cast == ""


def test_a_row_that_fills_a_part_of_its_tiles_is_told_with_a_better_shape() -> None:
    def flat() -> Any:
        return torch.nn.ReLU(), (torch.randn(1, 1 << 18),)

    def square() -> Any:
        return torch.nn.ReLU(), (torch.randn(256, 1024),)

    def steps() -> Any:
        return torch.nn.Linear(64, 1024), (torch.randn(128, 1, 64),)

    notes = explain(steps, accuracy=False).notes
    assert any("128 x 1 x 1024, fills 1 of 32" in n and "return it as 128 x 1024" in n
               for n in notes)  # fmt: skip
    wide, full = (explain(f, accuracy=False) for f in (flat, square))
    told = "1 x 262144, fills 1 of 32 values of its 32 x 32 tiles, and all of them are moved: give "
    assert any(told + "it as 256 x 1024 if the model works" in note for note in wide.notes)
    assert not any("tiles" in note for note in full.notes)
    assert full.best is not None
    assert wide.best is not None
    assert wide.best.call_ns > 4 * full.best.call_ns
