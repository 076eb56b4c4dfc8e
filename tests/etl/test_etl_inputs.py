"""What a pipeline reads and writes: globs, partitions, URLs, frames, text, datasets, ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from temper import etl
from temper.errors import BadFileError, UsageError
from temper.etl import synthetic
from temper.etl.inputs import open_sources, split_source

SCHEMA = etl.Schema(
    "four",
    (etl.Column("label", role="label", bits=32), etl.Column("n"), etl.Column("f", "float"),
     etl.Column("word", "text", "category")),
)  # fmt: skip
FRAME = {
    "label": [0, 1, 1, 0],
    "n": [1, -2, 3, 4],
    "f": [0.5, 1.5, 2.5, 3.5],
    "word": ["red", 'a "b", c', "red", "grün"],
}
WANTED = {"label": [0, 1, 1, 0], "n": [1, 0, 3, 4], "f": FRAME["f"], "word": [1, 2, 1, 3]}


def pipeline(**options: Any) -> etl.Pipeline:
    steps = [etl.Neg2Zero(), etl.Hash(), etl.VocabGen(), etl.VocabMap()]
    return etl.Pipeline(steps, SCHEMA, **options)


@pytest.fixture
def table() -> pa.Table:
    return pa.table(FRAME)


def write_csv(path: Path) -> Path:
    lines = ["0,1,0.5,red", '1,-2,1.5,"a ""b"", c"', '1,3,2.5,"red"', "0,4,3.5,grün"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("pure", ["", "1"])
def test_text_has_the_same_identifiers_wherever_it_comes_from(
    tmp_path: Path, table: pa.Table, pure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPER_PURE", pure)
    parquet.write_table(table, tmp_path / "x.parquet")
    for source in (table, pl.from_arrow(table), table.to_pandas(), write_csv(tmp_path / "x.csv"),
                   tmp_path / "x.parquet"):  # fmt: skip
        assert pipeline().table(source).to_pydict() == WANTED
    fitted = pipeline().fit(write_csv(tmp_path / "x.csv"))
    assert fitted.transform(tmp_path / "x.parquet").__next__().to_pydict() == WANTED


def test_results_come_as_frames(table: pa.Table) -> None:
    assert pipeline().polars(table).to_dict(as_series=False) == WANTED
    assert pipeline().pandas(table)["word"].tolist() == WANTED["word"]


def test_globs_and_folders_are_read_in_the_order_of_their_names(
    tmp_path: Path, table: pa.Table
) -> None:
    for number in (2, 0, 1):
        (tmp_path / str(number)).mkdir()
        parquet.write_table(table.slice(number, 1), tmp_path / str(number) / "x.parquet")
    (tmp_path / "_SUCCESS").touch()
    whole = pipeline().table(tmp_path)
    assert whole.to_pydict()["label"] == [0, 1, 1]
    assert pipeline().table(str(tmp_path / "*" / "x.parquet")).equals(whole)
    assert pipeline().table([tmp_path / "0", tmp_path / "[12]"]).equals(whole)
    with pytest.raises(UsageError, match="no file matches"):
        pipeline().table(str(tmp_path / "*.tsv"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_folders_named_key_equals_value_are_columns(
    tmp_path: Path, table: pa.Table, kind: str
) -> None:
    for label in (0, 1):
        rows = pl.from_arrow(table).filter(pl.col("label") == label).drop("label")
        folder = tmp_path / f"label={label}"
        folder.mkdir()
        write = rows.write_parquet if kind == "parquet" else rows.write_csv
        write(folder / f"x.{kind}")
    made = pipeline().table(tmp_path).to_pydict()
    assert made["label"] == [0, 0, 1, 1]
    assert made["n"] == [1, 4, 0, 3]


def test_a_partitioned_output_reads_back_as_it_was(tmp_path: Path, table: pa.Table) -> None:
    report = pipeline().run(table, tmp_path / "out", partition_by="label")
    assert {part.split("/")[0] for part in report.parts} == {"label=0", "label=1"}
    found = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=True)
    assert sorted(found["n"].to_list()) == sorted(WANTED["n"])
    assert pipeline().run(table, tmp_path / "out", partition_by="label", resume=True).resumed
    with pytest.raises(UsageError, match="no column 'colour'"):
        pipeline().run(table, tmp_path / "other", partition_by="colour")


def test_urls_are_read_and_written_through_fsspec(table: pa.Table) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    files = fsspec.filesystem("memory")
    with files.open("/logs/a.parquet", "wb") as file:
        parquet.write_table(table.slice(0, 2), file)
    with files.open("/logs/b.csv", "wb") as file:
        file.write(b'1,3,2.5,"red"\n0,4,3.5,gr\xc3\xbcn\n')
    assert pipeline().table("memory://logs").to_pydict() == WANTED
    assert pipeline().table("memory://logs/a.*").num_rows == 2
    report = pipeline().run("memory://logs", "memory://out")
    assert report.rows == 4
    with files.open(f"/out/{report.parts[0]}", "rb") as file:
        assert parquet.read_table(file).to_pydict() == WANTED
    assert pipeline().run("memory://logs", "memory://out", resume=True).rows == 4
    with pytest.raises(UsageError, match="no input"):
        pipeline().table("memory://nowhere.csv")


def test_only_wanted_columns_come_out(table: pa.Table) -> None:
    assert pipeline(columns=["word", "n"]).table(table).to_pydict() == {
        "n": WANTED["n"],
        "word": WANTED["word"],
    }
    with pytest.raises(UsageError, match="no column 'm' comes out"):
        pipeline(columns=["m"])


def test_a_dataset_gives_batches_of_one_shape(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from temper.etl.torch_data import PipelineDataset

    days = [tmp_path / f"{day}.tsv" for day in range(3)]
    for day, path in enumerate(days):
        synthetic.write_criteo_like(path, 1000, seed=day)
    made = etl.criteo_pipeline(1000)
    with pytest.raises(UsageError, match="no vocabulary yet"):
        PipelineDataset(made, days, 256)
    made.fit(days)
    batches = list(PipelineDataset(made, days, 256))
    assert [len(batch["label"]) for batch in batches] == [256] * 11 + [3000 - 11 * 256]
    assert batches[0]["dense"].shape == (256, 13)
    assert batches[0]["dense"].dtype == torch.float32
    whole = made.table(days)
    assert torch.cat([b["category"] for b in batches])[:, 0].tolist() == whole["C1"].to_pylist()
    loader = torch.utils.data.DataLoader(
        PipelineDataset(made, days, 500), batch_size=None, num_workers=2
    )
    assert sum(len(batch["label"]) for batch in loader) == 3000


@pytest.mark.parametrize("name", ["day.tsv", "day.parquet"])
def test_ranges_of_a_file_make_the_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    synthetic.write_criteo_like(path, 5000, seed=1)
    if name.endswith("parquet"):
        parquet.write_table(parquet.read_table(path), path, row_group_size=300)
    made = etl.criteo_pipeline(1000)
    whole = made.table(path)
    rng = np.random.default_rng(0)
    for split_bytes in (1, 1000, 77_777, int(rng.integers(1, 400_000))):
        [source] = open_sources(path, made.schema)
        if name.endswith("tsv") and split_bytes == 1:
            continue  # a task a byte is many
        parts = split_source(source, split_bytes)
        assert len(parts) > 1 or split_bytes > 400_000
        found = pa.Table.from_batches([b for part in parts for b in made.stream([part])])
        assert found.equals(whole)


def test_a_batch_that_is_kept_holds_no_more_memory_than_its_rows(tmp_path: Path) -> None:
    """Many small inputs: buffers of a whole part for each took 46 MB for four rows."""
    path = tmp_path / "day.tsv"
    synthetic.write_criteo_like(path, 100, seed=1)
    [batch] = etl.criteo_pipeline(1000).fit_transform(path)
    assert batch.num_rows == 100
    assert max(b.size for c in batch.columns for b in c.buffers() if b is not None) <= 100 * 8


def test_a_frames_integers_with_gaps_are_integers_and_its_truth_values_too() -> None:
    """pandas keeps them as floats with NaN; a fraction among them is still told."""
    schema = etl.Schema("counts", (etl.Column("n", "int", missing=-1), etl.Column("yes", "int")))
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [3, None, -(2**40)], "yes": [True, False, True]})
    assert frame["n"].dtype == float
    made = etl.Pipeline([], schema).table(frame)
    assert made["n"].to_pylist() == [3, -1, -(2**40)]
    assert made["yes"].to_pylist() == [1, 0, 1]
    with pytest.raises(BadFileError, match="'n' is double, its chain needs integers"):
        etl.Pipeline([], schema).table(frame.assign(n=[0.5, 1, 2]))


def test_an_output_among_the_inputs_is_refused_before_its_parts_are_read(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    parquet.write_table(pa.table(FRAME), tmp_path / "logs" / "a.parquet")
    below = tmp_path / "logs" / "features"
    with pytest.raises(UsageError, match="lies in the output folder"):
        pipeline().run(tmp_path / "logs", tmp_path / "logs")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a.parquet"]
    pipeline().run(tmp_path / "logs", below)
    with pytest.raises(UsageError, match=r"part-00000.parquet lies in the output folder"):
        pipeline().run(tmp_path / "logs", below)
    hidden = tmp_path / "logs" / "_features"
    for name in ("one", "two"):  # what starts with _ is left out when a folder is read
        report = pipeline().run(tmp_path / "logs" / "a.parquet", hidden / name)
        assert report.rows == 4


def test_an_option_that_inputs_do_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown option rows_per_part"):
        pipeline().run(pa.table(FRAME), tmp_path, rows_per_part=2)
