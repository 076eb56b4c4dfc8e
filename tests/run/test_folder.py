"""The run folder: everything in it, read back, damaged, or from a newer version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import samples

from temper import files
from temper.errors import BadFileError, TemperError
from temper.record.capture import Capture
from temper.report import writers
from temper.report.writers import write_run
from temper.run import folder
from temper.run.opening import open_profile


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_run(samples.run(host_op=True), tmp_path / "run")


def test_a_run_folder_has_every_file_that_it_lists(saved: Path) -> None:
    for name in json.loads((saved / "run.json").read_text())["files"]:
        assert (saved / name).exists(), name
    assert not list(saved.rglob("*.part"))


def test_a_run_is_read_back_as_it_was(saved: Path) -> None:
    before, after = samples.run(host_op=True), folder.read_run(saved)
    assert after.op_count == before.op_count
    assert [str(r) for r in after.top(4)] == [str(r) for r in before.top(4)]
    assert len(after.processes[0].events) == len(before.processes[0].events)


def test_run_json_says_what_is_measured_and_what_modelled(saved: Path) -> None:
    data = json.loads((saved / "run.json").read_text())
    assert data["clocks"]["device"].startswith("modelled")
    assert data["clocks"]["host"].startswith("measured")
    assert data["chip"] == "n150"
    program = data["processes"][0]["programs"][0]
    assert program["meta"]["options"] == {"optimization_level": 1}


def test_a_newer_version_is_read_as_far_as_it_is_understood(saved: Path) -> None:
    path = saved / "run.json"
    data = json.loads(path.read_text())
    data |= {"format": 99, "invention": {"x": 1}}
    data["processes"][0]["programs"][0]["cost"]["ops"][0]["new_field"] = 7
    path.write_text(json.dumps(data))
    run = folder.read_run(saved)
    assert run.op_count == 30
    assert any("newer temper" in note for note in run.notes)


def test_a_run_of_an_older_format_falls_back_to_its_csv(saved: Path) -> None:
    path = saved / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    with pytest.raises(BadFileError, match="older temper"):
        folder.read_run(saved)
    assert open_profile(saved).table.rows == 30 + 1  # and the signpost


def test_truncated_events_keep_what_is_whole(saved: Path) -> None:
    path = saved / "events.bin"
    path.write_bytes(path.read_bytes()[:-50])
    run = folder.read_run(saved)
    assert 0 < run.op_count <= 30
    assert any("truncated" in note for note in run.notes)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"format": "x"}', b"\xff\xfe\x00"]
)
def test_a_damaged_run_json_falls_back_to_the_csv(saved: Path, content: bytes) -> None:
    (saved / "run.json").write_bytes(content)
    profile = open_profile(saved)
    assert profile.run is None
    assert profile.table.rows == 31


def test_an_unknown_board_costs_its_program_only(saved: Path) -> None:
    path = saved / "run.json"
    data = json.loads(path.read_text())
    data["processes"][0]["programs"][0]["program"]["chip"] = "x900"
    path.write_text(json.dumps(data))
    run = folder.read_run(saved)
    assert run.op_count == 15
    assert any("x900" in note for note in run.notes)


def test_a_program_whose_output_is_nowhere_costs_that_program_only(saved: Path) -> None:
    path = saved / "run.json"
    data = json.loads(path.read_text())
    data["processes"][0]["programs"][0]["program"]["outputs"] = ["nowhere"]
    path.write_text(json.dumps(data))
    run = folder.read_run(saved)
    assert run.op_count == 15
    assert any("nowhere" in note for note in run.notes)


def test_a_folder_without_a_profile_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="holds no profile"):
        open_profile(tmp_path)


def test_a_folder_whose_profiler_was_killed_says_how_to_finish_it(tmp_path: Path) -> None:
    Capture.inside(tmp_path).open().close()
    with pytest.raises(BadFileError, match="was not finished") as caught:
        open_profile(tmp_path)
    assert f"temper profile --finish {tmp_path}" in str(caught.value)


def test_a_tt_metal_folder_is_searched_for_its_newest_report(tmp_path: Path, saved: Path) -> None:
    place = tmp_path / "generated" / "profiler" / "reports" / "2026_01_01"
    place.mkdir(parents=True)
    (place / "ops_perf_results_2026_01_01.csv").write_bytes(
        (saved / "ops_perf_results.csv").read_bytes()
    )
    assert open_profile(tmp_path / "generated").table.rows == 31


def test_one_file_that_cannot_be_written_does_not_cost_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(run: object, path: Path) -> None:
        raise TemperError(f"cannot write {path}")

    target = tmp_path / "run"
    monkeypatch.setattr(writers, "write_perfetto", refused)
    with pytest.raises(TemperError, match=r"trace\.perfetto-trace"):
        write_run(samples.run(), target)
    assert (target / "report.html").is_file()
    assert (target / "ops_perf_results_v2.csv").is_file()


def test_writing_twice_replaces_and_leaves_foreign_files_alone(saved: Path) -> None:
    (saved / "mine.txt").write_text("keep")
    write_run(samples.run(), saved)
    assert (saved / "mine.txt").read_text() == "keep"
    assert folder.read_run(saved).op_count == 24


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    target = tmp_path / "ops.csv"

    def write() -> None:
        with files.replacing_path(target) as beside:
            beside.symlink_to(full)
            beside.write_bytes(b"x" * (2 << 20))

    with pytest.raises(TemperError, match=f"{target.name}: No space left"):
        write()
    assert not list(tmp_path.iterdir())
