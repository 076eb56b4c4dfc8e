"""The boards as data. Prefixes of sources are explained in docs/sources.md."""

from __future__ import annotations

from dataclasses import replace

from temper.chips.architecture import BLACKHOLE, GRAYSKULL, WORMHOLE
from temper.chips.chip import Chip, Evidence

_MIB = 1024 * 1024
_GIB = 1024 * _MIB

_VENDOR = "vendor board specifications (docs.tenstorrent.com/aibs)"
_CORE_YAML = "tt-metal tt_metal/core_descriptors"
_MOCK = "ttnn 0.81.1 on a mocked device"
_UNC_GS = "no public measurement for Grayskull; assumed"

# The tuning guide's table is the only public evidence for these boards' links: with these rates its
# stateless benchmark reaches what the table calls typical (8 GB/s on e75, 12 on e150, bytes in and
# out, one call at a time), and its stateful one lies in the table's range.
_GUIDE_LINK = Evidence(
    "solved from the tuning guide's table of throughput", "the guide's figures are not verified"
)
_GRAYSKULL_EVIDENCE = {
    "cores": Evidence(_VENDOR),
    "grid": Evidence("tt-metal v0.55 core_descriptors/grayskull_120_arch.yaml"),
    "clock_mhz": Evidence(_VENDOR),
    "flop_per_cycle_lofi": Evidence(
        "tt-metal v0.55 ttnn operation performance model",
        "the vendor's TFLOPS equal 2304 FLOP/cycle at the printed clock; both are kept",
    ),
    "sram_core_bytes": Evidence("tt-metal v0.55 soc_descriptors"),
    "sram_reserved_bytes": Evidence("about 950 000 B usable a core", _UNC_GS),
    "sram_alignment": Evidence("as Wormhole", _UNC_GS),
    "dram_banks": Evidence("tt-metal v0.55 soc_descriptors"),
    "dram_bank_bytes": Evidence("1 GiB less a 1 MiB base as on Wormhole", _UNC_GS),
    "dram_total_bytes": Evidence(_VENDOR),
    "dram_alignment": Evidence("as Wormhole", _UNC_GS),
    "dram_peak_gbps": Evidence(_VENDOR),
    "dram_streaming_gbps": Evidence("69% of peak as on Wormhole", _UNC_GS),
    "dram_best_gbps": Evidence("88% of peak as on Wormhole", _UNC_GS),
    "noc_bytes_per_cycle": Evidence("32 B links, 28 B effective", _UNC_GS),
    "noc_flit_bytes": Evidence("tt-isa-documentation, Wormhole", _UNC_GS),
    "pcie_gen": Evidence(_VENDOR),
    "pcie_lanes": Evidence(_VENDOR),
    "link_to_device_gbps": _GUIDE_LINK,
    "link_from_device_gbps": _GUIDE_LINK,
    "launch_floor_ns": Evidence("2 us", _UNC_GS),
    "traced_gap_ns": Evidence("1 us", _UNC_GS),
    "board_power_w": Evidence(_VENDOR),
    "thermal_limit_c": Evidence(_VENDOR),
    "pci_device": Evidence("tt-kmd enumerate.h"),
    "board_upi": Evidence("tt-tools-common"),
}

_E75 = Chip(
    name="e75",
    title="Grayskull e75 (TC-01001)",
    arch=GRAYSKULL.name,
    pci_device=GRAYSKULL.pci_device,
    board_upi=(0x7,),
    cores=96,
    grid=(11, 8),
    clock_mhz=1000,
    flop_per_cycle_lofi=2048,
    sram_core_bytes=_MIB,
    sram_reserved_bytes=_MIB - 950_000,
    sram_alignment=16,
    dram_banks=8,
    dram_bank_bytes=_GIB - _MIB,
    dram_total_bytes=8 * _GIB,
    dram_alignment=32,
    dram_peak_gbps=102.4,
    dram_streaming_gbps=70.0,
    dram_best_gbps=90.0,
    noc_bytes_per_cycle=28.0,
    noc_flit_bytes=32,
    pcie_gen=GRAYSKULL.pcie_gen,
    pcie_lanes=16,
    link_to_device_gbps=10.0,
    link_from_device_gbps=8.0,
    launch_floor_ns=2000.0,
    traced_gap_ns=1000.0,
    board_power_w=75,
    thermal_limit_c=75,
    datasheet_tflops={"FP8": 221, "FP16": 55, "BFP8": 55},
    datasheet_sram_mb=96,
    notes=("last stack: driver 1.31, firmware 80.14.0.0, tt-metal v0.55",),
    evidence=_GRAYSKULL_EVIDENCE,
)

