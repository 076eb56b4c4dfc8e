"""What a notebook shows of a profile and of a comparison."""

from __future__ import annotations

import html
import re
from pathlib import Path

import samples

import temper
from temper.report.compare import compare
from temper.report.writers import write_run
from temper.run.opening import open_profile


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


def test_a_comparison_shows_its_changes_and_no_markup_of_names(tmp_path: Path) -> None:
    for name, chip in (("a", "n150"), ("b", "p150")):
        write_run(samples.run(chip=chip), tmp_path / name)
    compared = compare(open_profile(tmp_path / "a"), open_profile(tmp_path / "b"))
    shown = compared._repr_html_()
    assert "<table>" in shown
    assert "modelled" in shown
