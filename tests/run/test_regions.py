"""Several devices, signposts and chips of a card's CSV, as tt-perf-report reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples

from temper.errors import BadFileError, UsageError
from temper.report.summary import summarise
from temper.report.writers import write_run
from temper.run.opening import open_profile
from temper.run.regions import Region, signposts

Cells = tuple[str, str, int | str, int | str]

HEAD = (
    "OP CODE,OP TYPE,GLOBAL CALL COUNT,DEVICE ID,HOST START TS,OP TO OP LATENCY [ns],"
    "DEVICE KERNEL DURATION [ns],CORE COUNT\n"
)


def write(path: Path, rows: list[Cells]) -> Path:
    """Code, type, device, duration."""
    lines = [
        f"{code},{kind},{i},{device},{i},0,{duration},8"
        for i, (code, kind, device, duration) in enumerate(rows)
    ]
    path.write_text(HEAD + "\n".join(lines) + "\n")
    return path


def device(code: str, number: int | str, duration: int | str) -> Cells:
    return code, "tt_dnn_device", number, duration


def mark(name: str) -> Cells:
    return name, "signpost", "", ""


def total(path: Path, **how: object) -> float:
    return summarise(open_profile(path, **how)).split.device  # type: ignore[arg-type]


def test_of_several_devices_the_slowest_counts_and_of_collectives_the_mean(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        [
            device("Matmul", 0, 100), device("Matmul", 1, 300), device("AllGather", 0, 50),
            device("AllGather", 1, 150), device("Unary", 0, 40), device("Unary", 1, 20),
        ],
    )  # fmt: skip
    opened = open_profile(path)
    assert summarise(opened).split.device == 300 + (50 + 150) / 2 + 40
    assert summarise(opened).ops == 3
    assert any("2 devices" in note for note in opened.table.notes)


def test_devices_that_ran_different_ops_are_not_summed(tmp_path: Path) -> None:
    rows = [device("Matmul", 0, 100), device("Unary", 1, 30), device("Unary", 1, 30)]
    opened = open_profile(write(tmp_path / "a.csv", rows))
    assert summarise(opened).split.device == 100
    assert any("device 0, the busiest" in note for note in opened.table.notes)


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    return write(
        tmp_path / "m.csv",
        [
            device("A", 0, 1), mark("start"), device("B", 0, 10), mark("stop"), device("C", 0, 100),
            mark("start"), device("D", 0, 1000), mark("stop"),
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        (None, 1111),
        (Region(), 1000),  # after the last signpost that an op follows
        (Region(whole=True), 1111),
        (Region(start="start"), 1110),
        (Region(start="start", end="stop"), 10),
        (Region(end="start"), 1),
        (Region(start="start", end="start"), 110),
    ],
)
def test_a_region_lies_between_signposts(
    marked: Path, region: Region | None, expected: float
) -> None:
    assert total(marked, region=region) == expected


def test_a_signpost_that_is_not_there_is_an_error_with_those_that_are(marked: Path) -> None:
    assert signposts(open_profile(marked).table) == ["start", "stop", "start", "stop"]
    with pytest.raises(UsageError, match="begin") as caught:
        open_profile(marked, region=Region(start="begin"))
    assert "start, stop" in str(caught.value)


def test_a_run_folder_has_regions_too(tmp_path: Path) -> None:
    folder = write_run(samples.run(), tmp_path / "run")
    whole = open_profile(folder)
    assert whole.run is not None
    [name] = {process.name(m["ref"]) for process in whole.run.processes
              for m in process.of_kind(3)}  # fmt: skip
    before = open_profile(folder, region=Region(end=name)).run
    after = open_profile(folder, region=Region(start=name)).run
    assert before is not None
    assert after is not None
    assert before.op_count + after.op_count == whole.run.op_count
    assert before.op_count
    assert after.op_count
    with pytest.raises(UsageError, match="nowhere"):
        open_profile(folder, region=Region(start="nowhere"))


def test_a_duration_that_is_no_number_is_an_error_with_its_line(tmp_path: Path) -> None:
    rows = [device("A", 0, 5), device("B", 0, "abc")]
    with pytest.raises(BadFileError, match=r"line 3.*'abc'"):
        open_profile(write(tmp_path / "a.csv", rows))


def test_the_chip_may_be_given_where_the_file_does_not_say(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [device("A", 0, 5)])
    assert any("--chip" in note for note in open_profile(path).table.notes)
    assert open_profile(path, chip="p150").table.arch == "p150"
    with pytest.raises(UsageError):
        open_profile(path, chip="p900")


def test_a_folder_is_not_searched_for_the_profiles_of_others(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "ops_perf_results.csv", [device("A", 0, 5)])
    with pytest.raises(BadFileError, match="holds no profile") as caught:
        open_profile(tmp_path)
    assert "temper report" in str(caught.value)


def test_compiling_is_no_gap_that_a_trace_would_save(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        HEAD + "A,tt_dnn_device,1,0,1,900000000,10,8\nA,tt_dnn_device,2,0,2,7000,10,8\n"
    )
    opened = open_profile(path)
    assert summarise(opened).split.gap == 7000
    assert any("0.9 s for their kernels" in note for note in opened.table.notes)
