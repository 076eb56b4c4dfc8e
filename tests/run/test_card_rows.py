"""Profiles of the user's own card against the shipped fit."""

from __future__ import annotations

import csv
import json
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
    assert shown.word == "modelled with mine.json"
