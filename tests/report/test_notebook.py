"""What a notebook shows of a profile, a run, a compiled model, a ladder and a comparison."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest
import samples

import temper
from temper.report.compare import compare
from temper.report.writers import write_run
from temper.run.opening import open_profile

# A cell each; the last line is what is shown.
CELLS = {
    "model before its first call": """
import torch, temper
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval().to(torch.bfloat16)
compiled, x = temper.compile(model, chip="n150", level=1), torch.ones(32, 64, dtype=torch.bfloat16)
compiled""",
    "model": """
with torch.no_grad(), temper.profile("first") as session:
    compiled(x); compiled(x)
compiled""",
    "session": "session",
    "run": "session.run",
    "comparison": """
from pathlib import Path
from temper.report.compare import compare
from temper.run.opening import open_profile
with torch.no_grad(), temper.profile("second"):
    temper.compile(model, chip="p150", level=2)(x)
compare(open_profile(Path("first")), open_profile(Path("second")))""",
    "ladder": """
from temper.tuning.ladder import explain
explain(lambda: (torch.nn.Linear(64, 64).eval(), (torch.ones(32, 64),)), accuracy=False)""",
}


def test_a_notebook_shows_every_result_as_html(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    client = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
    pytest.importorskip("ipykernel", reason="nbclient and ipykernel are not installed")
    import nbformat

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in CELLS.values()]
    book = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(book, timeout=300, resources=resources).execute(env=dict(os.environ))
    shown = {}
    for name, cell in zip(CELLS, book.cells, strict=True):
        results = [out.data for out in cell.outputs if out.output_type == "execute_result"]
        assert len(results) == 1, (name, cell.outputs)
        shown[name] = results[0]["text/html"]
    assert "compiled at its first call" in shown["model before its first call"]
    assert re.search(r"<td>[\d.]+ µs</td><td>[\d.]+ µs to [\d.]+ µs</td>", shown["model"])
    assert shown["session"].startswith("<iframe srcdoc=")
    assert "Matmul" in shown["run"]
    assert "modelled" in shown["run"]
    assert re.search(r"µs to [\d.]+ µs \([-+][\d.]+%\), modelled", shown["comparison"])
    assert "float32, level 0" in shown["ladder"]
    assert "best: " in shown["ladder"]


def test_a_session_shows_its_report_in_a_frame_that_reaches_nothing_outside() -> None:
    with temper.profile() as session:
        pass
    session._run = samples.run()
    shown = session._repr_html_()
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" .*sandbox="allow-scripts"></iframe>', shown)
    assert frame
    page = html.unescape(frame[1])
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "Matmul" in page


def test_a_run_and_a_comparison_show_no_markup_of_names(tmp_path: Path) -> None:
    for name, chip in (("a", "n150"), ("b", "p150")):
        write_run(samples.run(chip=chip), tmp_path / name)
    compared = compare(open_profile(tmp_path / "a"), open_profile(tmp_path / "b"))
    shown = compared._repr_html_()
    assert "<table>" in shown
    assert "modelled" in shown
    table = temper.units.html_table("<b>", ["<i>"], [["<script>\x1b"]])
    assert not re.search(r"<(b|i|script)>|\x1b", table)
    # 3 plain calls and 3 replays of 120 µs.
    run = samples.run(chip="n150")._repr_html_()
    assert "24 ops of 6 calls on Wormhole n150: 720 µs, modelled" in run
    assert run.count("<tr>") == 1 + 8
