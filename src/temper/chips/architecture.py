"""What one architecture is, over all its boards: one record each, with sources.

Everything that code would ask by an architecture's name is a field here. Prefixes of sources are
explained in docs/sources.md.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Host-side times. The tuples hold one value for the first operand of an op: interleaved,
    interleaved block floats, sharded values, sharded block floats.
    """

    dispatch_ns: tuple[float, float, float, float]  # enqueue one cached program from Python
    late_ns: tuple[float, float, float, float]  # later start than in a replay, host ahead
    replay_ns: float  # enqueue one recorded trace
    program_ns: float  # dispatcher on the device, per program; hidden behind a longer kernel
    miss_ns: float  # build one program whose kernels are on disk
    compile_ns: float  # compile one kernel that is not on disk, all host cores busy
    sync_ns: float  # wait for the device and read its answer
    page_in_ns: float  # one page towards the device, however small
    page_out_ns: float
    page_out_linear: float  # ns a byte in addition, where small reads do not overlap


@dataclass(frozen=True, slots=True)
class LastStack:
    """The last versions that still serve an architecture that newer ones dropped."""

    driver: Version
    driver_dropped: Version  # from this version on the driver ignores the card
    firmware: Version
    ttnn: Version


@dataclass(frozen=True, slots=True)
class Architecture:
    """One generation of chips. Rates in GB/s (1e9) unless a name says GiB, time in ns."""

    name: str  # the profiler's name
    title: str
    pci_device: int
    row_board: str  # whose record stands for measured rows that name only the architecture
    # Compute. HiFi4 into a float32 Dest can be less exact than HiFi3 on Wormhole (tt-metal 38306).
    exact_fidelity: str
    sparse_attention: bool  # whether ttnn has kernels for attention over chosen keys
    exp_tile_cycles: float  # exponentials of one tile in softmax; from public kernel measurements
    # Scaling, exponential and sum of one tile of attention's scores, and what a float32 Dest, which
    # holds half as many tiles, adds to it; from measured times of equal work in different blocks.
    score_tile_cycles: float
    score_fp32_cycles: float
    # One core's requests: time to issue one, and its rate for long ones. The table of one-core
    # transfer rates by size in tt-metal's data_movement/common.cpp, flat below about 1 KiB.
    issue_ns: float
    issue_sram_ns: float
    core_gbps: float
    bank_gbps: float  # one DRAM bank that serves short pieces of its rows
    traced_skew_ns: float  # extra spread of kernel starts in a replay: traced and untraced rows
    host: HostTimes
    vendor_peak_gib: float  # DRAM peak of tt-metal's op performance model (FACTS 8.3)
    # Whether report tools of the field know the name; they refuse a file with another one.
    reported: bool
    # What a card of it asks of a machine
    pcie_gen: int
    pages_1g: int  # 1 GiB pages (tt-system-tools hugepages-setup.sh)
    memory_gb: int  # tt-smi's host screen; Grayskull's specification
    ubuntu: tuple[str, ...]  # what the vendor tests
    # tt-umd firmware_utils.cpp (least); tt-metal INSTALLING.md (recommended)
    firmware_min: Version | None = None
    firmware_recommended: Version | None = None
    driver_recommended: Version | None = None
    tt_smi_recommended: Version | None = None
    clock_min_mhz: int = 0  # lowest of the range in the firmware's tables, where it is known
    idle_pcie_gen: int = 0  # what its firmware lets the link fall to while idle
    enough_pcie_gen: int = 0  # a lower generation at which tt-metal's transfers lose little
    throttle_public: bool = True  # whether the firmware's throttle temperature is published
    bios: str = ""  # what its guide asks of the BIOS
    guided: bool = False  # the tuning guide was written for it: its limits and GB/s apply
    sram_measured: bool = True  # False: usable SRAM is an assumption
    outruns: str = ""  # a board that all of its boards exceed in cores, clock and DRAM
    stands_in: str = ""  # whose measurements are used where it has none of its own
    last_stack: LastStack | None = None


