"""On a local Ray cluster the same pipeline gives the same rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from temper import etl
from temper.errors import BadFileError, UsageError
from temper.etl import distributed, synthetic
from temper.etl.distributed import run_on_ray
from temper.etl.vocabulary import Words

ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'tt-temper[ray]'")


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> object:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def pipeline(**gen: object) -> etl.Pipeline:
    steps = [etl.Neg2Zero(), etl.Logarithm("log1p"), etl.Hex2Int(), etl.Modulus(1000)]
    return etl.Pipeline([*steps, etl.VocabGen(**gen), etl.VocabMap()])  # type: ignore[arg-type]


@pytest.mark.parametrize("gen", [{}, {"min_count": 3, "order": "frequency", "max_size": 200}])
def test_a_cluster_gives_what_one_process_gives(tmp_path: Path, gen: dict[str, object]) -> None:
    days = [tmp_path / f"day_{day}.tsv" for day in range(3)]
    for day, path in enumerate(days):
        synthetic.write_criteo_like(path, 2000, seed=day)
    expected = pipeline(**gen).table(days)
    report = run_on_ray(pipeline(**gen), days, tmp_path / "out")
    parts = [parquet.read_table(tmp_path / "out" / part) for part in report.parts]
    assert pa.concat_tables(parts).combine_chunks().equals(expected.combine_chunks())
    assert report.rows == 6000


@pytest.mark.parametrize("name", ["day.tsv", "day.parquet"])
def test_one_large_file_is_cut_into_tasks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    synthetic.write_criteo_like(path, 5000, seed=1)
    if name.endswith("parquet"):
        parquet.write_table(parquet.read_table(path), path, row_group_size=700)
    expected = pipeline(min_count=2).table(path)
    report = run_on_ray(pipeline(min_count=2), path, tmp_path / "out", split_bytes=100_000)
    assert len({part.split("-")[1] for part in report.parts}) > 3
    parts = [parquet.read_table(tmp_path / "out" / part) for part in report.parts]
    assert pa.concat_tables(parts).combine_chunks().equals(expected.combine_chunks())


def test_keys_merged_as_a_tree_are_those_of_one_list() -> None:
    rng = np.random.default_rng(0)
    counted = []
    for _ in range(20):
        keys, first, counts = np.unique(
            rng.integers(0, 50, 30), return_index=True, return_counts=True
        )
        order = np.argsort(first)
        counted.append({"c": Words(keys[order].astype(np.int64), counts[order].astype(np.int64))})
    at_once = distributed.combine(counted)["c"]
    level: list[Any] = counted
    while len(level) > 1:
        level = [distributed.combine(level[at : at + 3]) for at in range(0, len(level), 3)]
    assert level[0]["c"].keys.tolist() == at_once.keys.tolist()
    assert level[0]["c"].counts.tolist() == at_once.counts.tolist()
    assert int(at_once.counts.sum()) == 600


def test_a_users_mistake_comes_back_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    synthetic.write_criteo_like(path, 10)
    path.write_text(path.read_text() + "bad\n")
    with pytest.raises(BadFileError, match="row 11"):
        run_on_ray(pipeline(), path, tmp_path / "out")


def test_a_broken_run_on_a_cluster_continues_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [tmp_path / f"day_{day}.tsv" for day in range(3)]
    for day, path in enumerate(days):
        synthetic.write_criteo_like(path, 500, seed=day)
    expected = pipeline().table(days)
    whole = distributed._each

    def broken(*given: Any) -> Iterator[tuple[int, Any]]:
        for number, result in whole(*given):
            yield number, result
            if isinstance(result, distributed.Mapped):
                raise KeyboardInterrupt

    monkeypatch.setattr(distributed, "_each", broken)
    with pytest.raises(KeyboardInterrupt):
        run_on_ray(pipeline(), days, tmp_path / "out")
    monkeypatch.setattr(distributed, "_each", whole)
    with pytest.raises(UsageError, match="earlier run"):
        run_on_ray(pipeline(), days, tmp_path / "out")
    with pytest.raises(UsageError, match="cannot be continued"):
        pipeline().run(days, tmp_path / "out", resume=True)
    report = run_on_ray(pipeline(), days, tmp_path / "out", resume=True)
    parts = [parquet.read_table(tmp_path / "out" / part) for part in report.parts]
    assert pa.concat_tables(parts).combine_chunks().equals(expected.combine_chunks())
    assert report.resumed
    assert report.rows == 1500
