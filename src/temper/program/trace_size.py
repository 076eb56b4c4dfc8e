"""Bytes of a recorded trace, and whether they fit the trace region.

A trace holds the dispatch commands of every op: its kernel configuration, circular-buffer setup
and the runtime arguments of each core. The rule here is fitted to the few public sizes (FACTS
5.4): about 6 kB for two trivial programs, 845 824 B for ResNet-50 on Wormhole, 2 to 10 kB an op
on 64 cores. It is modelled and uncertain; single heavy ops of up to 384 kB have been seen.
"""

from __future__ import annotations

from temper.chips import Chip, get
from temper.errors import OutOfMemoryError
from temper.program.allocator import TRACE_PAGE_BYTES, count, trace_bank_bytes
from temper.program.matmul_config import MatmulConfig
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import ceil_div, round_up

# One op: commands that do not depend on the cores, and arguments and launch words of each core.
OP_BYTES = 2560
CORE_BYTES = 72
# The smallest page of a trace buffer.
_PAGE_BYTES = 1024


def op_cores(op: Op, program: Program, chip: Chip) -> int:
    """Cores that an op is dispatched to: its shards, its matmul config, or one a page."""
    config = op.attrs.get("config")
    if op.kind == "Matmul" and config:
        return MatmulConfig.from_attrs(config).cores
    for name in (*op.outputs, *op.inputs[:1]):
        memory = program.spec(name).memory
        if memory.sharded:
            return min(memory.cores, chip.compute_cores)
    pages = max((program.spec(name).pages for name in op.outputs), default=1)
    return max(1, min(pages, chip.compute_cores))


def op_trace_bytes(op: Op, program: Program, chip: Chip) -> int:
    """What one op adds to the trace; a host op is not in it."""
    if program.on_host(op):
        return 0
    return OP_BYTES + CORE_BYTES * op_cores(op, program, chip)


def trace_bytes(program: Program, chip: Chip | None = None) -> int:
    """Bytes of the program's trace (modelled, uncertain)."""
    board = chip or get(program.chip)
    total = sum(op_trace_bytes(op, program, board) for op in program.ops)
    return round_up(total, _PAGE_BYTES)


def region_for(size_bytes: int, chip: Chip) -> int:
    """The smallest region in whole pages of every bank that holds so many bytes."""
    return trace_bank_bytes(size_bytes, chip) * chip.dram_banks


def check_region(program: Program, region_bytes: int | None, chip: Chip | None = None) -> int:
    """The region to reserve; unset is sized for the trace, too small is an error with the size."""
    board = chip or get(program.chip)
    need = trace_bytes(program, board)
    wanted = region_for(need, board)
    if region_bytes is None:
        return wanted
    share = trace_bank_bytes(region_bytes, board)
    if ceil_div(need, board.dram_banks) <= share:
        return share * board.dram_banks
    ops = len(program.ops) - len(program.host_ops)
    raise OutOfMemoryError(
        f"the trace of {program.name} does not fit in the trace region.",
        needs=(
            f"{count(need)} B for {ops} ops (modelled, uncertain); trace_region_size is "
            f"{count(region_bytes)} B, {count(share)} B in each of {board.dram_banks} banks "
            f"in pages of {count(TRACE_PAGE_BYTES)} B"
        ),
        try_=[
            f"trace_region_size={wanted}",
            "trace_region_size unset, which sizes it for you",
            "enable_trace=False",
        ],
    )
