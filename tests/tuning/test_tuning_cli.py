"""Tune and bench as people type them: studies, baselines, overrides, several graphs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from temper.cli import main
from temper.tuning import store

TINY = str(Path(__file__).parent / "tiny.py")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    shown = capsys.readouterr()
    code = stop.value.code
    return (code if isinstance(code, int) else 0), shown.out, shown.err


QUICK = ("--batches", "8", "--samples", "4", "--trials", "1", "--min-pcc", "0.9")


def test_a_second_tune_on_a_study_in_use_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    with store.open_study("tune.db", "mark", "label"):
        code, out, err = typed(capsys, "tune", f"{TINY}:make", *QUICK)
    assert (code, out) == (1, "")
    assert "the study tune.db is in use by another process" in err
    assert not Path("tune.db.lock").exists()
    assert typed(capsys, "tune", f"{TINY}:make", *QUICK)[0] == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:secret@127.0.0.1:1/x", "needs a driver"),
        ("oracle9://me:secret@host/x", "cannot use the database"),
        ("sqlite:////no/such/folder/x.db", "cannot use the database"),
    ],
)
def test_a_database_that_cannot_be_used_is_told_without_its_password(
    capsys: pytest.CaptureFixture[str], url: str, says: str
) -> None:
    if says == "needs a driver":
        drivers = ("psycopg2", "psycopg", "pg8000")
        if any(importlib.util.find_spec(name) for name in drivers):
            says = "cannot use the database"
    code, _, err = typed(capsys, "tune", f"{TINY}:make", *QUICK, "--study", url)
    assert code == 2
    assert says in err
    assert "secret" not in err


def test_a_database_url_keeps_trials_and_may_be_shared(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{Path('shared.db').absolute()}"
    with store.open_study(url, "mark", "label"):
        code, out, err = typed(capsys, "tune", f"{TINY}:make", *QUICK, "--study", url, "--json")
    assert code == 0, err
    assert json.loads(out)["trials"] == 1
    code, out, _ = typed(capsys, "tune", f"{TINY}:make", *QUICK, "--study", url, "--json")
    assert json.loads(out)["resumed"] == 1


def test_a_trial_that_is_not_there_names_what_the_study_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert typed(capsys, "tune", f"{TINY}:make", *QUICK)[0] == 0
    code, _, err = typed(capsys, "tune", f"{TINY}:make", "--samples", "4", "--replay", "0")
    assert code == 2  # the floor is another one, and so is the study
    assert "none yet" in err
    assert "pcc at least 0.9" in err.split("others")[1]
    same = ("--samples", "4", "--min-pcc", "0.9", "--replay", "0", "--json")
    code, out, _ = typed(capsys, "tune", f"{TINY}:make", *same)
    found = json.loads(out)
    assert code == 0
    assert found["now"]["accuracy"]["pcc"] == pytest.approx(
        found["trial"]["accuracy"]["pcc"], abs=1e-5
    )


def test_a_model_of_several_graphs_is_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = typed(capsys, "tune", f"{TINY}:branching", *QUICK)
    assert (code, out) == (1, "")
    assert "splits the model into 2 graphs" in err
    assert "temper tune --batch" in err


def test_a_saved_baseline_is_what_a_later_run_is_held_against(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether this host is quiet enough for a measured verdict is not the question here.
    monkeypatch.setattr("temper.tuning.bench.judge_samples", lambda *_: [])
    model = ("bench", f"{TINY}:make", "--trials", "2", "--iterations", "3")
    code, out, _ = typed(capsys, *model, "--save", "kept/base.json")
    assert code == 0
    assert "--against kept/base.json" in out
    base: Any = json.loads(Path("kept/base.json").read_text())
    code, out, _ = typed(capsys, *model, "--against", "kept/base.json", "--gate", "99%", "--json")
    verdicts = json.loads(out)["temper"]["against"]
    assert next(v for v in verdicts if v["clock"] == "modelled")["change"] == pytest.approx(0)
    base["temper"]["modelled"]["call_ns"] /= 2
    Path("kept/base.json").write_text(json.dumps(base))
    code, out, _ = typed(capsys, *model, "--against", "kept/base.json", "--gate", "50%", "--json")
    assert code == 1
    assert any(v["failed"] for v in json.loads(out)["temper"]["against"])


def test_weight_formats_of_a_file_reach_the_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    Path("formats.json").write_text('{"0.weight": "bfp_bf8", "nothing.*": "bfp_bf4"}')
    option = ("-O", "weight_dtype_overrides=formats.json")
    code, out, err = typed(capsys, "passes", f"{TINY}:make", *option, "--json")
    [graph] = json.loads(out)
    assert code == 0
    assert [(w["parameter"], w["effective"]) for w in graph["weight_formats"]] == [
        ("0.weight", "bfp_bf8")
    ]
    assert "note: weight override 'nothing.*' matches no weight" in err
    assert "UserWarning" not in err
    code, _, err = typed(capsys, "passes", f"{TINY}:make", "-O", "weight_dtype_overrides=no.json")
    assert (code, err) == (2, "temper: no weight override file no.json\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
def test_bench_compare_and_advise_take_what_the_user_keeps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPER_CHIP", raising=False)
    Path("temper.toml").write_text('chip = "p100"\nlevel = 1\nenable_trace = true\n')
    model = f"{TINY}:make"
    quick = ("--trials", "2", "--iterations", "1", "--seconds", "1")
    made = json.loads(typed(capsys, "bench", model, *quick, "--json")[1])
    assert made["temper"]["chip"] == "p100"
    assert made["temper"]["settings"] == {
        "optimization_level": 1, "enable_trace": True, "chip": "p100",
    }  # fmt: skip
    made = json.loads(typed(capsys, "bench", model, *quick, "--level", "0", "--json")[1])
    assert made["temper"]["settings"]["optimization_level"] == 0  # what is typed is stronger
    words = ("-b", "chip=n150", "-b", "level=2", "--no-accuracy", "--json")
    made = json.loads(typed(capsys, "compare", model, *words)[1])
    assert (made["before"]["chip"], made["after"]["chip"]) == ("p100", "n150")
    own = typed(capsys, "compare", model, "-a", "level=1", "-b", "level=2", *words[4:])[1]
    assert json.loads(own)["before"]["call_ns"] == made["before"]["call_ns"]
    made = json.loads(typed(capsys, "advise", model, "--quiet", "--json")[1])
    assert [board["chip"] for board in made["boards"]] == ["p100"]
