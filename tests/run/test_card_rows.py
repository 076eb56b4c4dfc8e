"""Profiles of the user's own card against the shipped fit."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from temper.cost.constants import load_file
from temper.errors import BadFileError
from temper.run import card_rows

_TENSORS = ("INPUT_0", "INPUT_1", "OUTPUT_0")


def profile(path: Path, times_ns: list[float], metadata: str = "") -> Path:
    """A device profile of additions, as tt-metal's profiler writes it."""
    rows = []
    for time_ns in times_ns:
        row = {"OP CODE": "BinaryNgDeviceOperation", "CORE COUNT": "64", "MATH FIDELITY": "HiFi4",
               "DEVICE KERNEL DURATION [ns]": f"{time_ns:g}",
               "PROGRAM_METADATA": metadata}  # fmt: skip
        for tensor in _TENSORS:
            sizes = {"W": "1[1]", "Z": "1[1]", "Y": "1024[1024]", "X": "1024[1024]"}
            row |= {f"{tensor}_{axis}_PAD[LOGICAL]": size for axis, size in sizes.items()}
            row |= {f"{tensor}_LAYOUT": "TILE", f"{tensor}_DATATYPE": "BFLOAT16",
                    f"{tensor}_MEMORY": "DEV_0_DRAM_INTERLEAVED"}  # fmt: skip
        rows.append(row)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_card_twice_as_slow_is_found_and_corrected(tmp_path: Path) -> None:
    first = profile(tmp_path / "a.csv", [50_000.0] * 4)
    found = card_rows.compare(*card_rows.read(first, "wormhole_b0"))
    factor, rows = found.factors["binary", "wormhole_b0"]
    twice = profile(tmp_path / "b.csv", [100_000.0] * 4)
    slower = card_rows.compare(*card_rows.read(twice, "wormhole_b0"))
    assert rows == 4
    assert slower.factors["binary", "wormhole_b0"][0] == pytest.approx(2 * factor, rel=1e-3)
    card_rows.store(slower, tmp_path / "mine.json")
    assert load_file(tmp_path / "mine.json").meta["corrected"]["rows"] == 4
    shipped = json.loads(card_rows.DATA.read_text())["families"]["binary"]["arches"]
    mine = json.loads((tmp_path / "mine.json").read_text())["families"]["binary"]["arches"]
    was, now = (d["wormhole_b0"]["nodes"][""]["factors"][0] for d in (shipped, mine))
    assert now == pytest.approx(was * 2 * factor, rel=1e-3)
    assert mine["blackhole"] == shipped["blackhole"]


def test_rows_that_cannot_be_used_are_told_by_line(tmp_path: Path) -> None:
    path = profile(tmp_path / "a.csv", [50_000.0] * 4)
    lines = path.read_text().splitlines()
    column = next(csv.reader(lines[:1])).index("DEVICE KERNEL DURATION [ns]")
    for line, text in ((2, "soon"), (3, "-5")):
        cells = lines[line].split(",")
        cells[column] = text
        lines[line] = ",".join(cells)
    path.write_text("\n".join([*lines, "only,three,cells"]) + "\n")
    found = card_rows.compare(*card_rows.read(path, "wormhole_b0")).as_dict()
    assert (found["rows"], found["rejected"]) == (2, 3)
    assert [row["line"] for row in found["rejected_rows"]] == [3, 4, 6]
    assert "not a number" in found["rejected_rows"][0]["reason"]


def test_a_modelled_profile_says_nothing_about_a_card(tmp_path: Path) -> None:
    path = profile(tmp_path / "a.csv", [50_000.0], metadata='{"times": "modelled"}')
    with pytest.raises(BadFileError, match="modelled"):
        card_rows.read(path, "wormhole_b0")


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadFileError, match="no device profile"):
        card_rows.read(tmp_path / "x.csv", "wormhole_b0")


def test_times_of_own_constants_say_so_wherever_they_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from temper.cost.constants import DATA, constants, correction
    from temper.report.summary import Summary

    assert correction() == ""
    mine = tmp_path / "mine.json"
    mine.write_text(DATA.read_text())
    monkeypatch.setenv("TEMPER_COST_DATA", str(mine))
    constants.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"modelled times are those of .*mine\.json"):
            constants()
    finally:
        constants.cache_clear()
    shown = object.__new__(Summary)
    object.__setattr__(shown, "basis", "modelled")
    object.__setattr__(shown, "cost_data", "mine.json")
    assert shown.word == "modelled with mine.json"


_SCRIPT = """
import json, sys, warnings
import torch
import temper
from temper.cli.output import emit_json

warnings.simplefilter("ignore")
model = torch.nn.Linear(64, 64).eval()
x = torch.randn(32, 64)
plain = temper.compile(model, chip="n150")
plain(x)
before = plain.loaded[0]._running.cost("warm").device_ns
mine = temper.compile(torch.nn.Linear(64, 64).eval(), chip="n150", cost_data=sys.argv[1])
mine(x)
emit_json({"plain": before, "mine": mine.loaded[0]._running.cost("warm").device_ns})
try:
    temper.compile(torch.nn.Linear(32, 32).eval(), cost_data=sys.argv[1] + "x")(torch.randn(32, 32))
except temper.TemperError as error:
    print(error, file=sys.stderr)
"""


def test_the_option_switches_own_constants_on_and_json_says_so(tmp_path: Path) -> None:
    from temper.cost.constants import DATA

    document = json.loads(DATA.read_text())
    for family in document["families"].values():
        for node in family["arches"].get("wormhole_b0", {"nodes": {}})["nodes"].values():
            node["factors"] = [10 * value for value in node["factors"]]
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(document))
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(mine)],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    told = json.loads(ran.stdout)
    assert told["cost_data"] == "mine.json"
    assert told["mine"] > 1.5 * told["plain"]
    assert "are those of" in ran.stderr
