"""Known messages are explained with their own numbers."""

from __future__ import annotations

import pytest

from temper.chips import get
from temper.doctor.explain import component, explain
from temper.doctor.messages import MESSAGES

N150, P150 = get("n150"), get("p150")
# As printed by tt-metal, tt-umd, tt-xla and their tools: (message, name, figures in the answer).
SAMPLES = [
    ("TT_FATAL @ /w/tt_metal/impl/allocator/bank_manager.cpp:462: Out of Memory: Not enough space "
     "to allocate 55444480 B L1 buffer across 70 banks, where each bank needs to store 792064 B, "
     "but bank size is 1393472 B (allocated: 923776 B, free: 469696 B, largest free block: "
     "373824 B)", "out-of-memory-l1", ["792 064", "66%", "322 368 B short"]),
    ("Out of Memory: Not enough space to allocate 1000000 B L1 buffer across 10 banks, where each "
     "bank needs to store 100000 B, but bank size is 500000 B (allocated: 300000 B, free: 200000 "
     "B, largest free block: 90000 B)", "out-of-memory-l1", ["fragmentation", "10 000 B short"]),
    ("Out of Memory: Not enough space to allocate 570425344 B DRAM buffer across 8 banks",
     "out-of-memory-dram", ["71 303 168"]),
    ("Out of Memory: Not enough space after considering dependencies to allocate 2048 B DRAM "
     "across 2 banks (1024 B per bank), bank size is 4096 B (allocated: 3500 B, free: 596 B, "
     "largest free block: 512 B)", "out-of-memory-dram", ["428 B short"]),
    ("TT_THROW: Statically allocated circular buffers on core range [(x=0,y=0) - (x=10,y=9)] grow "
     "to 2247168 B\nwhich is beyond max L1 size of 1572864 B", "circular-buffers-beyond-l1",
     ["674 304", "43%"]),
    ("Statically allocated circular buffers in program 166 clash with L1 buffers on core range "
     "[(x=0,y=0) - (x=4,y=7)]. L1 buffer allocated at 600256 and static circular buffer region "
     "ends at 621824", "circular-buffers-clash", ["21 568", "898 880"]),
    ("Creating trace buffers of size 751616B on device 0, but only 0B is allocated for trace "
     "region.", "trace-region", ["751 616", "65 536", "TT_RUNTIME_TRACE_REGION_SIZE=1000000"]),
    ("Creating trace buffers of size 7929856B on MeshDevice 3, but only 2097152B is allocated for "
     "trace region", "trace-region", ["5 832 704", "663 552", "10000000"]),
    ("TT_FATAL: Cannot load new binaries during trace capture", "trace-binaries", []),
    ("Reads are not supported during trace capture.", "trace-io", []),
    ("RuntimeError: No Tenstorrent devices present.", "no-device", []),
    ("IOMMU is required for sysmem without hugepages.", "iommu-or-hugepages", []),
    ("find_hugepage_dir: no huge page mount found in /proc/mounts for path: /dev/hugepages-1G with "
     "hugepage_size: 1073741824.", "hugepages", []),
    ("Insufficient NumHugepages: 1 should be at least NumMMIODevices: 2 for device_id: 0x401e",
     "hugepages", ["four a card", "8"]),
    ("NumHostMemChannels: 1 used for device_id: 0x401e less than target: 4.", "hugepages",
     ["reserve 4"]),
    ("Running UMD requires KMD version 2.0.0 or newer.", "driver-version", []),
    ("Firmware bundle version 18.2.0 on the system is older than the minimum compatible version "
     "18.3.0 for wormhole_b0 architecture", "firmware-old", ["installed 18.2.0, needed 18.3.0"]),
    ("Firmware bundle version 18.5.0 on the system is older than the minimum compatible version "
     "18.5.0 for blackhole architecture", "firmware-old", ["equal"]),
    ("Firmware bundle version 19.8.1 on the system is newer than the latest fully tested version "
     "19.5.0 for blackhole architecture.", "firmware-new", []),
    ("Unknown boolean option value: maybe for enable_trace", "xla-boolean", []),
    ("Invalid optimization_level: 3. Must be between 0 and 2.", "xla-level", ["given 3"]),
    ("Compile option 'export_path' must be provided when backend is not 'TTNNFlatbuffer'",
     "xla-export-path", []),
    ("Unknown backend option value: cuda for backend", "xla-backend", []),
    ("ModuleNotFoundError: No module named 'torch_xla.core'", "script-imports", []),
    ("Command 'tools/profiler/bin/capture-release -o tracy_profile_log_host.tracy -f -p 8086' "
     "timed out after 15 seconds", "capture-timeout", []),
    ("OSError: [Errno 98] Address already in use", "port-in-use", []),
    ("Profiler DRAM buffers were full, markers were dropped! device 0", "profiler-full", []),
    ("Cannot enable both debug printing and profiling", "profiler-and-print", []),
    ("ARCH_NAME is not set", "arch-name", []),
    ("ValueError: Unknown architecture 'grayskull'", "arch-name", []),
    ("ERROR: No matching distribution found for ttnn", "wheel", []),
    ("ttnn-0.81.1-cp310-cp310-manylinux.whl is not a supported wheel on this platform.",
     "wheel", []),
    ("ImportError: _XLAC.cpython-310.so: undefined symbol: _ZN5torch", "undefined-symbol", []),
    ("Env var TT_METAL_HOME is not set.", "metal-home", []),
    ("TT_THROW @ tt_metal/jit_build/build.cpp:90: Failed to generate binaries for reader",
     "kernel-build", []),
    ("Device 0 init: failed to initialize FW! Try resetting the board.", "device-hang", []),
    ("Waiting for lock 'CHIP_IN_USE_0_PCIe' which is currently held by pid 123", "device-busy", []),
    ("open /dev/tenstorrent/0: Permission denied", "permission", []),
    ("Number of shards along height 80 must not exceed number of cores 64", "shards", ["1.25"]),
    ("tt-smi: error: unrecognized arguments: --temperature", "tt-smi-flags", []),
    ("AttributeError: module 'pybuda' has no attribute 'TFDevice'", "pybuda-names", []),
    ("temper: conv2 does not fit in SRAM at batch 96 (level 2).", "temper-memory", []),
    ("temper: unknown chip 'n1500'", "temper-name", []),
    ("temper: something else", "other-temper", []),
    ("RuntimeError: Failed to allocate 5 GB", "other-allocation", []),
    ("RuntimeError: Bad StatusOr access: INTERNAL: Error code: 13", "other-status", []),
    ("TT_FATAL @ x.cpp:1: odd", "other-fatal", []),
]  # fmt: skip


