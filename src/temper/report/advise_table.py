"""Advice for a CSV from a card: only what its columns show, each with its figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temper import chips
from temper.chips import FIDELITY_PHASES, Chip
from temper.formats.sizes import TILE_BYTES
from temper.report.advice import Advice
from temper.report.advise_judged import advise_judged
from temper.report.judge import Judged
from temper.run.table import OpTable

# Report tools call any gap beyond 6.5 µs a wait for the host; a replayed op follows the one
# before it in less than 1 µs.
_HOST_GAP_NS = 6_500.0
_BASIS = "from the columns"
_ON_THE_WAY = ("FoldImage (torch)", "Reshape (torch)")


def advise_table(table: OpTable, judged: Sequence[Judged] = ()) -> list[Advice]:
    """What the columns show, and for ops that were judged what the cost model says of changes."""
    device = table.select(table.is_device)
    total = device.total("kernel_ns") + device.total("gap_ns")
    total += table.total("host_ns", table.is_host)
    if not total:
        return []
    chip = chips.get(table.arch) if table.arch else chips.get(chips.DEFAULT_CHIP)
    scripts = _in_ttnn(table)
    found = [*_gaps(device, total, chip, scripts), *_host(table, total)]
    if judged:
        found += advise_judged(judged, total, in_ttnn=scripts)
    else:
        found += [
            *_weights(device, total, chip),
            *_fidelity(device, total, chip),
            *_few_cores(device, total),
        ]
    worthwhile = [item for item in found if item.worthwhile]
    return sorted(worthwhile, key=lambda item: -item.gain_ns)


def _in_ttnn(table: OpTable) -> bool:
    """Whether the file comes from a script of ttnn calls: compilers write where an op is from."""
    return not any(table.text("location").values) and not any(table.text("module").values)


def _made(title: str, why: str, paste: str, total: float, gain: float, **more: str) -> Advice:
    return Advice(title, why, paste, total, total - gain, total - gain, total, basis=_BASIS, **more)


def _sum(values: np.ndarray) -> float:
    return float(np.nan_to_num(values).sum())


def _gaps(table: OpTable, total: float, chip: Chip, in_ttnn: bool) -> list[Advice]:
    gap = np.nan_to_num(table.number("gap_ns"))
    waits = (gap > _HOST_GAP_NS) & ~table.text("trace").equals("traced")
    if not waits.any():
        return []
    gain = _sum((gap - chip.traced_gap_ns)[waits])
    why = (
        f"{int(waits.sum())} ops waited more than {_HOST_GAP_NS / 1e3} µs for the host, "
        f"{_sum(gap[waits]) / total:.0%} of the time"
    )
    paste = (
        "tid = ttnn.begin_trace_capture(device); model(x); ttnn.end_trace_capture(device, tid)"
        if in_ttnn
        else 'torch_xla.set_custom_compile_options({"enable_trace": "true"})'
    )
    return [_made("replay a trace (at most)", why, paste, total, gain, accuracy="nothing")]


def _weights(table: OpTable, total: float, chip: Chip) -> list[Advice]:
    """Matmuls that read at the DRAM's speed: their time follows the bytes of the weights."""
    bound = table.text("bound").equals("dram") & table.text("code").contains("Matmul")
    bound &= table.text("in1").equals("BFLOAT16")
    if not bound.any():
        return []
    kernel = np.nan_to_num(table.number("kernel_ns"))
    # The share of traffic that the weights are is not in one column; half is a floor for them
    # when the op is bound by DRAM, and bfloat8_b makes those bytes smaller.
    gain = 0.5 * (1 - TILE_BYTES["bfloat8_b"] / TILE_BYTES["bfloat16"]) * _sum(kernel[bound])
    why = f"{int(bound.sum())} matmuls read bfloat16 weights at 65% or more of the DRAM's peak"
    paste = 'torch_xla.set_custom_compile_options({"experimental_weight_dtype": "bfp_bf8"})'
    note = "0.5 to 1% relative error of the weights; verify the model's outputs"
    return [_made("matmul weights in bfloat8_b (at least)", why, paste, total, gain, accuracy=note)]


def _fidelity(table: OpTable, total: float, chip: Chip) -> list[Advice]:
    """Compute-bound matmuls at a fidelity that their block-float weights do not need."""
    fidelity = table.text("fidelity")
    phases = fidelity.numbers([FIDELITY_PHASES.get(v, np.nan) for v in fidelity.values])
    block = table.text("in1").where([v.endswith("_B") for v in table.text("in1").values])
    bound = table.text("bound").equals("compute") & block & (phases > 2)
    if not bound.any():
        return []
    kernel = np.nan_to_num(table.number("kernel_ns"))
    gain = _sum((kernel * (1 - 2 / np.nan_to_num(phases, nan=2.0)))[bound])
    why = f"{int(bound.sum())} compute-bound matmuls with block-float weights run above HiFi2"
    paste = 'torch_xla.set_custom_compile_options({"math_fidelity": "hifi2"})'
    return [_made("math fidelity HiFi2 (at most)", why, paste, total, gain)]


def _host(table: OpTable, total: float) -> list[Advice]:
    # What the host does on the way up to the chip is there because it is faster.
    code = table.text("code")
    host = table.is_host & ~code.where([name.startswith(_ON_THE_WAY) for name in code.values])
    if not host.any():
        return []
    gain = _sum(table.number("host_ns")[host])
    codes = sorted({table.text("code")[int(i)] for i in np.flatnonzero(host)[:1000]})
    why = f"{int(host.sum())} ops ran on the host: {', '.join(codes[:3])}"
    return [_made("no ops on the host (at most)", why, f"# replace {codes[0]}", total, gain)]


def _few_cores(table: OpTable, total: float) -> list[Advice]:
    """Compute-heavy ops on a part of the grid."""
    cores, offered = table.number("cores"), table.number("available")
    kernel = np.nan_to_num(table.number("kernel_ns"))
    with np.errstate(invalid="ignore"):
        few = (cores < offered / 2) & table.text("bound").equals("compute")
    if not few.any():
        return []
    gain = _sum((kernel * (1 - cores / offered))[few])
    first = table.text("code")[int(np.flatnonzero(few)[0])].removesuffix("DeviceOperation")
    why = f"{int(few.sum())} compute-bound ops use less than half of the grid, first {first}"
    paste = "# a program config with compute_with_storage_grid_size of the whole grid"
    return [_made("the whole grid (at most)", why, paste, total, gain)]
