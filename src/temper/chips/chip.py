"""What one board is: its numbers as plain fields, and where each number comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from temper.chips.architecture import ARCHITECTURES, Architecture

# Mathematics phases of one product; each phase costs one pass of the matrix engine.
FIDELITY_PHASES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a number comes from; ``uncertain`` says why it may be wrong, if it may."""

    source: str
    uncertain: str = ""


@dataclass(frozen=True)
class Chip:
    """One chip of one board. Sizes in bytes, rates in GB/s (1e9), clocks in MHz, time in ns."""

    name: str
    title: str
    arch: str  # grayskull | wormhole_b0 | blackhole, the profiler's names
    pci_device: int
    board_upi: tuple[int, ...]  # board type codes: (board id >> 36) & 0xFFFFF
    # Cores
    cores: int  # Tensix cores of the part
    grid: tuple[int, int]  # (x, y) compute cores that programs may use
    clock_mhz: int
    flop_per_cycle_lofi: int  # one core's matrix engine at LoFi
    # SRAM of one core
    sram_core_bytes: int
    sram_reserved_bytes: int  # firmware, mailboxes, kernel-config ring, at the bottom
    sram_alignment: int
    # DRAM
    dram_banks: int
    dram_bank_bytes: int  # usable of one bank
    dram_total_bytes: int
    dram_alignment: int
    dram_peak_gbps: float
    dram_streaming_gbps: float  # what interleaved elementwise traffic reaches
    dram_best_gbps: float  # what the best access pattern reaches
    # NoC and host link
    noc_bytes_per_cycle: float
    noc_flit_bytes: int
    pcie_gen: int
    pcie_lanes: int
    link_to_device_gbps: float
    link_from_device_gbps: float
    # Launch figures that the cost model starts from
    launch_floor_ns: float
    traced_gap_ns: float
    # Power and heat
    board_power_w: int
    thermal_limit_c: int
    # The vendor's sheet, kept apart from what the model computes
    datasheet_tflops: Mapping[str, float] = field(default_factory=dict)
    datasheet_sram_mb: int = 0
    notes: tuple[str, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.arch]

    @property
    def compute_cores(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def clock_ghz(self) -> float:
        return self.clock_mhz / 1000

    @property
    def sram_usable_bytes(self) -> int:
        """Bytes of one core for tensors and circular buffers."""
        return self.sram_core_bytes - self.sram_reserved_bytes

    def peak_tflops(self, fidelity: str, *, all_cores: bool = False) -> float:
        """Modelled peak: FLOP per cycle x cores x clock / phases."""
        cores = self.cores if all_cores else self.compute_cores
        flop_per_s = self.flop_per_cycle_lofi * cores * self.clock_mhz * 1e6
        return flop_per_s / FIDELITY_PHASES[fidelity] / 1e12

    def as_dict(self) -> dict[str, Any]:
        """All fields and the derived peaks, ready for JSON."""
        skip = {"evidence"}
        fields = {k: v for k, v in self.__dict__.items() if k not in skip}
        return {
            **fields,
            "compute_cores": self.compute_cores,
            "sram_usable_bytes": self.sram_usable_bytes,
            "modelled_peak_tflops": {f: round(self.peak_tflops(f), 1) for f in FIDELITY_PHASES},
            "evidence": {
                k: {"source": e.source, "uncertain": e.uncertain} for k, e in self.evidence.items()
            },
        }
