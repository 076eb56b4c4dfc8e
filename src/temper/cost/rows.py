"""Measured rows (CSV of profiler results) as the same records that a program's ops are."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temper.chips import ARCHITECTURES, CHIPS, Chip
from temper.cost.records import Context
from temper.cost.row_attributes import attributes, cell, count, format_of, numeric, sizes_in
from temper.errors import BadFileError
from temper.program.op import Op
from temper.program.tensor import BLOCK_FORMATS, DRAM, SRAM, Memory, TensorSpec, ceil_div

REQUIRED = ("arch", "op", "kernel_ns", "in0_pad", "in0_dtype", "in0_mem", "out0_pad")
ARCHES = {**{name: name for name in ARCHITECTURES}, "wormhole": "wormhole_b0"}
# A kernel shorter than 50 ns or longer than 100 s is a wrong unit, not a measurement.
SHORTEST_NS, LONGEST_NS = 50.0, 1e11

# family of a row -> kind of operation in a program, where there is one
KIND_OF = {
    "matmul": "Matmul", "conv2d": "Conv2d", "unary": "Unary", "binary": "BinaryNg",
    "ternary": "Ternary", "slice": "Slice", "tilize": "Tilize", "untilize": "Untilize",
    "sharded_to_interleaved": "ShardedToInterleaved", "reshape": "Reshape", "reshard": "Reshard",
    "interleaved_to_sharded": "InterleavedToSharded", "transpose": "Transpose", "copy": "Copy",
    "typecast": "Typecast", "permute": "Permute", "concat": "Concat", "repeat": "Repeat",
    "embedding": "Embeddings", "reduce": "Reduce", "softmax": "Softmax", "layernorm": "LayerNorm",
    "rmsnorm": "LayerNorm", "groupnorm": "GroupNorm", "rope": "RotaryEmbedding", "sdpa": "Sdpa",
    "pad": "Pad", "pool": "Pool2d", "upsample": "Upsample", "halo": "Halo", "cumsum": "CumSum",
    "topk": "TopK",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One measured configuration: the op, its run, and the time it took."""

    number: int  # line in the file, the header being line 1
    source: str
    op: Op
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    chip: Chip
    context: Context
    kernel_ns: float
    spread: float | None  # half-width of p10..p90 relative to the median
    weight: float = 1.0

    @property
    def family(self) -> str:
        return str(self.op.attrs["family"])


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be used, and why."""

    number: int
    op: str
    reason: str


def read(path: Path) -> tuple[list[Row], list[Rejected]]:
    """All usable rows of a file, and the others with their line numbers and reasons."""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as stream:
            reader = csv.DictReader(stream)
            names = reader.fieldnames or []
            missing = [name for name in REQUIRED if name not in names]
            if missing:
                raise BadFileError(
                    f"{path} is not a file of measured rows",
                    needs=f"columns {' '.join(missing)}",
                    try_="the columns of `temper calibrate --help`",
                )
            return convert(reader)
    except OSError as error:
        raise BadFileError(f"cannot read {path}: {error.strerror or error}") from error
    except csv.Error as error:
        raise BadFileError(f"{path} is not a CSV file: {error}") from error


def read_all(paths: Iterable[Path]) -> tuple[list[Row], list[Rejected]]:
    """The rows of several files as one table."""
    rows: list[Row] = []
    rejected: list[Rejected] = []
    for path in paths:
        usable, others = read(path)
        rows += usable
        rejected += others
    return rows, rejected


def convert(cells: Iterable[Mapping[str, Any]]) -> tuple[list[Row], list[Rejected]]:
    """Rows of measured tables as the model takes them, and those that it cannot take."""
    rows: list[Row] = []
    rejected: list[Rejected] = []
    for number, row in enumerate(cells, start=2):
        try:
            rows.append(convert_row(row, number))
        except ValueError as error:
            rejected.append(Rejected(number, str(row.get("op") or "?"), str(error)))
    return rows, rejected


def convert_row(row: Mapping[str, Any], number: int = 0) -> Row:
    """One row as records; raises ValueError with the reason when it cannot be used."""
    arch = ARCHES.get(cell(row, "arch").lower())
    if arch is None:
        raise ValueError(f"unknown arch {cell(row, 'arch')!r}")
    measured = numeric(row, "kernel_ns")
    if measured is None:
        raise ValueError("kernel_ns is empty or not a number")
    if measured <= 0:
        raise ValueError(f"kernel_ns {measured:g} is not positive")
    if not SHORTEST_NS <= measured <= LONGEST_NS:
        raise ValueError(f"kernel_ns {measured:g} is absurd; is it in nanoseconds?")
    chip = _chip(arch, cell(row, "board"))
    cores, available = (_cores(row, name) for name in ("cores", "avail_cores"))
    spread_over = cores or available or chip.compute_cores
    inputs = tuple(
        s for p in ("in0", "in1", "in2") if (s := _spec(row, p, spread_over)) is not None
    )
    out = _spec(row, "out0", spread_over)
    if out is None:
        if not inputs:
            raise ValueError("no tensor shape")
        out = inputs[0]
    family = cell(row, "op").lower() or "other"
    low, high = numeric(row, "kernel_ns_p10"), numeric(row, "kernel_ns_p90")
    spread = (high - low) / 2 / measured if low and high and high >= low else None
    traced = {"true": True, "false": False}.get(cell(row, "traced").lower())
    return Row(
        number,
        cell(row, "source") or "?",
        Op(KIND_OF.get(family, family), (), (), attributes(row, family)),
        inputs,
        (out,),
        chip,
        Context(cores, available, traced, measured=True),
        measured,
        spread,
        _weight(row) * (UNKNOWN_GRID if _grid_unknown(row, family, out, cores, available) else 1.0),
    )


def _cores(row: Mapping[str, Any], name: str) -> int:
    """Cores that a row names; 0 for none, and for more than any chip has."""
    told = count(row, name)
    return told if told <= _MOST_CORES else 0


_MOST_CORES = 2 * max(chip.compute_cores for chip in CHIPS.values())
# Elementwise rows on shards of an unknown grid: their time says little about a core's work.
UNKNOWN_GRID = 0.05
_ELEMENTWISE = frozenset({"unary", "binary", "ternary", "typecast", "copy"})


def _grid_unknown(
    row: Mapping[str, Any], family: str, out: TensorSpec, cores: int, available: int
) -> bool:
    if family not in _ELEMENTWISE or not out.memory.sharded or cell(row, "out_shard_shape"):
        return False
    return bool(cores) and cores >= (available or cores)


def _weight(row: Mapping[str, Any]) -> float:
    """Kernels change: rows of 2026 count fully; older, undated and derived ones less."""
    date = cell(row, "date")
    weight = 1.0 if date >= "2026" else 0.5
    quality = cell(row, "quality")
    if quality.startswith("ci_target"):
        weight *= 0.5
    if quality.endswith("_unknown"):
        weight *= 0.2  # the tensors' memory is a guess
    return weight


def _chip(arch: str, board: str) -> Chip:
    name = board.lower().removesuffix("a")
    if name in CHIPS and CHIPS[name].arch == arch:
        return CHIPS[name]
    return CHIPS[ARCHITECTURES[arch].row_board]


def _spec(row: Mapping[str, Any], prefix: str, cores: int) -> TensorSpec | None:
    padded = cell(row, prefix + "_pad")
    if not padded:
        return None
    shape = sizes_in(cell(row, prefix + "_log") or padded) or sizes_in(padded)
    if not shape or 0 in shape:
        return None
    shard = cell(row, "out_shard_shape") if prefix == "out0" else ""
    return _make_spec(
        shape,
        cell(row, prefix + "_dtype"),
        cell(row, prefix + "_layout"),
        cell(row, prefix + "_mem"),
        cores,
        shard,
    )


@functools.lru_cache(maxsize=16384)
def _make_spec(
    shape: tuple[int, ...], dtype: str, layout: str, memory: str, cores: int, shard: str
) -> TensorSpec:
    fmt = format_of(dtype)
    told = layout.upper()
    rows = ("ROW" in told or told == "RM") and fmt not in BLOCK_FORMATS
    plain = TensorSpec(shape, fmt, "row_major" if rows else "tile")
    return plain.with_memory(_memory(plain, memory.upper(), cores, shard))


def _memory(spec: TensorSpec, text: str, cores: int, shard: str) -> Memory:
    """Files name the kind of memory but hold no grid of inputs: spread over the cores that ran."""
    buffer = "sram" if "L1" in text else "dram"
    if "SHARDED" not in text:
        return SRAM if buffer == "sram" else DRAM
    sharding = next((s for s in ("height", "width", "block") if s.upper() in text), "height")
    height, width = spec.physical_2d
    shards = max(1, cores if buffer == "sram" else 8)
    sizes = sizes_in(shard)
    if len(sizes) == 2 and all(sizes):
        shards = max(1, ceil_div(height, sizes[0]) * ceil_div(width, sizes[1]))
        piece = (sizes[0], sizes[1])
    elif sharding == "width":
        piece = (height, ceil_div(width, shards))
    else:
        piece = (ceil_div(height, shards), width)
    return Memory(buffer, sharding, (shards, 1), piece)  # type: ignore[arg-type]
