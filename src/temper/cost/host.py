"""The host's side of a call: dispatch, trace replay, transfers, the first iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from temper.chips import Chip
from temper.chips.architecture import HostTimes
from temper.cost.bands import program_ns
from temper.cost.records import OpCost, ProgramCost
from temper.program.program import Program
from temper.program.simulate import resident_values
from temper.program.tensor import BLOCK_FORMATS, TensorSpec

# Distinct kernels of one program: reader, writer, compute.
_KERNELS = 3


def constants(chip: Chip) -> HostTimes:
    """What the host takes for launches and calls with this board."""
    return chip.architecture.host


def _first_operand(inputs: Sequence[TensorSpec]) -> int:
    """Column of ``dispatch_ns`` and ``late_ns`` for an op's inputs."""
    if not inputs:
        return 0
    first = inputs[0]
    return 2 * (first.memory.sharded and first.memory.buffer == "sram") + (
        first.format in BLOCK_FORMATS
    )


def dispatch_ns(chip: Chip, inputs: Sequence[TensorSpec]) -> float:
    """Host time to enqueue one cached program without a trace."""
    return constants(chip).dispatch_ns[_first_operand(inputs)]


def late_ns(chip: Chip, inputs: Sequence[TensorSpec]) -> float:
    """How much later than in a replay a program starts after the one before."""
    return constants(chip).late_ns[_first_operand(inputs)]


def gap_ns(chip: Chip) -> float:
    """Idle time between two kernels when the dispatcher is ahead."""
    return chip.traced_gap_ns


def transfer_ns(chip: Chip, spec: TensorSpec, *, to_device: bool) -> float:
    """Time of one tensor over the link, by the size of its pages.

    The shard of a core is one piece (tt-metal writes and reads it with one linear command).
    """
    size_bytes, piece_bytes = _pieces(spec)
    return transfer_bytes_ns(chip, size_bytes, piece_bytes, to_device=to_device)


@lru_cache(maxsize=16384)
def _pieces(spec: TensorSpec) -> tuple[int, float]:
    """Bytes of a tensor and of one piece of it; weights are asked for in every call costed."""
    memory = spec.memory
    piece = memory.shard[0] * memory.shard[1] * spec.element_bytes if memory.shard else 0.0
    return spec.size_bytes, max(piece, spec.page_bytes)


# `kernels/fold.cpp` with one thread of a busy two-core host, bfloat16 (measured 2026-11-17: 0.63 ns
# for a value of 16 images of 224x224 in steps of 2, and of one of 480x640; 0.87 in patches of 16).
_FOLD_NS = 0.8


def fold_ns(values: int) -> float:
    """Host time to bring the values of an input into another order."""
    return values * _FOLD_NS


def transfer_bytes_ns(
    chip: Chip, size_bytes: float, page_bytes: float, *, to_device: bool
) -> float:
    """A page costs its bytes at the link's rate, or the handling of a page if that is longer."""
    host = constants(chip)
    page = max(1.0, page_bytes)
    if to_device:
        each, linear, rate = host.page_in_ns, 0.0, chip.link_to_device_gbps
    else:
        each, linear, rate = host.page_out_ns, host.page_out_linear, chip.link_from_device_gbps
    handled = each + page * linear
    each_page: float = (handled**8 + (page / rate) ** 8) ** (1 / 8)
    return math.ceil(size_bytes / page) * each_page


# 80% of the dispatch-bound pairs of the public GEMM tables (135 of 434) lie between these factors
# of the modelled dispatch time; host and Python versions differ.
_DISPATCH_BAND = (0.5, 1.3)


