"""``temper etl`` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from temper import etl
from temper.etl import synthetic


def run(*arguments: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "temper", "etl", *arguments], cwd=cwd,
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


def test_a_file_becomes_parts_and_a_report(tmp_path: Path) -> None:
    done = run("day.tsv", "--synthesise", "3000", "-o", "out", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["rows"] == 3000
    expected = etl.criteo_pipeline().table(tmp_path / "day.tsv")
    parts = [parquet.read_table(tmp_path / "out" / part) for part in report["parts"]]
    assert pa.concat_tables(parts).combine_chunks().equals(expected.combine_chunks())
    assert "earlier run" in run("day.tsv", "-o", "out", cwd=tmp_path, code=2).stderr
    assert "3,000" in run("day.tsv", "-o", "out", "--resume", cwd=tmp_path).stdout


@pytest.mark.parametrize("compression", ["packed", "lz4"])
def test_no_run_waits_for_pandas(tmp_path: Path, compression: str) -> None:
    pytest.importorskip("pandas")
    synthetic.write_criteo_like(tmp_path / "day.tsv", 100)
    script = (
        "import sys; from temper import etl\n"
        f"etl.criteo_pipeline(50).run('day.tsv', 'out', compression='{compression}')\n"
        "etl.criteo_pipeline(50).run('day.tsv', 'arrow', format='arrow')\n"
        "etl.criteo_pipeline(50).table('day.tsv')\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120, check=True)  # fmt: skip
    assert done.stdout == "False\n"


def test_saved_vocabularies_serve_the_next_file(tmp_path: Path) -> None:
    synthetic.write_criteo_like(tmp_path / "a.tsv", 500, seed=1)
    synthetic.write_criteo_like(tmp_path / "b.tsv", 500, seed=2)
    run("a.tsv", "--save-vocabulary", "words.arrow", cwd=tmp_path)
    done = run("b.tsv", "--vocabulary", "words.arrow", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["unseen"]


def test_a_pipeline_file_says_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("-1\tff\n2\t10\n")
    (tmp_path / "schema.json").write_text(json.dumps({"columns": [
        {"name": "n"}, {"name": "h", "kind": "hex", "role": "category"}]}))  # fmt: skip
    (tmp_path / "pipe.json").write_text(json.dumps({"schema": "schema.json", "operators": [
        {"operator": "Neg2Zero"}, {"operator": "Hex2Int"},
        {"operator": "Modulus", "divisor": 100}]}))  # fmt: skip
    run("x.tsv", "--pipeline", "pipe.json", "-o", "out", cwd=tmp_path)
    table = parquet.read_table(tmp_path / "out" / "part-00000.parquet")
    assert table.to_pydict() == {"n": [0, 2], "h": [55, 16]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.tsv"], "no input"),
        (["x.tsv", "--engine", "spark"], "no engine"),
        (["x.tsv", "--on-error", "ignore"], "on_error"),
        (["x.tsv", "--pipeline", "bad.json"], "no operator 'Warp'"),
        (["x.tsv", "-o", "out", "--format", "xml"], "no output format"),
    ],
)
def test_mistakes_are_told_in_one_line_each(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "x.tsv").write_text("")
    (tmp_path / "bad.json").write_text('{"operators": [{"operator": "Warp"}]}')
    done = run(*arguments, cwd=tmp_path, code=2)
    assert done.stderr.startswith("temper: ")
    assert message in done.stderr


def test_a_malformed_row_ends_with_its_place_or_is_counted(tmp_path: Path) -> None:
    synthetic.write_criteo_like(tmp_path / "x.tsv", 10)
    with open(tmp_path / "x.tsv", "a", encoding="utf-8") as file:
        file.write("1\t2\n")
    assert "row 11: wrong number of columns" in run("x.tsv", cwd=tmp_path, code=2).stderr
    done = run("x.tsv", "--on-error", "skip", cwd=tmp_path)
    assert "1 rows: wrong number of columns" in done.stdout
