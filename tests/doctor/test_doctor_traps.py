"""Every trap of the hardware, as a captured machine: the right finding and no other."""

from __future__ import annotations

import json

import pytest
from doctor_trees import BDF, BOARDS, CARD, HWMON, MOUNT, PAGES, apply, host, machine, tt_smi

from temper.doctor import Examination, Examined, run
from temper.machine.machine import MemoryMachine

ONE_G = f"{PAGES}/hugepages-1048576kB/nr_hugepages"
TWO_M = f"{PAGES}/hugepages-2048kB/nr_hugepages"
NODE = "/sys/devices/system/node/node{}/hugepages/hugepages-1048576kB/nr_hugepages"
LISTEN_8086 = (
    "  sl  local_address rem_address   st\n   0: 0100007F:1F96 00000000:0000 0A 00000000:00000000"
)


def examine(tree: dict[str, str]) -> Examination:
    return run(Examined(MemoryMachine({path: text.encode() for path, text in tree.items()})))


def grave(report: Examination) -> set[tuple[str, str]]:
    return {(f.check, f.level) for f in report.of("problem", "warning")}


@pytest.mark.parametrize("board", BOARDS)
def test_a_sound_machine_has_no_problem_and_names_its_board(board: str) -> None:
    report = examine(machine(board))
    assert grave(report) == set()
    assert report.exit_code("warning") == 0
    assert len(report.cards) == 1
    assert board in report.cards[0]
    assert BDF in report.cards[0]


