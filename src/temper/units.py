"""How numbers and names are shown to people: times, bytes, rates, text; one way everywhere."""

from __future__ import annotations

import html
import os
import sys
import textwrap
from codecs import register_error
from collections.abc import Iterable, Sequence

# What would move the cursor, recolour the terminal or reorder a line: C0, DEL, C1, and the marks
# of bidirectional text. Newlines and tabs stay.
_CONTROL = {
    code: "\ufffd"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}
_ASCII = {"µ": "u", "μ": "u", "×": "x", "→": "->", "…": "...", "–": "-", "·": "."}


def shown(text: str) -> str:
    """A name from a file or a model, safe to print on a terminal."""
    return text.translate(_CONTROL)


def html_table(above: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A line and a table, as notebooks show them; names are text, never markup."""

    def line(tag: str, cells: Sequence[str]) -> str:
        inner = "".join(f"<{tag}>{html.escape(shown(str(cell)))}</{tag}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    body = "".join(line("td", row) for row in rows)
    head = f"<p>{html.escape(shown(above))}</p>"
    return f"{head}<table><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    part = error.object[error.start : error.end]
    return "".join(_ASCII.get(char, "?") for char in part), error.end


def write_any_text() -> None:
    """Let the standard streams take any text, also where they are told to be ASCII."""
    register_error("temper.units", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="temper.units")


def piped_width() -> int:
    """COLUMNS where it is set; a pipe has no width, and 80 would cut what a file can hold."""
    given = os.environ.get("COLUMNS", "")
    return max(20, int(given)) if given.isdigit() else 140


def hanging(line: str, width: int, indent: int) -> str:
    """A line broken to a width, its further lines below the text of the first; words stay whole."""
    return textwrap.fill(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def time_text(ns: float) -> str:
    """Three significant digits in the unit that a person would use."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def bytes_text(size: float) -> str:
    """Bytes in units of a thousand."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def rate_text(tflops: float) -> str:
    """A rate of arithmetic for people."""
    for unit, scale in (("TFLOP/s", 1.0), ("GFLOP/s", 1e3)):
        if tflops * scale >= 1:
            return f"{tflops * scale:.3g} {unit}"
    return f"{tflops * 1e6:.3g} MFLOP/s"
