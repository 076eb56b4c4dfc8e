"""Profiler rows of the user's own card: as rows of the cost model, and as its correction."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temper.cost.constants import DATA, parse
from temper.cost.model import estimate_op
from temper.cost.rows import Rejected, Row, convert
from temper.errors import BadFileError
from temper.files import write_text
from temper.program.table import KINDS

_TIME = "DEVICE KERNEL DURATION [ns]"
_FAMILY = {kind.code: kind.family for kind in KINDS.values()} | {
    "TilizeDeviceOperation": "tilize", "UntilizeDeviceOperation": "untilize",
    "UntilizeCodegenDeviceOperation": "untilize", "RepeatCodegenDeviceOperation": "repeat",
    "RotaryEmbeddingDeviceOperation": "rope",
}  # fmt: skip
# Fewer rows of a family than this say too little about a card.
_LEAST = 3


@dataclass(frozen=True)
class Correction:
    """How far the shipped fit is off on one card: measured over modelled, by family."""

    rows: int
    rejected: tuple[Rejected, ...]
    factors: Mapping[tuple[str, str], tuple[float, int]]  # (family, arch) -> factor, rows

    def as_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "rejected": len(self.rejected),
            "rejected_rows": [
                {"line": row.number, "op": row.op, "reason": row.reason} for row in self.rejected
            ],
            "families": [
                {"family": family, "arch": arch, "measured_over_modelled": factor, "rows": count}
                for (family, arch), (factor, count) in sorted(self.factors.items())
            ],
        }


def read(path: Path, arch: str) -> tuple[list[Row], list[Rejected]]:
    """The rows of a device profile's CSV, or of the one in a run folder."""
    source = _file(path)
    try:
        with source.open(newline="", encoding="utf-8", errors="replace") as stream:
            reader = csv.DictReader(stream)
            names = reader.fieldnames or []
            missing = [n for n in ("OP CODE", _TIME) if n not in names]
            if missing:
                raise BadFileError(f"{source} is no device profile", needs=f"columns {missing}")
            table = list(reader)
    except OSError as error:
        raise BadFileError(f"cannot read {source}: {error.strerror or error}") from None
    if any('"modelled"' in (row.get("PROGRAM_METADATA") or "") for row in table):
        raise BadFileError(
            f"the times in {source} are modelled: they say nothing about a card",
            try_="a profile of a run on a card",
        )
    return convert(_cells(row, arch, source.stem) for row in table)


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.rglob("ops_perf_results*.csv"))
    if not found:
        raise BadFileError(f"{path} holds no ops_perf_results CSV")
    return found[-1]


def _cells(row: Mapping[str, str], arch: str, source: str) -> dict[str, Any]:
    code = (row.get("OP CODE") or "").strip()
    made: dict[str, Any] = {
        "source": source,
        "arch": (row.get("DEVICE ARCH") or arch).strip(),
        "op": _FAMILY.get(code, "other"),
        "kernel_ns": row.get(_TIME),
        "cores": row.get("CORE COUNT") or "",
        "avail_cores": row.get("AVAILABLE WORKER CORE COUNT") or "",
        "fidelity": row.get("MATH FIDELITY") or "",
        "traced": "true" if (row.get("METAL TRACE ID") or "").strip() else "false",
    }
    for ours, theirs in (("in0", "INPUT_0"), ("in1", "INPUT_1"), ("in2", "INPUT_2"),
                         ("out0", "OUTPUT_0")):  # fmt: skip
        made.update(_tensor(row, ours, theirs))
    return made


def _tensor(row: Mapping[str, str], ours: str, theirs: str) -> Iterator[tuple[str, str]]:
    sizes = [row.get(f"{theirs}_{axis}_PAD[LOGICAL]") or row.get(f"{theirs}_{axis}") or ""
             for axis in "WZYX"]  # fmt: skip
    parts = [re.match(r"\s*(\d+)(?:\[(\d+)\])?", size) for size in sizes]
    if all(parts):
        yield f"{ours}_pad", "x".join(p.group(1) for p in parts if p)
        yield f"{ours}_log", "x".join(p.group(2) or p.group(1) for p in parts if p)
    yield f"{ours}_layout", row.get(f"{theirs}_LAYOUT") or ""
    yield f"{ours}_dtype", row.get(f"{theirs}_DATATYPE") or ""
    yield f"{ours}_mem", re.sub(r"^DEV_\d+_", "", row.get(f"{theirs}_MEMORY") or "")


def compare(rows: Sequence[Row], rejected: Sequence[Rejected]) -> Correction:
    """Measured over modelled, the median of each family that has rows enough."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        cost = estimate_op(row.op, row.inputs, row.outputs, row.chip, context=row.context)
        ratios.setdefault((row.family, row.chip.arch), []).append(row.kernel_ns / cost.kernel_ns)
    factors = {
        key: (round(statistics.median(found), 4), len(found))
        for key, found in ratios.items()
        if len(found) >= _LEAST
    }
    return Correction(len(rows), tuple(rejected), factors)


def store(correction: Correction, path: Path) -> None:
    """The shipped constants with each family's time scaled to this card, as a file of its own."""
    document = json.loads(DATA.read_text())
    for (family, arch), (factor, _) in correction.factors.items():
        part = document["families"].get(family, {}).get("arches", {}).get(arch)
        for node in (part or {"nodes": {}})["nodes"].values():
            node["factors"] = [value * factor for value in node["factors"]]
    document["corrected"] = correction.as_dict()
    parse(document)  # a correction that cannot be read back replaces nothing
    write_text(path, json.dumps(document))
