"""Vocabularies: floor, bound, order, out-of-vocabulary, streams, files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from temper import etl
from temper.errors import BadFileError, UsageError
from temper.etl import vocabulary

SCHEMA = etl.Schema("one", (etl.Column("h", "hex", "category"),))


def write(path: Path, values: list[int]) -> Path:
    path.write_text("".join(f"{value:x}\n" for value in values))
    return path


def values(seed: int, count: int = 5000, top: int = 400) -> list[int]:
    rng = np.random.default_rng(seed)
    return (top * rng.random(count) ** 3).astype(int).tolist()


@pytest.mark.parametrize("modulus", [0, 1 << 20])  # hashed and direct tables
@pytest.mark.parametrize("order", ["appearance", "frequency"])
@pytest.mark.parametrize(("floor", "bound"), [(1, None), (5, None), (1, 50), (3, 20)])
def test_floor_bound_and_order(
    tmp_path: Path, modulus: int, order: str, floor: int, bound: int | None
) -> None:
    data = values(1)
    path = write(tmp_path / "x.tsv", data)
    steps = [etl.Hex2Int()] + ([etl.Modulus(modulus)] if modulus else [])
    gen = etl.VocabGen(min_count=floor, max_size=bound, order=order)
    found = etl.Pipeline([*steps, gen, etl.VocabMap()], SCHEMA).table(path)["h"].to_pylist()

    counts = Counter(data)
    seen = list(dict.fromkeys(data))
    kept = [key for key in seen if counts[key] >= floor]
    frequent = sorted(kept, key=lambda key: -counts[key])[: bound or len(kept)]
    ordered = frequent if order == "frequency" else [key for key in kept if key in set(frequent)]
    ids = {key: index for index, key in enumerate(ordered, 1)}
    assert found == [ids.get(key, 0) for key in data]


def test_unseen_values_take_the_out_of_vocabulary_identifier(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", [3, 1, 3])
    test = write(tmp_path / "test.tsv", [1, 9, 3, 9])
    for oov, expected in ((0, [2, 0, 1, 0]), (-1, [1, -1, 0, -1])):
        pipeline = etl.Pipeline([etl.Hex2Int(), etl.VocabGen(), etl.VocabMap(oov)], SCHEMA)
        batches = list(pipeline.fit(train).transform(test))
        assert batches[0]["h"].to_pylist() == expected
        assert pipeline.counters.unseen == {"h": 2}


def test_saved_vocabularies_give_the_same_identifiers(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", values(2))
    pipeline = etl.Pipeline([etl.Hex2Int(), etl.VocabGen(), etl.VocabMap()], SCHEMA).fit(train)
    expected = next(iter(pipeline.transform(train)))
    pipeline.save_vocabularies(tmp_path / "words.arrow")
    fresh = etl.Pipeline([etl.Hex2Int(), etl.VocabMap()], SCHEMA)
    fresh.load_vocabularies(tmp_path / "words.arrow")
    assert next(iter(fresh.transform(train))).equals(expected)
    counts = pipeline.vocabularies["h"].counts
    assert sorted(counts.tolist()) == sorted(Counter(values(2)).values())


def test_mapping_without_a_vocabulary_says_how_to_get_one(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", [1])
    with pytest.raises(UsageError, match="has no vocabulary"):
        etl.Pipeline([etl.Hex2Int(), etl.VocabMap()], SCHEMA).table(path)


def test_too_many_distinct_values_stop_before_memory_does(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", list(range(1000)))
    gen = etl.VocabGen(max_tracked=100)
    with pytest.raises(BadFileError, match="more distinct values"):
        etl.Pipeline([etl.Hex2Int(), gen, etl.VocabMap()], SCHEMA).table(path)


@pytest.mark.parametrize("content", [b"", b"ARROW1 no", b"\x80\x04pickle"])
def test_foreign_vocabulary_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "words.arrow"
    path.write_bytes(content)
    with pytest.raises(BadFileError, match="not a vocabulary file"):
        vocabulary.load(path)
    with pytest.raises(BadFileError, match="no vocabulary file"):
        vocabulary.load(tmp_path / "none.arrow")


def test_skipped_rows_are_not_counted(tmp_path: Path) -> None:
    schema = etl.Schema("two", (etl.Column("n"), etl.Column("h", "hex", "category")))
    path = tmp_path / "x.tsv"
    path.write_text("1\ta\nx\tb\n2\tc\n")
    gen = etl.VocabGen(order="frequency")
    pipeline = etl.Pipeline([etl.Hex2Int(), gen, etl.VocabMap()], schema, on_error="skip")
    assert pipeline.table(path)["h"].to_pylist() == [1, 2]
    assert pipeline.vocabularies["h"].keys.tolist() == [10, 12]