def call(
    program: Program,
    chip: Chip,
    ops: Sequence[OpCost],
    *,
    traced: bool,
    once: Sequence[OpCost] = (),
) -> ProgramCost:
    """Lay host and device timelines over each other for one steady call.

    ``once`` is const-eval on the device, in the first call alone.
    """
    host = constants(chip)
    steps = [
        Step(
            cost.kernel_ns,
            cost.gap_ns if traced else cost.gap_ns + late_ns(chip, program.input_specs(op)),
            0.0 if traced else dispatch_ns(chip, program.input_specs(op)),
            cost.bound == "host",
        )
        for op, cost in zip(program.ops, ops, strict=True)
        if cost.kernel_ns
    ]
    device = sum(op.kernel_ns + op.gap_ns for op in ops if op.bound != "host")
    low, high = program_ns(ops)
    # An input on the host is sent by the op that works on it there.
    sent = [name for name in program.inputs if program.spec(name).memory.buffer != "host"]
    transfer_in = _transfers(program, sent, chip, to_device=True)
    transfer_out = _transfers(program, program.outputs, chip, to_device=False)
    end, host_ns = timeline(steps, host, traced=traced)
    fixed = transfer_in + transfer_out + host.sync_ns
    narrow, wide = (low / device, high / device) if device else (1.0, 1.0)
    slow, fast = _DISPATCH_BAND[1], _DISPATCH_BAND[0]
    end_low, _ = timeline(steps, host, traced=traced, scale=narrow, dispatch=fast)
    end_high, _ = timeline(steps, host, traced=traced, scale=wide, dispatch=slow)
    return ProgramCost(
        tuple(ops), device, low, high, host_ns, transfer_in, transfer_out,
        fixed + end, fixed + end_low, fixed + end_high,
        fixed + end + sum(op.kernel_ns for op in once)
        + _first_ns(program, chip, host, (*once, *ops)),
    )  # fmt: skip


def _transfers(program: Program, names: Sequence[str], chip: Chip, *, to_device: bool) -> float:
    return sum(transfer_ns(chip, program.spec(name), to_device=to_device) for name in names)


def _first_ns(program: Program, chip: Chip, host: HostTimes, ops: Sequence[OpCost]) -> float:
    """What the first call adds: programs and kernels built, weights sent up and prepared.

    Equal ops have one cost between them, and views, which are no programs, cost nothing.
    """
    on_device = program.const_eval_place == "device"
    every = (*program.const_ops, *program.ops) if on_device else program.ops
    distinct = {id(op) for op in ops if op.kernel_ns}
    kinds = {op.kind for op, cost in zip(every, ops, strict=True) if cost.kernel_ns}
    # Kernels are shared by programs of one kind; later processes find them on disk.
    compiled = len(kinds) * _KERNELS * host.compile_ns
    # Const-eval on the host sends up what it made; what went into it never leaves the host.
    sent = tuple(program.weights) if on_device else resident_values(program)
    upload = _transfers(program, sent, chip, to_device=True)
    return len(distinct) * host.miss_ns + compiled + upload


@dataclass(frozen=True, slots=True)
class Step:
    """One op on both timelines."""

    kernel_ns: float
    gap_ns: float
    dispatch_ns: float
    on_host: bool


def timeline(
    steps: Sequence[Step],
    host: HostTimes,
    *,
    traced: bool,
    scale: float = 1.0,
    dispatch: float = 1.0,
) -> tuple[float, float]:
    """End of the device's work and of the host's, both starting at zero.

    Without a trace the host enqueues op after op while the device works through them; with one
    it enqueues once and the device's dispatcher prepares the next program behind the running one.
    """
    host_end = host.replay_ns if traced else 0.0
    device_end = 0.0
    ready = host_end
    for step in steps:
        if step.on_host:
            # The host needs the device's results first, and the device the host's afterwards.
            host_end = max(host_end, device_end) + step.kernel_ns
            device_end = ready = host_end
            continue
        if traced:
            ready += host.program_ns
        else:
            host_end += step.dispatch_ns * dispatch
            ready = host_end
        start = max(device_end + step.gap_ns, ready)
        device_end = start + step.kernel_ns * scale
        if traced:
            ready = max(ready, start)
    return max(device_end, host_end), host_end
