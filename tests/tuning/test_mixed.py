"""The assignment against brute force, and the probe against a real compile."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tiny import make, three

from temper.compiler.pipeline import compile_model
from temper.formats import pcc
from temper.tuning import mixed
from temper.tuning.accuracy import floors
from temper.tuning.engine import Engine, Setting
from temper.tuning.globs import compress
from temper.tuning.mixed import Point, assign, front, solve
from temper.tuning.variants import FORMATS, units


def test_the_assignment_is_the_best_that_brute_force_finds() -> None:
    rng = np.random.default_rng(0)
    for _ in range(8):
        names = [f"w{i}" for i in range(6)]
        times = {n: dict(zip(FORMATS, -np.sort(-rng.uniform(1, 9, 3)), strict=True)) for n in names}
        errors = {n: dict(zip(FORMATS, (0, *np.sort(rng.gamma(0.5, 1e-5, 2))), strict=True))
                  for n in names}  # fmt: skip
        budget = float(rng.uniform(0.2, 0.8)) * sum(e["bfp_bf4"] for e in errors.values())
        best = min(
            sum(times[n][f] for n, f in zip(names, choice, strict=True))
            for choice in product(FORMATS, repeat=len(names))
            if sum(errors[n][f] for n, f in zip(names, choice, strict=True)) <= budget
        )
        found = solve(times, errors, budget)
        assert sum(errors[n][f] for n, f in found.items()) <= budget * (1 + 1e-6)
        assert sum(times[n][f] for n, f in found.items()) == pytest.approx(best, rel=1e-5)


def test_a_budget_of_nothing_keeps_every_weight() -> None:
    times = {"a": {"bf16": 3.0, "bfp_bf8": 2.0, "bfp_bf4": 1.0}}
    errors = {"a": {"bf16": 0.0, "bfp_bf8": 1e-6, "bfp_bf4": 1e-3}}
    assert solve(times, errors, 0.0) == {"a": "bf16"}


def test_room_that_the_budget_leaves_is_used_by_exchanging_units() -> None:
    """Where energies do not quite add up, the best by their sums is not the best by measuring."""
    rng = np.random.default_rng(3)
    names = [f"w{i}" for i in range(7)]
    every = [dict(zip(names, choice, strict=True)) for choice in product(FORMATS, repeat=7)]
    exact = {None: 0, 0.02: 0}
    for _ in range(20):
        saved = rng.uniform(1, 9, 7)
        times = {n: {"bf16": 1e2, "bfp_bf8": 1e2 - 0.6 * s, "bfp_bf4": 1e2 - s}
                 for n, s in zip(names, saved, strict=True)}  # fmt: skip
        errors = {n: {"bf16": 0.0, "bfp_bf8": 1e-4 * e, "bfp_bf4": 5e-3 * e}
                  for n, e in zip(names, rng.uniform(0.5, 2, 7), strict=True)}  # fmt: skip
        true = {n: {f: e * rng.uniform(0.5, 1.5) for f, e in row.items()}
                for n, row in errors.items()}  # fmt: skip

        def measure(chosen: dict[str, str], times: Any = times, true: Any = true) -> Point:
            energy = sum(true[n][f] for n, f in chosen.items())
            time = sum(times[n][f] for n, f in chosen.items())
            return Point(chosen, time, {"pcc": 1 - energy / 2}, energy <= 0.02)

        best = min(p.time_ns for p in map(measure, every) if p.met)
        for target in exact:
            points = assign(times, errors, measure, target)
            found = min(p.time_ns for p in points if p.met)
            assert found >= best
            exact[target] += found == best
    # Without a target there are no exchanges.
    assert exact[0.02] > exact[None] >= 10


def test_the_front_holds_no_point_that_another_beats() -> None:
    points = [Point({}, t, {"pcc": a}, True) for t, a in ((3, 0.9), (1, 0.5), (2, 0.4), (4, 0.9))]
    assert [(p.time_ns, p.accuracy["pcc"]) for p in front(points)] == [(1, 0.5), (3, 0.9)]


@pytest.mark.parametrize("fidelity", ["default", "LoFi"])
def test_formats_tried_in_place_give_what_a_real_compile_gives(fidelity: str) -> None:
    engine = Engine(make, "n150", floors(0.9), samples=8)
    setting = Setting(level=1, trace=False, fidelity=fidelity, formats="mixed")
    formats = {"0.weight": "bfp_bf8", "2.weight": "bf16", "4.weight": "bfp_bf4"}
    tried = engine.measure(setting, formats)
    cost, real = engine.verify(setting, compress(formats))
    assert tried["pcc"] == pytest.approx(real["pcc"], abs=1e-6)
    assert engine.cost(setting, formats).call_ns == pytest.approx(cost.call_ns, rel=0.1)
    # And back again: the probe leaves nothing behind.
    plain = engine.measure(setting, {})
    engine.measure(setting, formats)
    assert engine.measure(setting, {}) == plain


def test_formats_are_weighed_at_the_fidelity_that_they_run_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    real = mixed.assign

    def watched(times: mixed.Table, *rest: Any) -> list[Point]:
        seen.append(times)
        return real(times, *rest)

    monkeypatch.setattr(mixed, "assign", watched)
    engine = Engine(make, "n150", floors(0.9), samples=8)
    slow, quick = (Setting(level=1, fidelity=name) for name in ("HiFi4", "LoFi"))
    for setting in (slow, quick):
        engine.solve(setting)
        whole = engine.cost(setting).call_ns
        assert {row["bf16"] for row in seen.pop().values()} == {whole}
    assert engine.cost(quick).call_ns < engine.cost(slow).call_ns


def test_accuracy_is_measured_against_float32_on_the_users_inputs() -> None:
    engine = Engine(three, "n150", floors(0.9), samples=4)
    torch.manual_seed(0)
    model, inputs = three(4)
    with torch.no_grad():
        expected = model(*inputs)
    assert pcc(engine.expected, expected) == 1.0
    assert engine.measure(Setting(level=1), {})["pcc"] > 0.999


def test_convolutions_that_run_as_matmuls_are_no_weights_to_convert() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(32, 64, 1), torch.nn.Flatten(), torch.nn.Linear(1024, 16)
    )
    x = torch.randn(1, 32, 4, 4, dtype=torch.bfloat16)
    built = compile_model(model.eval().bfloat16(), (x,), options={"optimization_level": 2})
    assert [unit.paths for unit in units(built.programs[0])] == [("2.weight",)]
