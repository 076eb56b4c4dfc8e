"""The batch curve for people: table with bars, PNG, and a self-contained page."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temper.files import write_text
from temper.tuning.batch import BatchCurve
from temper.tuning.pictures import figure, save

_BAR = 24
COLUMNS = ("batch", "samples/s", "band", "latency ms", "SRAM per core, B", "DRAM, MB", "in SRAM")


def rows(curve: BatchCurve) -> list[list[str]]:
    """Cells of ``COLUMNS`` and a bar."""
    most = curve.point(curve.best).samples_per_s
    made = []
    for p in curve.points:
        bar = "█" * max(1, round(_BAR * p.samples_per_s / most))
        mark = " best" if p.batch == curve.best else ""
        made.append(
            [
                str(p.batch),
                f"{p.samples_per_s:,.0f}",
                f"{p.low_samples_per_s:,.0f} to {p.high_samples_per_s:,.0f}",
                f"{p.latency_ns / 1e6:.3f}",
                f"{p.sram_bytes_per_core:,}",
                f"{p.dram_bytes / 1e6:,.1f}",
                f"{p.sram_share:.0%}",
                bar + mark,
            ]
        )
    return made


def draw(curve: BatchCurve, title: str) -> Any:
    """Throughput with its band, and latency, by batch."""
    picture, axes = figure(8.0)
    batches = [p.batch for p in curve.points]
    axes.fill_between(
        batches,
        [p.low_samples_per_s for p in curve.points],
        [p.high_samples_per_s for p in curve.points],
        color="#4c78a8",
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(batches, [p.samples_per_s for p in curve.points], "o-", color="#4c78a8")
    axes.axvline(curve.best, color="#54a24b", linestyle="--", linewidth=1)
    axes.annotate(f"best {curve.best}", (curve.best, axes.get_ylim()[1]), fontsize=8, va="top")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("batch")
    axes.set_ylabel("samples/s, modelled", color="#4c78a8")
    other = axes.twinx()
    other.plot(batches, [p.latency_ns / 1e6 for p in curve.points], ".:", color="#e45756")
    other.set_yscale("log")
    other.set_ylabel("latency, ms, modelled", color="#e45756")
    axes.set_title(title)
    axes.spines[["top"]].set_visible(False)
    other.spines[["top"]].set_visible(False)
    return picture


def write_picture(curve: BatchCurve, title: str, path: Path) -> None:
    """Draw the curve of a sweep to a file."""
    save(draw(curve, title), path)


def write_html(curve: BatchCurve, title: str, path: Path) -> None:
    """One file: the curve as SVG, the table, the reasons."""
    heads = [*COLUMNS]
    body = [line[:-1] for line in rows(curve)]
    remarks = [curve.ended, curve.reason, curve.advice, "All times are modelled; nothing was run."]
    write_page(path, title, svg(draw(curve, title)), heads, body, remarks)


def svg(picture: Any) -> str:
    """A figure as an SVG element."""
    held = io.StringIO()
    picture.savefig(held, format="svg")
    text = held.getvalue()
    return text[text.index("<svg") :]


def write_page(
    path: Path,
    title: str,
    drawing: str,
    heads: Sequence[str],
    body: Sequence[Sequence[str]],
    remarks: Sequence[str],
) -> None:
    """A self-contained page, written beside and renamed."""
    cells = "".join(f"<th>{html.escape(h)}</th>" for h in heads)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in line) + "</tr>" for line in body
    )
    said = "".join(f"<p>{html.escape(r)}</p>" for r in remarks if r)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #222; }}
table {{ border-collapse: collapse; }} svg {{ max-width: 100%; height: auto; }}
th, td {{ padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; }}
</style></head><body><h1>{html.escape(title)}</h1>
{drawing}<table><tr>{cells}</tr>{lines}</table>{said}</body></html>
"""
    write_text(path, page)