WH, BH, GS = "n150", "p150", "e150"
# name: (boards, changes, keyword arguments of machine(), the one finding)
TRAPS: dict[str, tuple[tuple[str, ...], dict[str, str | None], dict[str, object], tuple[str, str]]]
TRAPS = {
    "driver 2 ignores a Grayskull": (
        ("e75", "e150"),
        {"/sys/module/tenstorrent/version": "2.0.0", f"{CARD}/driver": None,
         "/sys/class/tenstorrent/": None, "/dev/tenstorrent/": None, f"{CARD}/hwmon/": None},
        {}, ("driver", "problem")),
    "a Grayskull driver older than tt-smi asks": (
        ("e75",), {"/sys/module/tenstorrent/version": "1.26"}, {}, ("driver", "warning")),
    "driver 1 under a Wormhole": (
        (WH, "n300"), {"/sys/module/tenstorrent/version": "1.34"}, {}, ("driver", "problem")),
    "driver 1 under a Blackhole": (
        (BH, "p100"), {"/sys/module/tenstorrent/version": "1.34"}, {}, ("driver", "problem")),
    "driver below tt-metal's wish for Blackhole": (
        (BH,), {"/sys/module/tenstorrent/version": "2.4.1"}, {}, ("driver", "warning")),
    "card without driver": (
        BOARDS,
        {"/sys/module/": None, f"{CARD}/driver": None, "/sys/class/tenstorrent/": None,
         "/dev/tenstorrent/": None, f"{CARD}/hwmon/": None, f"{CARD}/tt_aiclk": None,
         f"{CARD}/tt_heartbeat": None},
        {}, ("driver", "problem")),
    "card kept by a virtual machine": (
        (WH,), {f"{CARD}/driver": "../../bus/pci/drivers/vfio-pci"}, {}, ("driver", "problem")),
    "device node without permission": (
        (GS, WH, BH), {}, {"access": {"/dev/tenstorrent/0": ""}}, ("permission", "problem")),
    "device node readable only": (
        (WH,), {}, {"access": {"/dev/tenstorrent/0": "r"}}, ("permission", "problem")),
    "device node missing in a container": (
        (WH, BH), {"/dev/tenstorrent/": None, "/sys/class/tenstorrent/": None},
        {"access": {}}, ("permission", "problem")),
    "x8 slot": (BOARDS, {f"{CARD}/current_link_width": "8"}, {}, ("pcie", "problem")),
    "x4 slot": ((GS,), {f"{CARD}/current_link_width": "4"}, {}, ("pcie", "problem")),
    "x8 while idle at Gen1 is still x8": (
        (WH,), {f"{CARD}/current_link_width": "8", f"{CARD}/current_link_speed": "2.5 GT/s PCIe"},
        {}, ("pcie", "problem")),
    "Gen3 slot": (("e75", WH, BH), {f"{CARD}/current_link_speed": "8.0 GT/s PCIe"}, {},
                  ("pcie", "warning")),
    "Grayskull at Gen1": (("e75",), {f"{CARD}/current_link_speed": "2.5 GT/s PCIe"}, {},
                          ("pcie", "problem")),
    "card fell off the bus": ((WH,), {f"{CARD}/current_link_speed": "Unknown"}, {},
                              ("pcie", "problem")),
    "fatal PCIe errors": ((BH,), {f"{CARD}/aer_dev_fatal": "DLP 1\nTOTAL_ERR_FATAL 1"}, {},
                          ("aer", "problem")),
    "nonfatal PCIe errors": ((BH,), {f"{CARD}/aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 2"}, {},
                             ("aer", "warning")),
    "a flood of corrected errors": (
        (WH,), {f"{CARD}/aer_dev_correctable": "RxErr 90000\nTOTAL_ERR_COR 90000"}, {},
        ("aer", "warning")),
    "kernel log names the card": (
        (BH,), {"/commands/dmesg": f"[ 1.0] pcieport AER: error from {BDF}\n[ 2.0] usb: fine"}, {},
        ("aer", "warning")),
    "no hugepages": (BOARDS, {ONE_G: "0", NODE.format(0): "0"}, {}, ("hugepages", "problem")),
    "the guide's 2 MiB hugepages": (
        BOARDS, {ONE_G: "0", NODE.format(0): "0", TWO_M: "8192"}, {}, ("hugepages", "problem")),
    "one page for a card that wants four": (
        (WH, BH), {ONE_G: "1", NODE.format(0): "1"}, {}, ("hugepages", "warning")),
    "the override file asks for more": (
        (GS,), {"/opt/tenstorrent/bin/hugepages-override.txt": "8"}, {}, ("hugepages", "warning")),
    "hugepages not mounted": ((GS, WH, BH), {"/proc/mounts": "sysfs /sys sysfs rw 0 0"}, {},
                              ("hugepage-mount", "problem")),
    "hugepages mounted elsewhere": (
        (WH,), {"/proc/mounts": MOUNT.replace("/dev/hugepages-1G", "/mnt/huge")}, {},
        ("hugepage-mount", "problem")),
    "2 MiB pages mounted where 1 GiB ones belong": (
        (WH,), {"/proc/mounts": MOUNT.replace("1024M", "2M")}, {}, ("hugepage-mount", "problem")),
    "pages on the other NUMA node": (
        (WH,), {NODE.format(0): "0", NODE.format(1): "4"}, {}, ("numa", "warning")),
    "old Wormhole firmware": ((WH,), {f"{CARD}/tt_fw_bundle_ver": "18.2.0.0"}, {},
                              ("firmware", "problem")),
    "Wormhole firmware of the 80 series": ((WH,), {f"{CARD}/tt_fw_bundle_ver": "80.17.0.0"}, {},
                                           ("firmware", "problem")),
    "firmware as a 32-bit word": ((WH,), {f"{CARD}/tt_fw_bundle_ver": "0x12020000"}, {},
                                  ("firmware", "problem")),
    "old Blackhole firmware": ((BH,), {f"{CARD}/tt_fw_bundle_ver": "18.4.0.0"}, {},
                               ("firmware", "problem")),
    "Blackhole firmware below tt-metal's wish": (
        (BH,), {f"{CARD}/tt_fw_bundle_ver": "19.2.0.0"}, {}, ("firmware", "warning")),
    "at the thermal limit": (("e75", WH), {f"{HWMON}/temp1_input": "75500"}, {},
                             ("temperature", "problem")),
    "Blackhole at 91 degrees": ((BH,), {f"{HWMON}/temp1_input": "91000"}, {},
                                ("temperature", "problem")),
    "close to the thermal limit": ((GS, WH), {f"{HWMON}/temp1_input": "71000"}, {},
                                   ("temperature", "warning")),
    "thermal trips": ((BH,), {f"{CARD}/tt_therm_trip_count": "2"}, {}, ("temperature", "warning")),
    "e75 above the guide's 75 W": (
        ("e75",), {f"{HWMON}/power1_input": "80000000", f"{HWMON}/power1_max": None}, {},
        ("power", "warning")),
    "e150 above the guide's 200 W": (
        ("e150",), {f"{HWMON}/power1_input": "205000000", f"{HWMON}/power1_max": "300000000"}, {},
        ("power", "warning")),
    "Blackhole clock out of range": ((BH,), {f"{CARD}/tt_aiclk": "400"}, {}, ("clock", "warning")),
    "hung management firmware": ((WH, BH), {f"{CARD}/tt_heartbeat.later": "1000"}, {},
                                 ("heartbeat", "problem")),
    "old kernel": ((WH,), {"/proc/sys/kernel/osrelease": "4.15.0-20"}, {}, ("kernel", "problem")),
    "32 GB under a Grayskull": (("e75",), {"/proc/meminfo": "MemTotal: 32768000 kB"}, {},
                                ("memory", "warning")),
    "16 GB under a Wormhole": ((WH,), {"/proc/meminfo": "MemTotal: 16384000 kB"}, {},
                               ("memory", "warning")),
    "full disk": ((WH,), {}, {"disk_free_bytes": 10**9}, ("disk", "warning")),
    "slow CPU governor": (
        (WH,), {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}, {},
        ("governor", "warning")),
    "busy host": ((WH,), {"/proc/loadavg": "40.1 30.0 20.0 9/900 1"}, {}, ("load", "warning")),
    "Python without a ttnn wheel": ((WH, BH), {}, {"python": "3.11.7"}, ("python", "warning")),
    "a torch that was not tested": ((WH,), {}, {"packages": {"torch": "2.7.1+cpu"}},
                                    ("torch", "warning")),
    "ttnn that dropped Grayskull": (("e75",), {}, {"packages": {"ttnn": "0.81.1"}},
                                    ("ttnn", "warning")),
    "an old ttnn": ((WH, BH), {}, {"packages": {"ttnn": "0.60.0", "tt-smi": "6.8.0"}},
                    ("ttnn", "warning")),
    "old tt-smi under a Blackhole": ((BH,), {}, {"packages": {"tt-smi": "3.0.15"}},
                                     ("tt-smi", "warning")),
    "hanging tt-smi": (
        (WH,), {"/commands/tt-smi": None}, {"commands": {"tt-smi": "timeout"}},
        ("tt-smi", "warning")),
    "ARCH_NAME of another chip": ((WH,), {}, {"environment": {"ARCH_NAME": "grayskull"}},
                                  ("arch-name", "problem")),
    "ARCH_NAME without b0": ((WH,), {}, {"environment": {"ARCH_NAME": "wormhole"}},
                             ("arch-name", "problem")),
    "ARCH_NAME missing on Grayskull": (
        ("e75",), {}, {"environment": {"TT_METAL_HOME": "/opt/tt-metal"}},
        ("arch-name", "warning")),
    "TT_METAL_HOME missing on Grayskull": (
        ("e75",), {}, {"environment": {"ARCH_NAME": "grayskull"}}, ("tt-metal-home", "warning")),
    "TT_METAL_HOME leads nowhere": (
        (WH,), {}, {"environment": {"TT_METAL_HOME": "/nowhere"}}, ("tt-metal-home", "problem")),
    "trace region with a unit": (
        (WH,), {}, {"environment": {"TT_RUNTIME_TRACE_REGION_SIZE": "10MB"}},
        ("trace-region", "problem")),
    "trace region below zero": (
        (WH,), {}, {"environment": {"TT_RUNTIME_TRACE_REGION_SIZE": "-1"}},
        ("trace-region", "problem")),
    "the guide's profiler variable": (
        (WH,), {}, {"environment": {"TT_METAL_PROFILER": "1"}}, ("variables", "warning")),
    "a mistyped variable": (
        (WH,), {}, {"environment": {"TT_METAL_DEVICE_PROFILLER": "1"}}, ("variables", "warning")),
    "a leftover process holds the card": (
        (WH, BH), {"/proc/4711/fd/7": "/dev/tenstorrent/0", "/proc/4711/comm": "python3"}, {},
        ("leftovers", "warning")),
    "port 8086 taken": ((WH,), {"/proc/net/tcp": LISTEN_8086}, {}, ("leftovers", "warning")),
}  # fmt: skip
CASES = [(name, board) for name, (boards, *_) in TRAPS.items() for board in boards]


