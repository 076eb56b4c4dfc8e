"""Comparing two profiles, and the gate that CI relies on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import samples
from click.testing import CliRunner

from temper.cli.diff import command
from temper.errors import UsageError
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder
from temper.report.compare import compare
from temper.report.writers import write_run
from temper.run.logs import run_from_logs
from temper.run.opening import Profile
from temper.run.run_table import table_of_run


def profile(**how: object) -> Profile:
    run = samples.run(**how)  # type: ignore[arg-type]
    return Profile("x", table_of_run(run), run)


def test_equal_profiles_have_no_change() -> None:
    compared = compare(profile(), profile())
    assert compared.delta_ns == 0
    assert {change.kind for change in compared.changes} == {"same"}


def test_more_calls_of_the_same_program_are_no_change() -> None:
    compared = compare(profile(calls=2), profile(calls=7))
    assert compared.per_call
    assert abs(compared.ratio) < 1e-9


def lopsided(plain: int, traced: int) -> Profile:
    """One constant evaluation, some calls, then as many replays as asked."""
    log = ProcessLog()
    recorder = Recorder(log)
    program = samples.mlp()
    const = recorder.begin_program(program.replace(name="mlp const"), samples.cost(program))
    slow = recorder.begin_program(program, samples.cost(program))
    quick = recorder.begin_program(program, samples.cost(program, traced=True))
    recorder.record_call(const, 0, 10, const_eval=True)
    for i in range(plain):
        recorder.record_call(slow, 100 * i + 20, 100 * i + 90)
    for i in range(traced):
        recorder.record_call(quick, 100_000 + 100 * i, 100_050 + 100 * i, traced=True, replay=i + 1)
    recorder.flush()
    run = run_from_logs([log])
    return Profile("x", table_of_run(run), run)


def test_what_is_paid_once_does_not_make_a_shorter_run_slower() -> None:
    compared = compare(lopsided(2, 3), lopsided(2, 300))
    assert {change.kind for change in compared.changes} == {"same"}
    assert compared.ratio == pytest.approx(0)
    # Four ops of 50, 10, 50 and 10 µs with 700 ns between them, 30 µs of transfers.
    assert compared.after_total_ns == pytest.approx(120_000 + 3 * 700 + 30_000)


def test_a_run_without_replays_is_compared_by_its_plain_calls() -> None:
    compared = compare(lopsided(4, 0), lopsided(2, 7))
    assert (compared.before.calls, compared.after.calls) == (4, 7)


def test_ops_appear_and_vanish_by_module_path() -> None:
    compared = compare(profile(layers=2), profile(layers=3))
    appeared = [c for c in compared.changes if c.kind == "appeared"]
    assert {c.name.split()[0] for c in appeared} == {"layers.2", "activations.2"}
    assert sum(c.delta_ns for c in appeared) == pytest.approx(60_000)
    back = compare(profile(layers=3), profile(layers=2))
    assert [c.kind for c in back.changes if c.kind != "same"] == ["vanished", "vanished"]


def test_ops_without_modules_are_matched_in_their_order() -> None:
    from temper.run.table import OpTable, Text

    def table(times: list[float], codes: list[str], shapes: list[str]) -> Profile:
        import numpy as np

        texts = {
            "code": Text.of(codes),
            "shape": Text.of(shapes),
            "type": Text.constant("device", len(codes)),
        }
        return Profile("x", OpTable(len(codes), {"kernel_ns": np.array(times)}, texts, False))

    compared = compare(
        table([10, 20, 5], ["A", "A", "B"], ["1", "2", "3"]),
        table([10, 30, 5], ["A", "A", "B"], ["1", "4", "3"]),
    )
    (slower,) = [c for c in compared.changes if c.kind != "same"]
    assert (slower.kind, slower.delta_ns) == ("slower", 10)
    assert "was 2" in slower.name


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    return (
        str(write_run(samples.run(layers=2), tmp_path / "a")),
        str(write_run(samples.run(layers=3), tmp_path / "b")),
    )


def test_the_gate_fails_only_when_slower(folders: tuple[str, str]) -> None:
    slower = CliRunner().invoke(command, [*folders, "--gate", "5%"])
    assert slower.exit_code == 1
    assert "gate FAILED" in slower.output
    assert "layers.2" in slower.output
    faster = CliRunner().invoke(command, [*reversed(folders), "--gate", "0.05"])
    assert faster.exit_code == 0
    assert "gate passed" in faster.output


def test_json_carries_the_changes_and_the_verdict(folders: tuple[str, str]) -> None:
    done = CliRunner().invoke(command, [*folders, "--json", "--gate", "1%"])
    data = json.loads(done.output)
    assert data["failed"] is True
    assert {change["kind"] for change in data["changes"]} == {"appeared"}


@pytest.mark.parametrize("gate", ["x", "-1%", "nan", "1e9", "5"])
def test_a_bad_gate_is_a_usage_error(folders: tuple[str, str], gate: str) -> None:
    done = CliRunner().invoke(command, [*folders, "--gate", gate])
    assert isinstance(done.exception, UsageError)