@pytest.mark.parametrize(("message", "name", "figures"), SAMPLES, ids=[s[1] for s in SAMPLES])
def test_a_known_message_is_explained(message: str, name: str, figures: list[str]) -> None:
    found = explain(message, N150)
    assert found[0].name == name
    assert found[0].means
    assert len(found[0].ways) == 3
    for figure in figures:
        assert figure in " ".join(found[0].arithmetic)


def test_every_entry_of_the_table_has_a_sample() -> None:
    assert {known.name for known in MESSAGES} == {name for _, name, _ in SAMPLES}


def test_the_chip_is_taken_from_the_messages_own_sizes() -> None:
    text = "circular buffers on core range [x] grow to 1600000 B which is beyond max L1 size of "
    wormhole = explain(text + "1499136 B", P150)[0].arithmetic[1]
    blackhole = explain(text + "1572864 B", N150)[0].arithmetic[1]
    assert "n150" in wormhole
    assert "105 824" in wormhole
    assert "111 744" in blackhole


def test_a_specific_message_hides_the_general_ones_around_it() -> None:
    log = (
        "RuntimeError: Bad StatusOr access: INTERNAL: Error code: 13\n\x1b[31mTT_FATAL\x1b[0m @ "
        "trace.cpp:3: Cannot load new binaries\n during trace capture"
    )
    assert [item.name for item in explain(log, N150)] == ["trace-binaries"]


def test_an_unknown_message_is_not_guessed() -> None:
    assert explain("ZeroDivisionError: division by zero", N150) == []


def test_a_very_long_log_is_explained_in_time() -> None:
    explain("Out of Memory number of shards " * 20_000, N150)


def test_the_part_of_the_stack_is_named() -> None:
    where = component("TT_THROW @ /w/tt_metal/impl/program/program.cpp:921: tt::exception")
    assert where == "program set-up (circular buffers, kernels) (program.cpp:921)"
    assert component("nothing") == ""
