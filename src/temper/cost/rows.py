"""Measured rows (CSV of profiler results) as the same records that a program's ops are."""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temper.chips import ARCHITECTURES, CHIPS, Chip
from temper.cost.records import Context
from temper.cost.sfpu import plain_name
from temper.errors import BadFileError
from temper.program.op import Op
from temper.program.tensor import BLOCK_FORMATS, DRAM, SRAM, Memory, TensorSpec, ceil_div

REQUIRED = ("arch", "op", "kernel_ns", "in0_pad", "in0_dtype", "in0_mem", "out0_pad")
FORMATS = {
    "BFLOAT16": "bfloat16", "BFLOAT8_B": "bfloat8_b", "BFLOAT4_B": "bfloat4_b",
    "FLOAT32": "float32", "UINT32": "uint32", "INT32": "int32", "UINT16": "uint16",
    "UINT8": "uint8", "INT8": "uint8", "FP8_E4M3": "uint8",
}  # fmt: skip
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


def convert(cells: Iterable[Mapping[str, Any]]) -> tuple[list[Row], list[Rejected]]:
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
    arch = ARCHES.get(_text(row, "arch").lower())
    if arch is None:
        raise ValueError(f"unknown arch {_text(row, 'arch')!r}")
    measured = _number(row, "kernel_ns")
    if measured is None:
        raise ValueError("kernel_ns is empty or not a number")
    if measured <= 0:
        raise ValueError(f"kernel_ns {measured:g} is not positive")
    if not SHORTEST_NS <= measured <= LONGEST_NS:
        raise ValueError(f"kernel_ns {measured:g} is absurd; is it in nanoseconds?")
    chip = _chip(arch, _text(row, "board"))
    cores = int(_number(row, "cores") or 0)
    available = int(_number(row, "avail_cores") or 0)
    spread_over = cores or available or chip.compute_cores
    inputs = tuple(
        s for p in ("in0", "in1", "in2") if (s := _spec(row, p, spread_over)) is not None
    )
    out = _spec(row, "out0", spread_over)
    if out is None:
        if not inputs:
            raise ValueError("no tensor shape")
        out = inputs[0]
    family = _text(row, "op") or "other"
    low, high = _number(row, "kernel_ns_p10"), _number(row, "kernel_ns_p90")
    spread = (high - low) / 2 / measured if low and high and high >= low else None
    traced = {"true": True, "false": False}.get(_text(row, "traced").lower())
    return Row(
        number,
        _text(row, "source") or "?",
        Op(KIND_OF.get(family, family), (), (), _attrs(row, family)),
        inputs,
        (out,),
        chip,
        Context(max(cores, 0), max(available, 0), traced, measured=True),
        measured,
        spread,
        _weight(row),
    )


def _weight(row: Mapping[str, Any]) -> float:
    """Kernels change: rows of 2026 count fully, older and derived ones less."""
    date = _text(row, "date")
    weight = 1.0 if not date or date >= "2026" else 0.5
    if _text(row, "quality").startswith("ci_target"):
        weight *= 0.5
    return weight


def _chip(arch: str, board: str) -> Chip:
    name = board.lower().removesuffix("a")
    if name in CHIPS and CHIPS[name].arch == arch:
        return CHIPS[name]
    return CHIPS[ARCHITECTURES[arch].row_board]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def _number(row: Mapping[str, Any], name: str) -> float | None:
    text = _text(row, name)
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


@functools.lru_cache(maxsize=4096)
def _shape(text: str) -> tuple[int, ...]:
    parts = re.findall(r"\d+", text)
    return tuple(int(p) for p in parts)


def _spec(row: Mapping[str, Any], prefix: str, cores: int) -> TensorSpec | None:
    padded = _text(row, prefix + "_pad")
    if not padded:
        return None
    shape = _shape(_text(row, prefix + "_log") or padded) or _shape(padded)
    if not shape or 0 in shape:
        return None
    shard = _text(row, "out_shard_shape") if prefix == "out0" else ""
    return _make_spec(
        shape,
        _text(row, prefix + "_dtype"),
        _text(row, prefix + "_layout"),
        _text(row, prefix + "_mem"),
        cores,
        shard,
    )


@functools.lru_cache(maxsize=16384)
def _make_spec(
    shape: tuple[int, ...], dtype: str, layout: str, memory: str, cores: int, shard: str
) -> TensorSpec:
    fmt = FORMATS.get(dtype.upper(), "bfloat16")
    rows = layout.upper().startswith("ROW") and fmt not in BLOCK_FORMATS
    plain = TensorSpec(shape, fmt, "row_major" if rows else "tile")
    return plain.with_memory(_memory(plain, memory.upper(), cores, shard))


