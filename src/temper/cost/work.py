"""One op with its tensors and chip, and the rates that every family's physics uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temper.chips import ARCHITECTURES, CHIPS, Chip
from temper.cost.records import Context
from temper.cost.sfpu import epilogue_cycles
from temper.program.op import Op
from temper.program.table import KINDS
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec

ISSUE_NS = {arch.name: arch.issue_ns for arch in ARCHITECTURES.values()}
ISSUE_SRAM_NS = {arch.name: arch.issue_sram_ns for arch in ARCHITECTURES.values()}
CORE_GBPS = {arch.name: arch.core_gbps for arch in ARCHITECTURES.values()}
# A bank takes this long for one short request, however few bytes it asks for.
REQUEST_NS = 16.0
SHORT = {
    "float32": "f32", "bfloat16": "bf16", "bfloat8_b": "bfp8", "bfloat4_b": "bfp4",
    "bfloat2_b": "bfp2", "uint32": "u32", "int32": "i32", "uint16": "u16", "uint8": "u8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """What a family's physics looks at."""

    op: Op
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    chip: Chip
    context: Context

    @property
    def available(self) -> int:
        return self.context.available or self.chip.compute_cores

    @property
    def x(self) -> TensorSpec:
        """The first input, or the output of an op that has none."""
        return self.inputs[0] if self.inputs else self.outputs[0]

    @property
    def y(self) -> TensorSpec:
        return self.outputs[0] if self.outputs else self.inputs[0]

    def attr(self, name: str, default: Any = None) -> Any:
        attrs: Mapping[str, Any] = self.op.attrs
        if name in attrs:
            return attrs[name]
        kind = KINDS.get(self.op.kind)
        return kind.attrs.get(name, default) if kind else default

    @property
    def code(self) -> str:
        """The profiler's op code, without the suffix that it has had since 2025."""
        if "code" in self.op.attrs:
            return str(self.op.attrs["code"]).removesuffix("DeviceOperation")
        kind = KINDS.get(self.op.kind)
        return kind.code.removesuffix("DeviceOperation") if kind else self.op.kind

    @property
    def grid_known(self) -> bool:
        """False for rows of sharded ops that name every core of the chip instead of the shards'."""
        told = self.context.cores
        sharded = any(s.memory.sharded and s.memory.buffer == "sram" for s in self.outputs[:1])
        return not (sharded and told and told >= self.available)

    def cores(self, units: float) -> int:
        """Cores that run: as told, or where the tensors are sharded, or one a unit of work."""
        if self.context.cores:
            return self.context.cores
        for spec in (*self.outputs[:1], *self.inputs[:1]):
            if spec.memory.buffer == "sram" and spec.memory.sharded:
                return max(1, min(spec.memory.cores, self.available))
        return max(1, min(int(units + 0.999), self.available))

    def launch(self) -> dict[str, float]:
        """The serial terms of every program: its floor and the skew of a replayed start."""
        traced = self.context.traced
        skew = self.chip.architecture.traced_skew_ns
        weight = 1.0 if traced else 0.5 if traced is None else 0.0
        return {"launch": self.chip.launch_floor_ns, "skew": skew * weight}

    def spread_ns(self, cores: int) -> float:
        """Time to start a kernel on many cores, at 10 ns for each.

        A kernel that fills a grid fills the board's: a part of it is no reason to start sooner.
        """
        if not self.context.cores and cores >= self.available:
            board = CHIPS.get(self.chip.name, self.chip)
            cores = max(cores, board.compute_cores)
        return 10.0 * cores

    def page_ns(self, spec: TensorSpec, page_bytes: float | None = None) -> float:
        """Time of one core to move one page of a tensor."""
        size = spec.page_bytes if page_bytes is None else page_bytes
        arch = self.chip.arch
        issue = ISSUE_NS[arch] if spec.memory.buffer == "dram" else ISSUE_SRAM_NS[arch]
        return max(issue, size / CORE_GBPS[arch])

    @property
    def link_gbps(self) -> float:
        """What a core's link to the network carries."""
        return self.chip.noc_bytes_per_cycle * self.chip.clock_ghz

    def dram_ns(self, size_bytes: float) -> float:
        """Time of the whole chip to stream bytes through DRAM."""
        # The board of a row may have other cores than the chip; its DRAM is the same.
        return size_bytes / self.chip.dram_streaming_gbps

    def requests_ns(self, spec: TensorSpec, count: float) -> float:
        """Time of all DRAM banks to serve so many short requests."""
        if spec.memory.buffer != "dram":
            return 0.0
        return count * REQUEST_NS / self.chip.dram_banks

    def products_ns(self, products: float, phases: int, cores: int) -> float:
        """Time of so many cores' matrix engines at their peak for products of two tiles."""
        return (
            self.cycles_ns(products * phases * 2 * TILE**3 / self.chip.flop_per_cycle_lofi) / cores
        )

    def spill_ns(self, tiles: float, blocks: float) -> float:
        """Time of a core's packer and unpacker for partial sums between blocks of the depth.

        The packer writes 16 bytes a cycle; without accumulation in SRAM the unpacker loads the
        sums again, 64 bytes a cycle.
        """
        size = TILE_BYTES["float32" if self.attr("fp32_acc") else "bfloat16"]
        cycles = size / 16 + (0 if self.attr("packer_l1_acc") else size / 64)
        return self.cycles_ns(tiles * max(0.0, blocks - 1) * cycles)

    def epilogue_ns(self, tiles: float) -> float:
        """Time of a core's vector unit for the op's fused activations on so many output tiles."""
        return self.cycles_ns(
            tiles * epilogue_cycles(self.attr("activations") or [], self.chip.arch)
        )

    def cycles_ns(self, cycles: float) -> float:
        return cycles / self.chip.clock_ghz


def dram_bytes(spec: TensorSpec) -> float:
    """Bytes of a tensor that lie in DRAM."""
    return float(spec.size_bytes) if spec.memory.buffer == "dram" else 0.0


def kind_of_memory(spec: TensorSpec) -> str:
    """``dram``, ``sram`` or ``sharded``: the three ways a kernel reaches a tensor."""
    if spec.memory.buffer == "dram":
        return "dram"
    return "sharded" if spec.memory.sharded else "sram"


def letter(spec: TensorSpec) -> str:
    """T for tiles, R for rows."""
    return "T" if spec.layout == "tile" else "R"
