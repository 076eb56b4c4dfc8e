"""Measured ops beside what the cost model expects of them: where a card lost time, and to what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from temper import chips
from temper.chips import FIDELITY_PHASES, Chip
from temper.cost.model import estimate_op
from temper.cost.records import OpCost
from temper.cost.rows import Row, convert_row
from temper.errors import TemperError
from temper.run.records import MEASURED
from temper.run.table import OpTable, Text, combined
from temper.units import time_text

# Distinct configurations that are judged, largest time first: the rest is too small to matter.
_MAX_CONFIGURATIONS = 64
_MOST_CORES = 4095  # more are no core count
# An op's code, as any version of tt-metal writes it, and the family that the cost model knows.
_FAMILIES = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        ("SparseMatmul", "sparse_matmul"), ("Matmul", "matmul"), ("Halo", "halo"),
        ("Conv2d|OptimizedConv", "conv2d"), ("BinaryNg|Binary", "binary"), ("Ternary", "ternary"),
        ("Unary", "unary"), ("Typecast", "typecast"), ("Untilize", "untilize"),
        ("Tilize", "tilize"), ("InterleavedToSharded", "interleaved_to_sharded"),
        ("ShardedToInterleaved", "sharded_to_interleaved"), ("Reshard", "reshard"),
        ("SdpaDecode|ScaledDotProductAttentionDecode", "sdpa_decode"),
        ("SDPA|ScaledDotProduct", "sdpa"), ("Softmax", "softmax"), ("GroupNorm", "groupnorm"),
        ("LayerNorm|RMSNorm", "layernorm"), ("RotaryEmbedding", "rope"),
        ("Embedding", "embedding"), ("Transpose", "transpose"), ("Permute", "permute"),
        ("Reshape", "reshape"), ("Slice", "slice"), ("Concat(?!Heads)", "concat"),
        ("ConcatHeads|CreateHeads|CreateQKVHeads", "heads"), ("FillPad", "fill_pad"),
        ("Pad", "pad"), ("Pool2D|MaxPool|AvgPool", "pool"), ("Upsample|UpSample", "upsample"),
        ("Reduce", "reduce"), ("Repeat", "repeat"), ("Copy|Clone", "copy"), ("Move", "move"),
        ("TopK|ArgMax", "topk"), ("Cache", "kv_cache"),
    )
)  # fmt: skip
_NUMBER = {
    name: re.compile(rf"\b{name}=(\d+)")
    for name in (
        "in0_block_w", "out_subblock_h", "out_subblock_w", "out_block_h", "out_block_w",
        "per_core_M", "per_core_N", "mcast_in0", "fuse_batch",
    )
}  # fmt: skip
_PAIR = {
    cell: re.compile(rf"\b{name}=\((\d+);\s*(\d+)\)")
    for cell, name in (
        ("win_hw", "window_hw"), ("stride_hw", "stride_hw"), ("in_hw", "input_hw"),
        ("dil_hw", "dilation_hw"),
    )
}  # fmt: skip
_BATCH = re.compile(r"\bbatch_size=(\d+)")
_CONFIG = re.compile(r"(\w+?)ProgramConfig\(")
_FUNCTION = re.compile(r"(?:BinaryOpType|UnaryOpType|TernaryOpType)::(\w+)")
_SETTING = {
    "fp32_acc": re.compile(r"fp32_dest_acc_en=(\w+)"),
    "packer_l1_acc": re.compile(r"packer_l1_acc=(\w+)"),
    "transpose_b": re.compile(r"'transpose_b': '(\w+)'"),
    "groups": re.compile(r"'groups': '(\d+)'"),
    "out_ch": re.compile(r"'output_channels': '(\d+)'"),
}
_PLACE = re.compile(r"^DEV_\d+_")


@dataclass(frozen=True)
class Judged:
    """One configuration of an op, measured and modelled."""

    code: str
    shape: str
    formats: str
    where: str
    count: int
    measured_ns: float  # of one execution, on average
    modelled_ns: float
    low_ns: float
    high_ns: float
    bound: str  # as modelled
    flops_share: float  # of the peak of the cores that ran, at the op's fidelity
    dram_share: float  # of the chip's peak rate
    cores: int
    available: int
    row: Row

    @property
    def lost_ns(self) -> float:
        """Time beyond what the model expects, of all executions; below zero when faster."""
        return (self.measured_ns - self.modelled_ns) * self.count

    @property
    def verdict(self) -> str:
        if self.measured_ns > self.high_ns:
            return "slower than modelled"
        return "faster than modelled" if self.measured_ns < self.low_ns else "as modelled"

    def as_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "row"}
        return {**plain, "lost_ns": self.lost_ns, "verdict": self.verdict}

    def again(self, row: Row) -> OpCost:
        """The cost of another way to run it."""
        return estimate_op(row.op, row.inputs, row.outputs, row.chip, context=row.context)


def judge(table: OpTable) -> tuple[OpTable, list[Judged]]:
    """The table with the modelled bound where its columns show none, and the judged ops, those
    that lost most time first. Modelled tables are not judged by their own model."""
    if table.source is None or table.basis != MEASURED:
        return table, []
    device = np.flatnonzero(table.is_device & (table.number("kernel_ns") > 0))
    groups = _configurations(table, device)
    chip = chips.get(table.arch) if table.arch else chips.get(chips.DEFAULT_CHIP)
    bound = table.text("bound")
    codes, values = bound.codes.copy(), list(bound.values)
    unsaid = bound.equals("")
    found = []
    for rows in groups[:_MAX_CONFIGURATIONS]:
        judged = _judge(table, rows, chip)
        if judged is None:
            continue
        found.append(judged)
        if judged.bound not in values:
            values.append(judged.bound)
        codes[rows[unsaid[rows]]] = values.index(judged.bound)
    texts = {**table.texts, "bound": Text(codes, values)} if found else table.texts
    return replace(table, texts=texts), sorted(found, key=lambda item: -item.lost_ns)


def _configurations(table: OpTable, rows: np.ndarray) -> list[np.ndarray]:
    """Rows of the same op with the same tensors and attributes, largest time first."""
    names = ("code", "shape", "formats", "memory", "fidelity", "attributes")
    cores = np.clip(np.nan_to_num(table.number("cores")[rows]).astype(np.int64), 0, _MOST_CORES)
    by_cores = Text(cores, [str(number) for number in range(_MOST_CORES + 1)])
    key, _ = combined([*(table.text(name).take(rows) for name in names), by_cores])
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    groups = [rows[part] for part in np.split(order, cuts)] if len(rows) else []
    kernel = table.number("kernel_ns")
    return sorted(groups, key=lambda part: -float(kernel[part].sum()))


def _judge(table: OpTable, rows: np.ndarray, chip: Chip) -> Judged | None:
    first = int(rows[0])
    measured = float(table.number("kernel_ns")[rows].mean())
    try:
        row = convert_row(_cells(table, first, chip, measured))
        cost = estimate_op(row.op, row.inputs, row.outputs, row.chip, context=row.context)
    except (ValueError, TemperError):
        return None  # tensors that the file does not tell, or an op that the model does not know
    cores, available = (_whole(table.number(name)[first]) for name in ("cores", "available"))
    phases = FIDELITY_PHASES.get(table.text("fidelity")[first], 0)
    peak = chip.flop_per_cycle_lofi * chip.clock_ghz * cores / phases if phases else 0.0
    flops = float(table.number("flops")[first])
    return Judged(
        table.text("code")[first], table.text("shape")[first], table.text("formats")[first],
        table.text("location")[first] or table.text("module")[first], len(rows), measured,
        cost.kernel_ns, cost.low_ns, cost.high_ns, cost.bound,
        flops / measured / peak if peak else 0.0,
        float(table.number("dram_bytes")[first]) / measured / chip.dram_peak_gbps,
        cores, available or chip.compute_cores, row,
    )  # fmt: skip


def family_of(code: str) -> str:
    """The cost model's family of an op code; ``other`` where there is none."""
    return next((family for pattern, family in _FAMILIES if pattern.search(code)), "other")


