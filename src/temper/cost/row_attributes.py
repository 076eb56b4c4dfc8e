"""Attributes of measured rows (cells of a profiler's CSV) as those of a program's ops."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from temper.cost.sfpu import plain_name
from temper.program.tensor import BLOCK_FORMATS, TILE

FORMATS = {
    "BFLOAT16": "bfloat16", "BFLOAT8_B": "bfloat8_b", "BFLOAT4_B": "bfloat4_b",
    "FLOAT32": "float32", "UINT32": "uint32", "INT32": "int32", "UINT16": "uint16",
    "UINT8": "uint8", "INT8": "uint8", "FP8_E4M3": "uint8", "BOOL": "uint8",
    "BFLOAT2_B": "bfloat2_b", "BF16": "bfloat16", "FLOAT16_B": "bfloat16", "FP32": "float32",
    "BFP8": "bfloat8_b", "BFP8_B": "bfloat8_b", "BFP4": "bfloat4_b", "BFP4_B": "bfloat4_b",
}  # fmt: skip
# No count of a row (blocks, channels, positions) is larger; a cell that says so is broken.
_MOST = 1e9


def format_of(text: str) -> str:
    """The format that a cell names, with or without its namespace; bfloat16 for an unknown one."""
    return FORMATS.get(text.upper().rsplit(":", 1)[-1].strip(), "bfloat16")


def cell(row: Mapping[str, Any], name: str) -> str:
    """A cell's text, empty where the column is missing."""
    value = row.get(name)
    return "" if value is None else str(value).strip()


def numeric(row: Mapping[str, Any], name: str) -> float | None:
    """A cell's finite number, or none."""
    text = cell(row, name)
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


def count(row: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A cell's positive whole number; the default where it holds none."""
    value = numeric(row, name)
    return int(value) if value is not None and 1 <= value <= _MOST else default


@functools.lru_cache(maxsize=4096)
def sizes_in(text: str) -> tuple[int, ...]:
    """All whole numbers of a text, such as a shape; of ``32[17]`` the first, which is padded."""
    parts = re.findall(r"\d+", re.sub(r"(\d)\[\d+\]", r"\1", text))
    return tuple(int(p) for p in parts)


def attributes(row: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Attributes of a row, under the names that ops of a program use for them."""
    code = cell(row, "raw_op").rsplit("::", 1)[-1]  # older profilers print the namespace
    attrs: dict[str, Any] = {"family": family, "code": code}
    fidelity = cell(row, "fidelity")
    if fidelity:
        attrs["fidelity"] = fidelity
    for name in ("fp32_acc", "packer_l1_acc", "approx"):
        if text := cell(row, name):
            attrs[name] = text in ("1", "true", "True")
    misc = _misc(cell(row, "misc"))
    attrs["misc"] = misc
    if context := count(row, "ctx"):
        attrs["ctx"] = context
    function = cell(row, "eltwise_op") or str(misc.get("ttnn", ""))
    if cell(row, "date") and cell(row, "date") < "2026":
        attrs["older"] = True
    if family == "unary":
        attrs["functions"] = [[plain_name(f)] for f in function.split(";") if f] or [["none"]]
    elif family in ("binary", "ternary"):
        attrs["function"] = plain_name(function) if function else "add"
    fused = cell(row, "fused_act")
    if fused and family == "binary":
        side = "lhs" if fused.startswith("lhs:") else "rhs" if fused.startswith("rhs:") else "post"
        attrs[side] = [[plain_name(fused)]]
    elif fused:
        attrs["activations"] = [[plain_name(fused)]]
    if bcast := cell(row, "bcast"):
        attrs["bcast"] = bcast
    if sfpu := cell(row, "is_sfpu"):
        attrs["is_sfpu"] = sfpu == "true"
    if family in ("matmul", "sparse_matmul"):
        attrs["config"] = _matmul_config(row)
        if attrs["config"].get("name") == "auto":
            # Out-of-the-box runs take ttnn's own fidelity, whatever the table's title says.
            formats = [format_of(cell(row, n)) for n in ("in0_dtype", "in1_dtype")]
            attrs["fidelity"] = "LoFi" if all(f in BLOCK_FORMATS for f in formats) else "HiFi2"
        attrs["transpose_b"] = cell(row, "transpose_b") == "true"
        if nnz := count(row, "nnz"):
            attrs["nnz"] = nnz
    if cell(row, "win_hw"):
        attrs.update(_window(row))
    if "slice_start" in misc:
        attrs["begins"] = list(sizes_in(str(misc["slice_start"])))
        attrs["steps"] = list(sizes_in(str(misc.get("step", ""))))
    if family == "concat" and re.fullmatch(r"-?\d+", str(misc.get("dim"))):
        attrs["dim"] = int(misc["dim"])
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
    if name := cell(row, "mm_cfg"):
        config["name"] = name
    columns = ("in0_block_w", "out_subblock_h", "out_subblock_w", "out_block_h", "out_block_w")
    for name in (*columns, "per_core_M", "per_core_N"):
        if value := count(row, name):
            config[name.lower()] = value
    for name in ("mcast_in0", "gather_in0", "fuse_batch"):
        if text := cell(row, name):
            config[name] = text in ("1", "1.0", "true", "True")
    return config


def _window(row: Mapping[str, Any]) -> dict[str, Any]:
    def pair(name: str, default: int) -> list[int]:
        found = sizes_in(cell(row, name))
        return [found[0], found[1]] if len(found) >= 2 and all(found[:2]) else [default, default]

    attrs: dict[str, Any] = {
        "kernel": pair("win_hw", 1),
        "stride": pair("stride_hw", 1),
        "dilation": pair("dil_hw", 1),
        "batch": count(row, "conv_batch", 1),
        "groups": count(row, "groups", 1),
        "act_block_h": count(row, "act_block_h") * TILE,
    }
    attrs["in_h"], attrs["in_w"] = pair("in_hw", 1)
    if out := count(row, "out_ch"):
        attrs["out_channels"] = out
    for name in ("num_cores_nhw", "num_cores_c", "act_block_w"):
        if value := count(row, name):
            attrs[name] = value
    grid = sizes_in(str(_misc(cell(row, "misc")).get("grid", "")))
    if len(grid) == 2 and all(grid):
        attrs["num_cores_c"], attrs["num_cores_nhw"] = grid
    if bias := cell(row, "has_bias"):
        attrs["has_bias"] = bias == "true"
    return attrs
