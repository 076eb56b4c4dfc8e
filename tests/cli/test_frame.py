"""The command's frame: help, version, JSON, mistakes, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from temper.cli import COMMANDS, main
from temper.cli.output import console, table


def temper(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "temper", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )


def test_help_lists_every_command_and_examples() -> None:
    done = temper("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert "Examples" in done.stdout


def test_version_is_printed() -> None:
    assert temper("--version").stdout.startswith("temper, version ")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = temper(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "temper " in done.stdout.split("Options:")[-1] or "xample" in done.stdout


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion() -> None:
    done = temper("optoins")
    assert done.returncode == 2
    assert "options" in done.stderr


def test_a_users_mistake_shows_no_traceback_unless_asked() -> None:
    done = temper("chip", "n151")
    assert done.returncode == 2
    assert done.stderr.startswith("temper: unknown chip 'n151'")
    assert "Traceback" not in done.stderr
    assert "Traceback" in temper("--debug", "chip", "n151").stderr


def test_options_print_as_json() -> None:
    rows = json.loads(temper("options", "--json").stdout)
    level = next(r for r in rows if r["name"] == "optimization_level")
    assert (level["type"], level["default"], level["origin"]) == ("int", 0, "tt-xla")


def test_a_chip_prints_as_json_with_sources() -> None:
    chip = json.loads(temper("chip", "n150", "--json").stdout)
    assert chip["dram_banks"] == 12
    assert chip["evidence"]["dram_banks"]["source"]


def test_output_is_plain_when_it_is_no_terminal() -> None:
    assert "\x1b[" not in temper("chip").stdout


def test_shell_completion_is_offered() -> None:
    done = temper(_TEMPER_COMPLETE="bash_source")
    assert "_TEMPER_COMPLETE" in done.stdout or "complete" in done.stdout


def table_at(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from rich.console import Console

    from temper.cli import output

    monkeypatch.setattr(output, "console", lambda **_: Console(width=width))
    columns = ("name", "each", "band", "where")
    rows = [("encoder.layer.11.attention", "11.3 µs", "6.25 µs to 20.6 µs", "modeling.py:192")]
    made = output.table("Ops", columns, rows, right=("each", "band"), drop=("where", "band"))
    console = Console(width=width)
    with console.capture() as shown:
        console.print(made)
    return shown.get().splitlines()


@pytest.mark.parametrize(("width", "left_out"), [(100, ""), (70, "where"), (40, "where, band")])
def test_a_narrow_terminal_loses_columns_and_never_a_name_or_a_number(
    width: int, left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = table_at(width, monkeypatch)
    text = "\n".join(lines)
    assert "11.3 µs" in text
    assert "…" not in text
    assert "encoder.layer.11.attent" in text
    assert all(len(line) <= width for line in lines)
    assert (f"left out at this width: {left_out}" in text) == bool(left_out)


def test_names_with_brackets_and_colons_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from temper.cli.output import console, table

    console().print(table("[red]:warning:.py", ["[b]"], [["[link=x]y"]]))
    console().print("[bold]:smile:")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[red]:warning:.py", "[b]", "[link=x]y", "[bold]:smile:"))


NOISY = """
import torch
print("at import")
class Noisy(torch.nn.Linear):
    def forward(self, x):
        print("in forward")
        return super().forward(x)
def make(batch=4):
    print("in make")
    return Noisy(64, 64).eval(), (torch.randn(batch, 64),)
"""


@pytest.mark.parametrize(
    "args", ["passes {} --json", "memory {} --json", "fit {} --level 0 --limit 1 --json",
             "explain {} --batch 2 --json", "weights check {} bfp_bf8 --json",
             "weights template {}"],
)  # fmt: skip
def test_json_is_all_of_standard_output_however_much_a_model_prints(
    args: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    with pytest.raises(SystemExit) as stop:
        main(args.format(f"{path}:make").split())
    shown = capsys.readouterr()
    assert stop.value.code == 0
    assert json.loads(shown.out)
    assert "in make" in shown.err


@pytest.mark.parametrize("columns", [60, 80])
def test_a_head_wider_than_its_figures_is_broken_and_no_figure_is_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    heads = ["board", "best rung", "batch", "samples/s", "band", "accuracy", "over level 0", "left"]
    row = ["p100", "bfp_bf8 weights", "128", "13,364", "12,919 to 13,578", "0.99999", "×12.5", "x"]
    console().print(table("", heads, [row], right=["batch", "samples/s", "accuracy",
                                                   "over level 0"], drop=["band"]))  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    shown = " ".join(" ".join(lines).split())
    for word in ("13,364", "0.99999", "×12.5", "over", "level"):
        assert word in shown