@pytest.mark.parametrize(("name", "board"), CASES, ids=[f"{b}: {n}" for n, b in CASES])
def test_a_trap_gives_its_finding_and_no_other(name: str, board: str) -> None:
    _, changes, facts, expected = TRAPS[name]
    report = examine(apply(machine(board), changes, **facts))
    assert grave(report) == {expected}
    finding = next(f for f in report.findings if (f.check, f.level) == expected)
    assert finding.expected
    assert finding.why
    assert finding.fix
    assert finding.source
    assert report.exit_code() == int(expected[1] == "problem")
    assert report.exit_code("warning") == 1


@pytest.mark.parametrize(
    ("board", "status"),
    [("n150", "0x2222212"), ("n300", "0x2202222"), ("p150", "0x5556"), ("p150", "0x55555554"),
     ("p100", "0x1550")],
)  # fmt: skip
def test_failed_dram_training_is_read_from_the_raw_register(board: str, status: str) -> None:
    report = examine(machine(board, snapshot=tt_smi(board, ddr_status=status)))
    assert grave(report) == {("dram", "problem")}


@pytest.mark.parametrize(
    ("board", "status"),
    [("n150", "0x2222222"), ("p150", "0x5555"), ("p150", "0x55555555"), ("p100", "0x1555"),
     ("p100", "0x45554555")],
)  # fmt: skip
def test_trained_dram_of_old_and_new_firmware_is_good(board: str, status: str) -> None:
    report = examine(machine(board, snapshot=tt_smi(board, ddr_status=status)))
    assert grave(report) == set()