# Sources, all public: traced and untraced pairs of the GEMM tables of 2025-11 and 2026-04
# (dispatch, late, replay), program dispatch and buffer goldens (program, pages), kernel compile
# goldens (300 kernels cold: 50.7 s and 44.8 s), host durations of profiler files (miss).
_WORMHOLE_HOST = HostTimes(
    (44_000, 46_000, 104_000, 134_000), (5_250, 5_000, 5_000, 14_750),
    8_700, 2_000, 113_000, 169e6, 30_000, 61.0, 47.0, 1 / 17.8,
)  # fmt: skip
_BLACKHOLE_HOST = HostTimes(
    (16_000, 12_000, 60_000, 84_000), (1_000, 4_500, 1_400, 7_000),
    1_900, 1_700, 55_000, 149e6, 20_000, 24.3, 29.0, 0.0,
)  # fmt: skip

GRAYSKULL = Architecture(
    name="grayskull",
    title="Grayskull",
    pci_device=0xFACA,
    row_board="e150",
    exact_fidelity="HiFi4",
    sparse_attention=False,
    exp_tile_cycles=1400.0,
    score_tile_cycles=450.0,
    score_fp32_cycles=200.0,
    issue_ns=45.0,
    issue_sram_ns=23.0,
    core_gbps=22.0,
    bank_gbps=10.0,
    traced_skew_ns=500.0,
    host=_WORMHOLE_HOST,  # no public figures exist: Wormhole's stand in (uncertain)
    vendor_peak_gib=92.0,  # by its sheet
    reported=False,
    pcie_gen=4,
    pages_1g=1,
    memory_gb=64,
    ubuntu=("20.04",),
    guided=True,
    sram_measured=False,
    stands_in="wormhole_b0",
    # The vendor's board specification.
    last_stack=LastStack((1, 31), (2,), (80, 14, 0, 0), (0, 55)),
)

WORMHOLE = Architecture(
    name="wormhole_b0",
    title="Wormhole",
    pci_device=0x401E,
    row_board="n150",
    exact_fidelity="HiFi3",
    sparse_attention=False,
    exp_tile_cycles=1400.0,
    score_tile_cycles=450.0,
    score_fp32_cycles=200.0,
    issue_ns=36.7,
    issue_sram_ns=18.5,
    core_gbps=28.4,
    bank_gbps=20.0,
    traced_skew_ns=500.0,
    host=_WORMHOLE_HOST,
    vendor_peak_gib=258.0,
    reported=True,
    pcie_gen=4,
    pages_1g=4,
    memory_gb=32,
    ubuntu=("22.04", "24.04"),
    firmware_min=(18, 3, 0),
    idle_pcie_gen=1,  # firmware 19.8 and newer
    throttle_public=False,
)

BLACKHOLE = Architecture(
    name="blackhole",
    title="Blackhole",
    pci_device=0xB140,
    outruns="n150",
    row_board="p150",
    exact_fidelity="HiFi4",
    sparse_attention=True,
    exp_tile_cycles=700.0,
    score_tile_cycles=90.0,
    score_fp32_cycles=0.0,
    issue_ns=41.4,
    issue_sram_ns=24.0,
    core_gbps=50.0,
    bank_gbps=25.0,
    traced_skew_ns=200.0,
    host=_BLACKHOLE_HOST,
    vendor_peak_gib=512.0,
    reported=True,
    pcie_gen=5,
    pages_1g=4,
    memory_gb=32,
    ubuntu=("22.04", "24.04"),
    firmware_min=(18, 5, 0),
    firmware_recommended=(19, 8, 1),
    driver_recommended=(2, 8, 0),
    tt_smi_recommended=(5, 0, 0),
    clock_min_mhz=800,
    enough_pcie_gen=4,
    bios="PCIe error handling (AER) 'OS first' in the BIOS",
)

ARCHITECTURES = {arch.name: arch for arch in (GRAYSKULL, WORMHOLE, BLACKHOLE)}