def _memory(spec: TensorSpec, text: str, cores: int, shard: str) -> Memory:
    """Files name the kind of memory but hold no grid of inputs: spread over the cores that ran."""
    buffer = "sram" if text.startswith("L1") else "dram"
    if "SHARDED" not in text:
        return SRAM if buffer == "sram" else DRAM
    sharding = next((s for s in ("height", "width", "block") if s.upper() in text), "height")
    height, width = spec.physical_2d
    count = max(1, cores if buffer == "sram" else 8)
    sizes = _shape(shard)
    if len(sizes) == 2:
        count = max(1, ceil_div(height, sizes[0]) * ceil_div(width, sizes[1]))
        piece = (sizes[0], sizes[1])
    elif sharding == "width":
        piece = (height, ceil_div(width, count))
    else:
        piece = (ceil_div(height, count), width)
    return Memory(buffer, sharding, (count, 1), piece)  # type: ignore[arg-type]


def _attrs(row: Mapping[str, Any], family: str) -> dict[str, Any]:
    attrs: dict[str, Any] = {"family": family, "code": _text(row, "raw_op")}
    fidelity = _text(row, "fidelity")
    if fidelity:
        attrs["fidelity"] = fidelity
    for name in ("fp32_acc", "packer_l1_acc", "approx"):
        if text := _text(row, name):
            attrs[name] = text in ("1", "true", "True")
    misc = _misc(_text(row, "misc"))
    attrs["misc"] = misc
    if context := _number(row, "ctx"):
        attrs["ctx"] = int(context)
    function = _text(row, "eltwise_op") or str(misc.get("ttnn", ""))
    if _text(row, "date") and _text(row, "date") < "2026":
        attrs["older"] = True
    if family == "unary":
        attrs["functions"] = [[plain_name(f)] for f in function.split(";") if f] or [["none"]]
    elif family in ("binary", "ternary"):
        attrs["function"] = plain_name(function) if function else "add"
    fused = _text(row, "fused_act")
    if fused and family == "binary":
        side = "lhs" if fused.startswith("lhs:") else "rhs" if fused.startswith("rhs:") else "post"
        attrs[side] = [[plain_name(fused)]]
    elif fused:
        attrs["activations"] = [[plain_name(fused)]]
    if bcast := _text(row, "bcast"):
        attrs["bcast"] = bcast
    if sfpu := _text(row, "is_sfpu"):
        attrs["is_sfpu"] = sfpu == "true"
    if family in ("matmul", "sparse_matmul"):
        attrs["config"] = _matmul_config(row)
        if attrs["config"].get("name") == "auto":
            # Out-of-the-box runs take ttnn's own fidelity, whatever the table's title says.
            formats = [FORMATS.get(_text(row, n).upper()) for n in ("in0_dtype", "in1_dtype")]
            attrs["fidelity"] = "LoFi" if all(f in BLOCK_FORMATS for f in formats) else "HiFi2"
        attrs["transpose_b"] = _text(row, "transpose_b") == "true"
        if nnz := _number(row, "nnz"):
            attrs["nnz"] = int(nnz)
    if _text(row, "win_hw"):
        attrs.update(_window(row))
    return attrs


def _misc(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _matmul_config(row: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if name := _text(row, "mm_cfg"):
        config["name"] = name
    columns = ("in0_block_w", "out_subblock_h", "out_subblock_w", "out_block_h", "out_block_w")
    for name in (*columns, "per_core_M", "per_core_N"):
        value = _number(row, name)
        if value and value > 0:
            config[name.lower()] = int(value)
    for name in ("mcast_in0", "gather_in0", "fuse_batch"):
        if text := _text(row, name):
            config[name] = text in ("1", "1.0", "true", "True")
    return config


def _window(row: Mapping[str, Any]) -> dict[str, Any]:
    def pair(name: str, default: int) -> list[int]:
        found = _shape(_text(row, name))
        return [found[0], found[1]] if len(found) >= 2 else [default, default]

    attrs: dict[str, Any] = {
        "kernel": pair("win_hw", 1),
        "stride": pair("stride_hw", 1),
        "dilation": pair("dil_hw", 1),
        "batch": int(_number(row, "conv_batch") or 1),
        "groups": int(_number(row, "groups") or 1),
        "act_block_h": int(_number(row, "act_block_h") or 0),
    }
    attrs["in_h"], attrs["in_w"] = pair("in_hw", 1)
    if (out := _number(row, "out_ch")) is not None:
        attrs["out_channels"] = int(out)
    for name in ("num_cores_nhw", "num_cores_c", "act_block_w"):
        if (value := _number(row, name)) is not None:
            attrs[name] = int(value)
    if bias := _text(row, "has_bias"):
        attrs["has_bias"] = bias == "true"
    return attrs