def test_grayskull_dram_training_comes_from_the_status_field() -> None:
    report = examine(machine("e75", snapshot=tt_smi("e75", dram_status=False)))
    assert grave(report) == {("dram", "problem")}


def test_an_idle_wormhole_at_gen1_and_a_low_clock_is_no_fault() -> None:
    changes = {f"{CARD}/current_link_speed": "2.5 GT/s PCIe", f"{CARD}/tt_aiclk": "500"}
    report = examine(machine("n150", changes))
    assert grave(report) == set()
    assert "idle" in next(f.seen for f in report.findings if f.check == "pcie")


def test_a_blackhole_in_a_gen4_slot_is_only_a_note() -> None:
    report = examine(machine("p150", {f"{CARD}/current_link_speed": "16.0 GT/s PCIe"}))
    assert grave(report) == set()
    assert [f.level for f in report.findings if f.check == "pcie"] == ["note"]


def test_a_translating_iommu_makes_hugepages_optional() -> None:
    changes = {f"{CARD}/iommu_group/type": "DMA-FQ", ONE_G: "0", "/proc/mounts": ""}
    report = examine(machine("n150", changes))
    assert grave(report) == set()


def test_small_pages_are_named_kindly_and_counted() -> None:
    report = examine(machine("n150", {ONE_G: "0", TWO_M: "8192"}))
    finding = next(f for f in report.findings if f.check == "hugepages")
    assert "8192 pages of 2 MiB (16 GiB) do not count" in finding.seen
    assert "4 pages of 1 GiB" in finding.expected
    assert "guide" in finding.why


def test_two_wormholes_want_eight_pages() -> None:
    tree = machine("n150")
    second = {path.replace(":01:", ":41:"): text for path, text in tree.items() if BDF in path}
    second["/sys/class/tenstorrent/tenstorrent!1/device"] = "../0000:41:00.0"
    second["/dev/tenstorrent/1"] = ""
    report = examine(tree | second)
    assert len(report.cards) == 2
    assert grave(report) == {("hugepages", "warning")}
    assert "8 pages" in next(f.expected for f in report.findings if f.check == "hugepages")


@pytest.mark.parametrize(("board", "watts"), [("e75", "750 W"), ("e150", "1000 W")])
def test_what_software_cannot_read_is_listed_with_the_guides_figures(
    board: str, watts: str
) -> None:
    by_hand = " ".join(f.seen for f in examine(machine(board)).of("manual"))
    assert watts in by_hand
    assert "30 CFM" in by_hand


def test_without_a_card_it_is_said_once_and_the_host_is_still_checked() -> None:
    changes = {"/proc/meminfo": "MemTotal: 8000000 kB", TWO_M: "8192"}
    report = examine(apply(host(), changes))
    assert report.exit_code("warning") == 0
    assert sum("no Tenstorrent card" in f.seen for f in report.findings) == 1
    assert {"hugepages", "memory", "kernel", "python"} <= {f.check for f in report.findings}


def test_no_card_no_driver_and_no_permission_are_told_apart() -> None:
    words = {}
    for name, tree in {
        "no card": host(),
        "no driver": apply(machine("n150"), TRAPS["card without driver"][1]),
        "no permission": apply(machine("n150"), {}, access={"/dev/tenstorrent/0": ""}),
    }.items():
        words[name] = " ".join(f.seen for f in examine(tree).of("problem", "note"))
    assert "no Tenstorrent card" in words["no card"]
    assert "driver is not loaded" in words["no driver"]
    assert "may not read and write" in words["no permission"]


def test_newer_firmware_than_any_list_is_no_problem() -> None:
    assert grave(examine(machine("p150", {f"{CARD}/tt_fw_bundle_ver": "20.1.0.0"}))) == set()


def test_missing_attributes_are_no_failure() -> None:
    tree = {
        path: text
        for path, text in machine("n150").items()
        if not path.startswith((f"{CARD}/tt_", f"{CARD}/aer", HWMON)) or path.endswith("tt_serial")
    }
    assert grave(examine(tree)) == set()


def test_the_findings_are_json() -> None:
    data = json.loads(json.dumps(examine(machine("n150")).as_dict()))
    assert data["ready"] is True
    assert data["counts"]["problem"] == 0
