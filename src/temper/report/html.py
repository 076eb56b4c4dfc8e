"""The HTML report: one file with its data, style and script inside, and no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temper.files import write_text
from temper.report.advice import Advice
from temper.report.advise import advise_profile
from temper.report.report_data import report_data
from temper.run.opening import Profile, profile_of_run
from temper.run.records import Run

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = (
    "base.js", "table.js", "detail.js", "timeline.js", "charts.js", "graph_layout.js", "graph.js",
    "main.js",
)  # fmt: skip


def write_html(what: Run | Profile, path: Path, *, advice: Sequence[Advice] | None = None) -> None:
    """Write the report of a run's warm calls, or of an opened profile."""
    profile = what if isinstance(what, Profile) else profile_of_run(what, _title(what))
    given = advise_profile(profile) if advice is None else advice
    write_text(path, render(report_data(profile, given)))


def embedded(profile: Profile) -> str:
    """The page inside a notebook's cell, in a frame of its own."""
    page = render(report_data(profile, advise_profile(profile)))
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" style="width:100%;height:640px;'
        'border:1px solid #ccc" sandbox="allow-scripts"></iframe>'
    )


def render(data: dict[str, Any]) -> str:
    """The page of a report, with everything in it."""
    page = (_PAGE / "page.html").read_text(encoding="utf-8")
    script = "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    # "<" is the only character that can end a script element; names may hold anything.
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    style = (_PAGE / "style.css").read_text(encoding="utf-8")
    parts = {
        "{{title}}": html.escape(f"{data['title']} - temper"),
        "{{style}}": style,
        "{{data}}": text,
        "{{script}}": script,
    }
    # Taken apart rather than replaced: the data may contain any of the marks.
    pieces = []
    rest = page
    for mark, part in parts.items():
        before, _, rest = rest.partition(mark)
        pieces += [before, part]
    return "".join([*pieces, rest])


def _title(run: Run) -> str:
    return str(run.meta.get("command") or "profile")
