"""Wrong values on the command line: one template, what is allowed, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from temper.cli import main


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a command says to standard error when it refuses; nothing else may be printed."""
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    shown = capsys.readouterr()
    assert stop.value.code == 2
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert shown.err.startswith("temper: ")
    return shown.err


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        ("bench m.py:make --trials 1", "a whole number of at least 2"),
        ("bench m.py:make --trials many", "a whole number of at least 2"),
        ("bench m.py:make --seconds nan", "a number above 0"),
        ("bench m.py:make --gate 5", "a percentage such as 5%"),
        ("bench m.py:make --batch 0", "a whole number of at least 1"),
        ("diff a b --gate -1%", "a percentage such as 5%"),
        ("diff a b --limit 0", "a whole number of at least 1"),
        ("explain m.py:make --picture ladder.xyz", "ends in .png, .svg or .pdf"),
        ("fit m.py:make --level 3", "a whole number from 0 to 2"),
        ("fit m.py:make --limit 0", "a whole number of at least 1"),
        ("memory m.py:make --level 5", "a whole number from 0 to 2"),
        ("monitor --interval 0", "a number of at least 0.1"),
        ("profile -p 99999 true", "a whole number from 1 to 65535"),
        ("report run --limit x", "a whole number of at least 1"),
        ("tune m.py:make --min-pcc 2", "a number from -1 to 1"),
        ("tune m.py:make --min-top1 5", "a number from 0 to 1"),
        ("tune m.py:make --max-rms -1", "a number of at least 0"),
        ("tune m.py:make --minutes 0", "a number above 0"),
        ("tune m.py:make --batch --picture curve", "ends in .png, .svg or .pdf"),
    ],
)
def test_a_wrong_value_names_its_option_and_what_is_allowed(
    capsys: pytest.CaptureFixture[str], args: str, allowed: str
) -> None:
    words = args.split()
    said = refused(capsys, *words)
    flag = next(word for word in reversed(words) if word[:2] == "--" or word == "-p")
    assert f"{'--port' if flag == '-p' else flag} cannot be" in said
    assert allowed in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("explain", "temper explain needs a model"),
        ("bench m.py:make --trils 3", "Did you mean '--trials'?"),
        ("report run --by colour", "'colour' is not one of 'op', 'module', 'line', 'bound'"),
        ("weights sort", "no such command 'sort'"),
        ("tune m.py:make -O enable_trace", "NAME=VALUE"),
        ("options nonsense", "no compile option holds 'nonsense'"),
        ("report no/such/folder", "no/such/folder does not exist"),
        ("diff no/such no/such", "no/such does not exist"),
    ],
)
def test_other_mistakes_are_told_in_the_same_template(
    capsys: pytest.CaptureFixture[str], args: str, said: str
) -> None:
    assert said in refused(capsys, *args.split())


def test_a_mistyped_option_name_leads_to_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert "see     temper bench --help" in refused(capsys, "bench", "m.py:make", "--nosuch")


def test_a_full_or_closed_disk_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr("temper.chips.get", full)
    assert refused(capsys, "chip", "n150") == (
        f"temper: No space left on device ({tmp_path / 'x'})\n"
    )


def test_an_option_given_with_dashes_is_the_same_option() -> None:
    from temper.cli.values import named_values

    given = ["optimization-level=1", "level=0"]
    assert named_values("-O", given) == {"optimization_level": "0"}


def test_gates_mean_the_same_as_percentage_and_as_share() -> None:
    from temper.cli.values import Share

    assert [Share().convert(text, None, None) for text in ("5%", "0.05", " 5.0 % ")] == [0.05] * 3
