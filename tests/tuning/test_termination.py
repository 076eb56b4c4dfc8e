"""SIGTERM ends long work as Ctrl-C does: what was found is kept, nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from temper.cli import main
from temper.tuning import bench, engine, ladder

TINY = str(Path(__file__).parent / "tiny.py")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def killing(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The same, but the process gets SIGTERM at one of its calls."""
    calls = 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*args, **kwargs)

    return called


def typed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    shown = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, shown.out, shown.err


def test_explain_shows_the_rungs_that_were_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "did", killing(ladder.did, 3))
    before = signal.getsignal(signal.SIGTERM)
    code, out, _ = typed(capsys, "explain", f"{TINY}:make", "--batch", "4", "--json")
    made = json.loads(out)
    assert (code, made["interrupted"]) == (130, True)
    assert [rung["name"] for rung in made["rungs"]] == ["float32, level 0", "bfloat16"]
    assert made["best"] in ("float32, level 0", "bfloat16")
    assert any("interrupted" in text for text in made["skipped"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_advise_keeps_the_board_it_was_at_and_names_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "did", killing(ladder.did, 3))
    words = ("--chip", "n150", "--chip", "p150", "--batch", "4", "--json")
    code, out, _ = typed(capsys, "advise", f"{TINY}:make", *words)
    made = json.loads(out)
    assert code == 130
    assert [board["chip"] for board in made["boards"]] == ["n150"]
    assert made["refused"] == {"p150": "interrupted"}


def test_tune_leaves_no_trial_running_and_resumes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("tune", f"{TINY}:make", "--batches", "8", "--samples", "4", "--min-pcc", "0.9")
    measure = engine.Engine.measure
    monkeypatch.setattr(engine.Engine, "measure", killing(measure, 3))
    code, out, _ = typed(capsys, *words, "--trials", "9", "--json")
    made = json.loads(out)
    assert (code, made["interrupted"]) == (130, True)
    assert made["overrides"] is not None
    with sqlite3.connect("tune.db") as study:
        states = dict(study.execute("select state, count(*) from trials group by state").fetchall())
    assert states["COMPLETE"] >= 1
    assert "RUNNING" not in states
    monkeypatch.setattr(engine.Engine, "measure", measure)
    code, out, _ = typed(capsys, *words, "--trials", "3", "--json")
    assert code == 0
    assert json.loads(out)["resumed"] == states["COMPLETE"]


def test_bench_keeps_whole_trials_and_makes_no_baseline(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_timed", killing(bench._timed, 4))
    words = ("--trials", "8", "--iterations", "2", "--save", "base.json", "--json")
    code, out, err = typed(capsys, "bench", f"{TINY}:make", *words)
    assert code == 130
    assert json.loads(out)["temper"]["measured"]["trials"] == 3
    assert "interrupted after 3 of 8 trials" in err
    assert not Path("base.json").exists()
