"""An interrupted run continues: no row lost, none twice, the same files as without a break."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from temper import etl
from temper.cli import main
from temper.errors import BadFileError, TemperError, UsageError
from temper.etl import synthetic
from temper.etl.output import MANIFEST

ROWS = 20_000


class Interrupt(Exception):
    """Stands for Ctrl-C, a full disk or a lost machine."""


@pytest.fixture(scope="module", params=["day.tsv", "day.parquet"])
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteo") / request.param
    synthetic.write_criteo_like(path, ROWS, seed=3)
    return path


def pipeline(**gen: int) -> etl.Pipeline:
    steps = [etl.Neg2Zero(), etl.Logarithm("log1p"), etl.Hex2Int(), etl.Modulus(5000)]
    return etl.Pipeline([*steps, etl.VocabGen(**gen), etl.VocabMap()], rows_per_part=1500)


def read(folder: Path) -> pa.Table:
    return pa.concat_tables(parquet.read_table(file) for file in sorted(folder.glob("part-*")))


@pytest.mark.parametrize("gen", [{}, {"min_count": 3}])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_run_broken_after_any_part_ends_as_an_unbroken_one(
    day: Path, tmp_path: Path, gen: dict[str, int], after: int
) -> None:
    whole = pipeline(**gen).run(day, tmp_path / "whole")
    calls = 0

    def stop(progress: etl.Progress) -> None:
        nonlocal calls
        calls += progress.stage == "rows"
        if calls > after:
            raise Interrupt

    with pytest.raises(Interrupt):
        pipeline(**gen).run(day, tmp_path / "broken", progress=stop)
    (tmp_path / "broken" / "part-00077.parquet").write_bytes(b"left over")
    again = pipeline(**gen)
    report = again.run(day, tmp_path / "broken", resume=True)
    assert report.resumed
    assert report.rows == whole.rows == ROWS
    assert report.parts == whole.parts
    assert read(tmp_path / "broken").equals(read(tmp_path / "whole"))
    files = {file.name for file in (tmp_path / "broken").iterdir()}
    assert files == {file.name for file in (tmp_path / "whole").iterdir()}
    words = [feather.read_table(str(tmp_path / name / "_vocabulary.arrow")) for name in
             ("broken", "whole")]  # fmt: skip
    assert words[0].equals(words[1])


def test_the_command_says_that_a_finished_run_has_nothing_left(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["etl", str(day), "-o", str(tmp_path / "out")]
    for more, says in (([], "measured: "), (["--resume"], "nothing to do: an earlier run")):
        with pytest.raises(SystemExit):
            main([*words, *more])
        shown = capsys.readouterr().out
        assert says in shown
        assert ("GB/s" in shown) == (not more)


def test_resuming_a_finished_run_does_nothing(day: Path, tmp_path: Path) -> None:
    first = pipeline().run(day, tmp_path / "out")
    stamp = (tmp_path / "out" / first.parts[0]).stat().st_mtime_ns
    second = pipeline().run(day, tmp_path / "out", resume=True)
    assert second.rows == first.rows
    assert second.vocabulary_sizes == first.vocabulary_sizes
    assert (tmp_path / "out" / first.parts[0]).stat().st_mtime_ns == stamp


def test_another_pipeline_or_input_cannot_continue(day: Path, tmp_path: Path) -> None:
    pipeline().run(day, tmp_path / "out")
    with pytest.raises(UsageError, match="earlier run"):
        pipeline().run(day, tmp_path / "out")
    with pytest.raises(UsageError, match=r"the pipeline .* changed"):
        pipeline(min_count=2).run(day, tmp_path / "out", resume=True)
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    manifest["inputs"][0]["size"] += 1
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="the input files changed"):
        pipeline().run(day, tmp_path / "out", resume=True)
    (tmp_path / "out" / MANIFEST).write_text("{")
    with pytest.raises(BadFileError, match="damaged"):
        pipeline().run(day, tmp_path / "out", resume=True)


def test_arrow_output_and_compression(day: Path, tmp_path: Path) -> None:
    expected = pipeline().table(day)
    for compression in ("none", "zstd"):
        folder = tmp_path / compression
        report = pipeline().run(day, folder, format="arrow", compression=compression)
        parts = [feather.read_table(str(folder / part)) for part in report.parts]
        assert pa.concat_tables(parts).combine_chunks().equals(expected.combine_chunks())
    with pytest.raises(UsageError, match="no output format"):
        pipeline().run(day, tmp_path / "x", format="xml")


def test_progress_counts_rows_and_bytes_up_to_the_whole(day: Path, tmp_path: Path) -> None:
    seen: list[etl.Progress] = []
    pipeline().run(day, tmp_path / "out", progress=seen.append)
    assert seen[-1].rows == ROWS
    assert seen[-1].bytes_done == seen[-1].bytes_total == day.stat().st_size
    assert [item.rows for item in seen] == sorted(item.rows for item in seen)


def broken(day: Path, folder: Path, **options: object) -> etl.Pipeline:
    """A run that stopped after its first part."""

    def stop(progress: etl.Progress) -> None:
        if progress.stage == "rows":
            raise Interrupt

    made = pipeline()
    with pytest.raises(Interrupt):
        made.run(day, folder, progress=stop, **options)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("other", [{"format": "arrow"}, {"compression": "zstd"}])
def test_another_format_or_compression_is_another_run(
    day: Path, tmp_path: Path, other: dict[str, str]
) -> None:
    broken(day, tmp_path / "out")
    with pytest.raises(UsageError, match="cannot be continued"):
        pipeline().run(day, tmp_path / "out", resume=True, **other)


def test_other_vocabularies_are_another_run(day: Path, tmp_path: Path) -> None:
    pipeline().fit(day).save_vocabularies(tmp_path / "words.arrow")
    broken(day, tmp_path / "out")
    with pytest.raises(UsageError, match="cannot be continued"):
        pipeline().load_vocabularies(tmp_path / "words.arrow").run(
            day, tmp_path / "out", resume=True
        )


def test_the_pipeline_that_was_interrupted_continues_by_itself(day: Path, tmp_path: Path) -> None:
    whole = pipeline().run(day, tmp_path / "whole")
    again = broken(day, tmp_path / "out").run(day, tmp_path / "out", resume=True)
    assert again.resumed
    assert again.rows == whole.rows
    assert read(tmp_path / "out").equals(read(tmp_path / "whole"))


def test_a_leftover_temporary_file_does_not_stop_a_continuation(day: Path, tmp_path: Path) -> None:
    broken(day, tmp_path / "out")
    for name in (".part-00001.parquet.7.9.part", "_words-9.arrow.part", f".{MANIFEST}.part"):
        (tmp_path / "out" / name).write_bytes(b"half")
    assert pipeline().run(day, tmp_path / "out", resume=True).rows == ROWS
    assert not list((tmp_path / "out").rglob("*.part"))


def test_two_runs_into_one_folder_do_not_mix(day: Path, tmp_path: Path) -> None:
    seen = []

    def second(progress: etl.Progress) -> None:
        with pytest.raises(TemperError, match="another run writes"):
            pipeline().run(day, tmp_path / "out", resume=True)
        seen.append(progress)

    assert pipeline().run(day, tmp_path / "out", progress=second).rows == ROWS
    assert seen
    assert pipeline().run(day, tmp_path / "out", resume=True).rows == ROWS  # the lock is free
