"""The host's side of a call: dispatch, trace replay, transfers, the first iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from temper.chips import Chip
from temper.cost.records import OpCost, ProgramCost
from temper.program.program import Program
from temper.program.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class HostConstants:
    """Times of the host stack and its link for one architecture, in nanoseconds and GB/s."""

    dispatch_ns: float  # enqueue one cached program from Python
    replay_ns: float  # enqueue one recorded trace
    program_ns: float  # dispatcher on the device, per program; hidden behind a longer kernel
    miss_ns: float  # build one program with its kernels already on disk
    compile_ns: float  # compile one kernel that is not on disk
    sync_ns: float  # wait for the device and read its answer
    page_in_ns: float  # one page towards the device, however small
    page_out_ns: float
    page_out_linear_ns: float  # per byte in addition, where small reads do not overlap


# Traced and untraced pairs of the public GEMM tables (2025-11, 2026-04), program dispatch, buffer
# and kernel-compile goldens of tt-metal, host durations of public profiler files (2026).
_HOST = {
    "wormhole_b0": HostConstants(
        50_000, 8_700, 2_000, 113_000, 169e6, 30_000, 61.0, 47.0, 1 / 17.8
    ),
    "blackhole": HostConstants(18_000, 1_900, 1_700, 55_000, 149e6, 20_000, 24.3, 29.0, 0.0),
    # No public figures for Grayskull: Wormhole's (uncertain).
    "grayskull": HostConstants(50_000, 8_700, 2_000, 113_000, 169e6, 30_000, 61.0, 47.0, 1 / 17.8),
}
# Distinct kernels of one program: reader, writer, compute.
_KERNELS = 3


def constants(chip: Chip) -> HostConstants:
    return _HOST[chip.arch]


def gap_ns(chip: Chip) -> float:
    """Idle time between two kernels when the dispatcher is ahead."""
    return chip.traced_gap_ns


def transfer_ns(chip: Chip, spec: TensorSpec, *, to_device: bool) -> float:
    """Time of one tensor over the link, by the size of its pages."""
    return transfer_bytes_ns(chip, spec.size_bytes, spec.page_bytes, to_device=to_device)


def transfer_bytes_ns(
    chip: Chip, size_bytes: float, page_bytes: float, *, to_device: bool
) -> float:
    """A page costs its bytes at the link's rate, or the handling of a page if that is longer."""
    host = constants(chip)
    page = max(1.0, page_bytes)
    if to_device:
        each, linear, rate = host.page_in_ns, 0.0, chip.link_to_device_gbps
    else:
        each, linear, rate = host.page_out_ns, host.page_out_linear_ns, chip.link_from_device_gbps
    handled = each + page * linear
    return math.ceil(size_bytes / page) * (handled**8 + (page / rate) ** 8) ** (1 / 8)


def call(program: Program, chip: Chip, ops: Sequence[OpCost], *, traced: bool) -> ProgramCost:
    """Lay host and device timelines over each other for one steady call."""
    host = constants(chip)
    device = sum(op.kernel_ns + op.gap_ns for op in ops if op.bound != "host")
    low = _band(ops, chip, side=-1)
    high = _band(ops, chip, side=1)
    spec_in = [program.spec(name) for name in program.inputs]
    spec_out = [program.spec(name) for name in program.outputs]
    transfer_in = sum(transfer_ns(chip, spec, to_device=True) for spec in spec_in)
    transfer_out = sum(transfer_ns(chip, spec, to_device=False) for spec in spec_out)
    end, host_ns = timeline(ops, host, traced=traced)
    fixed = transfer_in + transfer_out + host.sync_ns
    end_low, _ = timeline(ops, host, traced=traced, scale=low / device if device else 1.0)
    end_high, _ = timeline(ops, host, traced=traced, scale=high / device if device else 1.0)
    programs = {
        (op.kind, repr(sorted(op.attrs.items())), _shapes(program, op)) for op in program.ops
    }
    weights = sum(transfer_ns(chip, program.spec(name), to_device=True) for name in program.weights)
    first = (
        len(programs) * (host.miss_ns + _KERNELS * host.compile_ns / 8)
        + weights
        + len(program.const_ops) * host.miss_ns
        + fixed
        + end
    )
    return ProgramCost(
        tuple(ops), device, low, high, host_ns, transfer_in, transfer_out,
        fixed + end, fixed + end_low, fixed + end_high, first,
    )  # fmt: skip


def _shapes(program: Program, op: object) -> tuple[tuple[int, ...], ...]:
    names = [*op.inputs, *op.outputs]  # type: ignore[attr-defined]
    return tuple(program.spec(name).shape for name in names)


def _band(ops: Sequence[OpCost], chip: Chip, *, side: int) -> float:
    """Sum of ops with a band: half of an op's error is shared by its kind, half is its own.

    Errors of one kernel repeat at every use, those of different kernels partly cancel.
    """
    groups: dict[tuple[str, float], float] = {}
    total = 0.0
    for op in ops:
        if op.bound == "host":
            continue
        edge = op.high_ns if side > 0 else op.low_ns
        key = (op.bound, round(op.kernel_ns, 3))
        groups[key] = groups.get(key, 0.0) + (edge - op.kernel_ns)
        total += op.kernel_ns + op.gap_ns
    straight = sum(abs(v) for v in groups.values())
    square = math.sqrt(sum(v * v for v in groups.values()))
    return total + side * (straight + square) / 2


def timeline(
    ops: Sequence[OpCost], host: HostConstants, *, traced: bool, scale: float = 1.0
) -> tuple[float, float]:
    """End of the device's work and of the host's, both starting at zero."""
    host_end = host.replay_ns if traced else 0.0
    device_end = 0.0
    ready = host_end
    for op in ops:
        if op.bound == "host":
            # The host needs the device's results first, and the device the host's afterwards.
            host_end = max(host_end, device_end) + op.kernel_ns
            device_end = ready = host_end
            continue
        if not traced:
            host_end += host.dispatch_ns
            ready = host_end
        else:
            ready = max(ready, device_end - op.kernel_ns) + host.program_ns
        start = max(device_end + op.gap_ns, ready)
        device_end = start + op.kernel_ns * scale
    return max(device_end, host_end), host_end