_E150 = replace(
    _E75,
    name="e150",
    title="Grayskull e150 (TC-01002)",
    board_upi=(0x3,),
    cores=120,
    grid=(12, 9),
    clock_mhz=1200,
    dram_peak_gbps=118.4,
    dram_streaming_gbps=80.0,
    dram_best_gbps=105.0,
    link_to_device_gbps=15.5,
    link_from_device_gbps=13.0,
    board_power_w=200,
    datasheet_tflops={"FP8": 332, "FP16": 83, "BFP8": 83},
    datasheet_sram_mb=120,
)

_N150 = Chip(
    name="n150",
    title="Wormhole n150",
    arch=WORMHOLE.name,
    pci_device=WORMHOLE.pci_device,
    board_upi=(0x18,),
    cores=72,
    grid=(8, 8),
    clock_mhz=1000,
    flop_per_cycle_lofi=4096,
    sram_core_bytes=1_499_136,
    sram_reserved_bytes=105_824,
    sram_alignment=16,
    dram_banks=12,
    dram_bank_bytes=1_072_693_184,
    dram_total_bytes=12 * _GIB,
    dram_alignment=32,
    dram_peak_gbps=288.0,
    dram_streaming_gbps=200.0,
    dram_best_gbps=265.0,
    noc_bytes_per_cycle=30.0,
    noc_flit_bytes=32,
    pcie_gen=WORMHOLE.pcie_gen,
    pcie_lanes=16,
    link_to_device_gbps=14.0,
    link_from_device_gbps=12.6,
    launch_floor_ns=1700.0,
    traced_gap_ns=650.0,
    board_power_w=160,
    thermal_limit_c=75,
    datasheet_tflops={"FP8": 262, "FP16": 74, "BFP8": 148},
    datasheet_sram_mb=108,
    notes=(
        "row dispatch on Tensix cores takes one row of 8; column dispatch gives 7x9",
        "an idle board lowers its clock; the model assumes a busy one",
    ),
    evidence={
        "cores": Evidence(_VENDOR),
        "grid": Evidence(f"{_CORE_YAML}/wormhole_b0_80_arch.yaml; {_MOCK}"),
        "clock_mhz": Evidence(_VENDOR),
        "flop_per_cycle_lofi": Evidence("tt-metal tech_reports/matrix_engine"),
        "sram_core_bytes": Evidence("tt-metal soc_descriptors"),
        "sram_reserved_bytes": Evidence(_MOCK, "moves between tt-metal versions"),
        "sram_alignment": Evidence(_MOCK),
        "dram_banks": Evidence(_MOCK),
        "dram_bank_bytes": Evidence(_MOCK),
        "dram_total_bytes": Evidence(_VENDOR),
        "dram_alignment": Evidence(_MOCK),
        "dram_peak_gbps": Evidence(_VENDOR),
        "dram_streaming_gbps": Evidence("65-80% of peak", "derived, not measured directly"),
        "dram_best_gbps": Evidence("tt-metal tech_reports/Saturating_DRAM_bandwidth"),
        "noc_bytes_per_cycle": Evidence("tt-npe device_models/wormhole_b0.hpp"),
        "noc_flit_bytes": Evidence("tt-isa-documentation NoC"),
        "pcie_gen": Evidence(_VENDOR),
        "pcie_lanes": Evidence(_VENDOR),
        "link_to_device_gbps": Evidence("tt-metal benchmark_rw_buffer golden, 2 KiB pages"),
        "link_from_device_gbps": Evidence("tt-metal benchmark_rw_buffer golden, 2 KiB pages"),
        "launch_floor_ns": Evidence("one-tile kernels in public profiler files, 1.7-1.8 us"),
        "traced_gap_ns": Evidence("op-to-op latency in public profiler files, 603-690 ns"),
        "board_power_w": Evidence(_VENDOR),
        "thermal_limit_c": Evidence(_VENDOR, "the firmware's throttle limit is not public"),
        "pci_device": Evidence("tt-kmd enumerate.h"),
        "board_upi": Evidence("tt-umd cluster_descriptor_types.hpp"),
    },
)