def _cells(table: OpTable, row: int, chip: Chip, measured: float) -> Mapping[str, Any]:
    """A row of the profiler's CSV in the words of the files that the cost model is fitted to."""
    source, line = table.source, _whole(table.number("row")[row])
    code, attributes = table.text("code")[row], table.text("attributes")[row]
    family = family_of(code)
    if family == "other":
        raise ValueError(f"{code} is not modelled")
    cells: dict[str, Any] = {
        "arch": chip.arch, "board": chip.name, "op": family, "raw_op": code,
        "kernel_ns": measured, "cores": _whole(table.number("cores")[row]),
        "avail_cores": _whole(table.number("available")[row]),
        "fidelity": table.text("fidelity")[row],
        "traced": "true" if table.text("trace")[row] else "false",
        "eltwise_op": ";".join(_FUNCTION.findall(attributes)),
    }  # fmt: skip
    if family == "layernorm" and re.search(r"rms", attributes, re.IGNORECASE):
        cells["op"] = "rmsnorm"
    for name, pattern in {**_NUMBER, **_SETTING}.items():
        if found := pattern.search(attributes):
            cells[name] = found.group(1)
    for name, pattern in _PAIR.items():
        if found := pattern.search(attributes):
            cells[name] = f"{found.group(1)}x{found.group(2)}"
    if found := _BATCH.search(attributes):
        cells["conv_batch"] = found.group(1)
    if found := _CONFIG.search(attributes):
        cells["mm_cfg"] = found.group(1)
    for tensor, name in (
        ("INPUT_0", "in0"), ("INPUT_1", "in1"), ("INPUT_2", "in2"), ("OUTPUT_0", "out0")
    ):  # fmt: skip
        sides = [
            source.text(f"{tensor}_{part}_PAD[LOGICAL]", f"{tensor}_{part}")[line]
            for part in "WZYX"
        ]
        if not all(sides):
            continue
        cells[f"{name}_pad"] = "x".join(side.split("[")[0].split(".")[0] for side in sides)
        cells[f"{name}_log"] = "x".join(
            side.split("[")[-1].rstrip("]").split(".")[0] for side in sides
        )
        cells[f"{name}_dtype"] = source.text(f"{tensor}_DATATYPE")[line]
        cells[f"{name}_layout"] = source.text(f"{tensor}_LAYOUT")[line]
        cells[f"{name}_mem"] = _PLACE.sub("", source.text(f"{tensor}_MEMORY")[line])
    return cells


def _whole(value: float) -> int:
    return int(value) if value == value else 0


def judged_cells(found: Sequence[Judged]) -> list[list[str]]:
    """Rows of the table for people."""

    return [
        [
            f"{item.code.removesuffix('DeviceOperation')}  {item.shape}", str(item.count),
            time_text(item.measured_ns), time_text(item.modelled_ns),
            f"{time_text(item.low_ns)} to {time_text(item.high_ns)}",
            time_text(item.lost_ns) if item.lost_ns > 0 else "",
            f"{item.flops_share:.0%}" if item.flops_share else "", f"{item.dram_share:.0%}",
            f"{item.cores} of {item.available}", item.bound, item.formats,
        ]
        for item in found
    ]  # fmt: skip


JUDGED_COLUMNS = (
    "op", "runs", "measured", "modelled", "band", "lost", "FLOPs", "DRAM", "cores", "bound",
    "formats",
)  # fmt: skip
