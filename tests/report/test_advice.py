"""Advice of runs: each a change that was costed again, none without a figure."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples

from temper.cost import estimate
from temper.program import Op, Program, TensorSpec
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder
from temper.report import what_if
from temper.report.advice import Advice
from temper.report.advise_run import advise_run
from temper.run.logs import run_from_logs
from temper.run.records import Run


def run_of(program: Program, *, traced: bool = False, level: int = 1) -> Run:
    log = ProcessLog()
    recorder = Recorder(log)
    meta = {"options": {"optimization_level": [level, "options"]}}
    handle = recorder.begin_program(program, estimate(program, traced=traced), meta)
    for i in range(4):
        recorder.record_call(handle, 1000 * i, 1000 * i + 500, traced=traced, replay=i)
    recorder.flush()
    return run_from_logs([log])


def decode(layers: int = 4) -> Program:
    """One token through wide layers: every matmul waits for its weights."""
    values = {"x0": TensorSpec((32, 4096))}
    ops, weights = [], {}
    for i in range(layers):
        values |= {f"w{i}": TensorSpec((4096, 4096)), f"x{i + 1}": TensorSpec((32, 4096))}
        ops.append(Op("Matmul", (f"x{i}", f"w{i}"), (f"x{i + 1}",), {"fidelity": "HiFi2"}))
        weights[f"w{i}"] = f"layers.{i}.weight"
    return Program("decode", "n150", values, tuple(ops), ("x0",), (f"x{layers}",), weights)


def find(advice: list[Advice], part: str) -> Advice:
    return next(item for item in advice if part in item.title)


def test_weights_of_dram_bound_matmuls_get_smaller_formats() -> None:
    program = decode()
    advice = advise_run(run_of(program))
    item = find(advice, "bfloat8_b")
    smaller = what_if.with_weight_format(program, "bfloat8_b")
    assert smaller is not None
    assert item.now_ns == pytest.approx(4 * estimate(program).call_ns)
    assert item.then_ns == pytest.approx(4 * estimate(smaller).call_ns)
    assert '"experimental_weight_dtype": "bfp_bf8"' in item.paste
    assert "measured" in item.accuracy


def test_a_trace_is_advised_when_none_is_replayed() -> None:
    program = samples.mlp(layers=6)
    item = find(advise_run(run_of(program)), "trace")
    assert item.then_ns == pytest.approx(4 * estimate(program, traced=True).call_ns)
    assert not any("trace" in a.title for a in advise_run(run_of(program, traced=True)))


def test_host_ops_are_named_with_their_line() -> None:
    item = find(advise_run(run_of(samples.mlp(host_op=True))), "host")
    assert f"{samples.MODEL_FILE}:40" in item.paste
    assert "aten.erfcx" in item.why


def test_float32_models_are_told_of_bfloat16() -> None:
    program = decode()
    values = {name: replace(spec, format="float32") for name, spec in program.values.items()}
    item = find(advise_run(run_of(program.replace(values=values))), "bfloat16")
    assert "model.to(torch.bfloat16)" in item.paste


def test_odd_sizes_are_told_what_their_padding_costs() -> None:
    values = {
        "x": TensorSpec((16, 197, 768)),
        "w": TensorSpec((768, 3072)),
        "y": TensorSpec((16, 197, 3072)),
    }
    op = Op("Matmul", ("x", "w"), ("y",), {"fidelity": "HiFi4"})
    program = Program("vit", "n150", values, (op,), ("x",), ("y",), {"w": "w"})
    item = find(advise_run(run_of(program)), "192 instead of 197")
    assert "padded to 224" in item.why


def test_advice_is_ranked_and_every_item_has_figures_and_a_line() -> None:
    for program in (decode(), samples.mlp(host_op=True), samples.mlp(layers=6)):
        advice = advise_run(run_of(program, level=0))
        assert advice
        gains = [item.gain_ns for item in advice]
        assert gains == sorted(gains, reverse=True)
        for item in advice:
            assert item.share >= 0.01
            assert item.low_ns <= item.then_ns * 1.0001
            assert item.then_ns <= item.high_ns * 1.0001
            assert item.paste
            assert item.why
            assert all(item.lines(1))


def test_constant_evaluation_gets_no_advice() -> None:
    log = ProcessLog()
    recorder = Recorder(log)
    program = decode()
    recorder.record_call(recorder.begin_program(program, estimate(program)), 0, 10, const_eval=True)
    recorder.flush()
    assert advise_run(run_from_logs([log])) == []
