"""Preprocessing on a board: modelled GB/s of the tuning guide's workloads, and of table placement.

GB/s count input and output bytes of one steady, traced call from host memory to host memory, as
the guide counts; its loop makes one call after the other. A stream that overlaps both directions of
the link and the device is limited by the slowest of the three. Every figure here is modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from temper import chips
from temper.chips.guide import GUIDE_GBPS
from temper.errors import UsageError
from temper.etl.operators import Logarithm, Neg2Zero, Operator
from temper.tuning.expected import Expected

if TYPE_CHECKING:
    from torch import Tensor, nn

WORKLOADS = ("stateless", "stateful")
# The guide's upper batch for stateless and for stateful work; values of one sample fill the link.
_BATCHES = {"stateless": 128, "stateful": 64}
_STATELESS_WIDTH = 16_384
_STATEFUL_IDS = 256
_TABLE_ROWS, _TABLE_WIDTH = 10_000, 128  # the guide's own table


@dataclass(frozen=True)
class Workload:
    """One workload on one board. Times in nanoseconds, rates in GB/s; all modelled."""

    name: str
    chip: str
    what: str
    batch: int
    moved_bytes: int
    device_ns: float
    transfer_ns: float
    call_ns: float
    streamed_ns: float  # a call of a stream that overlaps transfers and device
    gbps: float
    gbps_low: float
    gbps_high: float
    ops: tuple[str, ...]
    bound: str
    extrapolated: bool
    expected: Expected | None

    @property
    def streamed_gbps(self) -> float:
        return self.moved_bytes / self.streamed_ns

    @property
    def verdict(self) -> str:
        """Where the figure lies in the guide's range; empty when the guide has none."""
        return self.expected.judge(self.gbps) if self.expected else ""

    def as_dict(self) -> dict[str, Any]:
        found = {**asdict(self), "streamed_gbps": self.streamed_gbps}
        return {**found, "verdict": self.verdict, "source": "modelled"}


def workload(name: str, chip: str = "e75", **options: Any) -> Workload:
    """The guide's stateless (Neg2Zero, Logarithm) or stateful (embedding lookup) workload."""
    import torch

    from temper.etl import modules

    if name not in WORKLOADS:
        raise UsageError(f"no workload {name!r}", allowed=WORKLOADS)
    batch = _BATCHES[name]
    model: nn.Module
    if name == "stateless":
        model = modules.stateless_module([Neg2Zero(), Logarithm()])
        inputs = torch.zeros(batch, _STATELESS_WIDTH)
        what = f"Neg2Zero and Logarithm on {batch} x {_STATELESS_WIDTH:,} float32"
    else:
        model = modules.EmbeddingLookup(_TABLE_ROWS, _TABLE_WIDTH)
        inputs = torch.zeros(batch, _STATEFUL_IDS, dtype=torch.int64)
        what = (
            f"lookup of {batch} x {_STATEFUL_IDS} identifiers in a table of "
            f"{_TABLE_ROWS:,} x {_TABLE_WIDTH} float32"
        )
    return cost(name, what, model, inputs, chips.get(chip).name, **options)


def pipeline_workload(
    operators: Sequence[Operator], chip: str, *, batch: int = 128, **options: Any
) -> Workload:
    """Any stateless run of operators on float32 values, fused unless options say otherwise."""
    import torch

    from temper.etl import modules

    names = ", ".join(operator.name for operator in operators)
    inputs = torch.zeros(batch, _STATELESS_WIDTH)
    what = f"{names} on {batch} x {_STATELESS_WIDTH:,} float32"
    model = modules.stateless_module(operators)
    return cost("stateless", what, model, inputs, chips.get(chip).name, **options)


def cost(
    name: str, what: str, model: nn.Module, inputs: Tensor, chip: str, **options: Any
) -> Workload:
    """Compiles the model for the chip and costs one steady call; nothing is run."""
    import torch

    from temper.compiler.pipeline import compile_model
    from temper.cost import estimate

    settings = {"chip": chip, "optimization_level": 2, "enable_trace": True, **options}
    (program,) = compile_model(model.eval(), (inputs,), options=settings).programs
    found = estimate(program, traced=bool(settings["enable_trace"]))
    with torch.device("meta"):
        shape = model.to("meta")(inputs.to("meta"))
    # Identifiers are int64 in torch and four bytes on the chip, as the guide counts them.
    moved = 4 * inputs.numel() + 4 * shape.numel()
    transfer_ns = found.transfer_in_ns + found.transfer_out_ns
    slowest = max(zip(found.ops, program.ops, strict=True), key=lambda pair: pair[0].kernel_ns)
    bound = "link" if transfer_ns > found.device_ns else slowest[0].bound
    expected = GUIDE_GBPS.get((chip, name))
    return Workload(
        name, chip, what, inputs.shape[0], moved, found.device_ns, transfer_ns, found.call_ns,
        max(found.transfer_in_ns, found.transfer_out_ns, found.device_ns),
        moved / found.call_ns, moved / found.call_high_ns, moved / found.call_low_ns,
        tuple(op.kind for op in program.ops), bound, found.extrapolated,
        Expected(f"guide, {name} on {chip}", expected[0], expected[2], "GB/s", expected[1])
        if expected else None,
    )  # fmt: skip


@dataclass(frozen=True)
class Placement:
    """A lookup with its table in DRAM and in SRAM: physics of the reads alone, modelled."""

    chip: str
    table_bytes: int
    sram_bytes: int  # of all compute cores
    fits_sram: bool
    parts: int
    dram_ns: float
    sram_ns: float | None  # None: a part does not fit

    @property
    def speedup(self) -> float | None:
        return self.dram_ns / self.sram_ns if self.sram_ns else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "speedup": self.speedup, "source": "modelled"}


def table_placement(
    rows: int, width: int, chip: str, *, lookups: int = 16_384, parts: int = 1,
    element_bytes: int = 4,
) -> Placement:  # fmt: skip
    """Reading ``lookups`` rows of a float table from DRAM and from SRAM across the chip.

    DRAM streams at the board's interleaved rate; SRAM is read over the NoC by all cores at once.
    A table in ``parts`` is read once a part (rows that are elsewhere read the part's zero row),
    so splitting pays only where a whole table does not fit and a part does.
    """
    if min(rows, width, lookups, parts, element_bytes) < 1:
        raise UsageError("rows, width, lookups, parts and element_bytes start at 1")
    board = chips.get(chip)
    table = rows * width * element_bytes
    part = -(-rows // parts) * width * element_bytes
    sram = board.compute_cores * board.sram_usable_bytes
    read = lookups * width * element_bytes
    noc_gbps = board.compute_cores * board.noc_bytes_per_cycle * board.clock_ghz
    launch = board.launch_floor_ns
    dram_ns = launch + read / board.dram_streaming_gbps
    sram_ns = parts * (launch + read / noc_gbps) + (parts - 1) * launch
    return Placement(
        board.name, table, sram, table <= sram, parts, dram_ns, sram_ns if part <= sram else None
    )