_N300 = replace(
    _N150,
    name="n300",
    title="Wormhole n300, one chip",
    board_upi=(0x14,),
    cores=64,
    grid=(8, 8),
    board_power_w=300,
    datasheet_tflops={"FP8": 466, "FP16": 131, "BFP8": 262},
    datasheet_sram_mb=96,
    notes=(
        "datasheet TFLOPS and power are for both chips; only chip 0 has PCIe",
        "8x8 compute grid with Ethernet dispatch, ttnn's default on n300; 8x7 with Tensix dispatch",
    ),
)

_P150 = Chip(
    name="p150",
    title="Blackhole p150a/b (TC-03003, TC-03002)",
    arch=BLACKHOLE.name,
    pci_device=BLACKHOLE.pci_device,
    board_upi=(0x40, 0x41, 0x42),
    cores=120,
    grid=(11, 10),
    clock_mhz=1350,
    flop_per_cycle_lofi=4096,
    sram_core_bytes=1_572_864,
    sram_reserved_bytes=111_744,
    sram_alignment=16,
    dram_banks=8,
    dram_bank_bytes=4_277_141_376,
    dram_total_bytes=32 * _GIB,
    dram_alignment=64,
    dram_peak_gbps=512.0,
    dram_streaming_gbps=360.0,
    dram_best_gbps=500.0,
    noc_bytes_per_cycle=60.9,
    noc_flit_bytes=64,
    pcie_gen=BLACKHOLE.pcie_gen,
    pcie_lanes=16,
    link_to_device_gbps=21.5,
    link_from_device_gbps=14.6,
    launch_floor_ns=1050.0,
    traced_gap_ns=550.0,
    board_power_w=300,
    thermal_limit_c=90,
    datasheet_tflops={"BLOCKFP8": 664},
    datasheet_sram_mb=180,
    notes=("earlier firmware exposes 140 cores and a 13x10 grid; read the grid on a card",),
    evidence={
        **_N150.evidence,
        "cores": Evidence(_VENDOR, "140 on earlier firmware"),
        "grid": Evidence(f"{_CORE_YAML}/blackhole_140_arch.yaml; {_MOCK}", "13x10 on old firmware"),
        "dram_streaming_gbps": Evidence("public profiler files, bfp8 elementwise"),
        "dram_best_gbps": Evidence("tt-metal issue 47885"),
        "noc_bytes_per_cycle": Evidence("tt-npe device_models/blackhole.hpp"),
        "launch_floor_ns": Evidence("one-tile kernels in public profiler files, 1.0-1.1 us"),
        "traced_gap_ns": Evidence("op-to-op latency in public profiler files, 510-593 ns"),
        "thermal_limit_c": Evidence("tt-system-firmware fw_table.txt"),
    },
)

_P100 = replace(
    _P150,
    name="p100",
    title="Blackhole p100a (TC-03008)",
    board_upi=(0x36, 0x43),
    dram_banks=7,
    dram_total_bytes=28 * _GIB,
    dram_peak_gbps=448.0,
    dram_streaming_gbps=315.0,
    dram_best_gbps=440.0,
    notes=("seven of eight memory controllers",),
)

CHIPS = {chip.name: chip for chip in (_E75, _E150, _N150, _N300, _P100, _P150)}
# Suffixed and long names in the field.
ALIASES = {
    "n150d": "n150", "n150s": "n150", "n300d": "n300", "n300s": "n300", "p100a": "p100",
    "p150a": "p150", "p150b": "p150", "p150c": "p150", "grayskull": "e75", "wormhole": "n150",
    "wormhole_b0": "n150", "blackhole": "p150",
}  # fmt: skip
