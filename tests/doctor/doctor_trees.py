"""Machines as small trees: a sound one for each board, to which a test makes one change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

BDF = "0000:01:00.0"
CARD = f"/sys/bus/pci/devices/{BDF}"
HWMON = f"{CARD}/hwmon/hwmon3"
PAGES = "/sys/kernel/mm/hugepages"
MOUNT = "hugetlbfs /dev/hugepages-1G hugetlbfs rw,relatime,mode=777,pagesize=1024M 0 0"
BOARDS = ("e75", "e150", "n150", "n300", "p100", "p150")

# device id, board type code, link speed, driver, bundle, hwmon name, limit mC, power limit W,
# clock MHz, Ubuntu, pages, Python
_BOARDS = {
    "e75": ("0xfaca", None, "16.0", "1.31", None, "grayskull", 75, 75, 1000, "20.04", 1, "3.10.12"),
    "e150": ("0xfaca", None, "16.0", "1.31", None, "grayskull", 75, 200, 1200, "20.04", 1,
             "3.10.12"),
    "n150": ("0x401e", 0x18, "16.0", "2.4.1", "19.2.0.0", "wormhole", 75, 160, 1000, "22.04", 4,
             "3.10.12"),
    "n300": ("0x401e", 0x14, "16.0", "2.4.1", "19.2.0.0", "wormhole", 75, 300, 1000, "22.04", 4,
             "3.10.12"),
    "p100": ("0xb140", 0x43, "32.0", "2.9.0", "19.9.0.0", "blackhole", 90, 150, 1350, "24.04", 4,
             "3.12.3"),
    "p150": ("0xb140", 0x40, "32.0", "2.9.0", "19.9.0.0", "blackhole", 90, 150, 1350, "24.04", 4,
             "3.12.3"),
}  # fmt: skip
ARCH = {"e": "grayskull", "n": "wormhole_b0", "p": "blackhole"}


def host(ubuntu: str = "22.04", python: str = "3.10.12", **facts: object) -> dict[str, str]:
    """A host without a card."""
    return {
        "/proc/sys/kernel/osrelease": "5.15.0-107-generic",
        "/etc/os-release": f'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="{ubuntu}"\n'
        f'PRETTY_NAME="Ubuntu {ubuntu} LTS"\n',
        "/proc/meminfo": "MemTotal:       131000000 kB\nHugePages_Total:       0\n",
        "/proc/loadavg": "0.42 0.40 0.38 1/900 4242",
        "/proc/mounts": "sysfs /sys sysfs rw 0 0",
        "/proc/net/tcp": "  sl  local_address rem_address   st\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "acpi-cpufreq",
        "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages": "0",
        f"{PAGES}/hugepages-1048576kB/nr_hugepages": "0",
        f"{PAGES}/hugepages-2048kB/nr_hugepages": "0",
        "/capture.json": json.dumps({"python": python, "cpus": 32, "home": "/home/user",
                                     "disk_free_bytes": 500 * 10**9, **facts}),
    }  # fmt: skip


def machine(
    board: str,
    changes: Mapping[str, str | None] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    snapshot: Mapping[str, object] | None = None,
    **facts: object,
) -> dict[str, str]:
    """A sound machine with one card, then ``changes``: path to text, or None to remove a path.

    A removed path that ends in ``/`` takes everything below it along.
    """
    (device, code, speed, driver, bundle, name, limit, power, clock, ubuntu, pages, python) = (
        _BOARDS[board]
    )
    arch = ARCH[board[0]]
    variables = {"ARCH_NAME": "grayskull", "TT_METAL_HOME": "/opt/tt-metal"}
    tree = host(
        ubuntu,
        python,
        packages={"tt-smi": "6.8.0"} if board[0] != "e" else {"tt-smi": "3.0.0"},
        environment={**(variables if board[0] == "e" else {}), **(environment or {})},
        existing_paths=["/opt/tt-metal"],
        access={"/dev/tenstorrent/0": "rw"},
    )
    tree |= {
        f"{CARD}/vendor": "0x1e52",
        f"{CARD}/device": device,
        f"{CARD}/driver": "../../../../bus/pci/drivers/tenstorrent",
        f"{CARD}/current_link_speed": f"{speed} GT/s PCIe",
        f"{CARD}/max_link_speed": f"{speed} GT/s PCIe",
        f"{CARD}/current_link_width": "16",
        f"{CARD}/max_link_width": "16",
        f"{CARD}/numa_node": "0",
        f"{CARD}/iommu_group/type": "identity",
        f"{CARD}/aer_dev_fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0",
        f"{CARD}/aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
        f"{CARD}/aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 3",
        f"{CARD}/tt_aiclk": str(clock),
        f"{HWMON}/name": name,
        f"{HWMON}/temp1_input": "46000",
        f"{HWMON}/temp1_max": str(limit * 1000),
        f"{HWMON}/power1_input": "38000000",
        f"{HWMON}/power1_max": str(power * 1_000_000),
        f"{HWMON}/in0_input": "810",
        f"{HWMON}/curr1_input": "30000",
        "/sys/class/tenstorrent/tenstorrent!0/device": f"../../../{BDF}",
        "/sys/module/tenstorrent/version": driver,
        "/dev/tenstorrent/0": "",
        f"{PAGES}/hugepages-1048576kB/nr_hugepages": str(pages),
        "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages": str(pages),
        "/proc/mounts": f"sysfs /sys sysfs rw 0 0\n{MOUNT}",
        "/commands/tt-smi": json.dumps(snapshot or tt_smi(board)),
    }
    if code is not None:
        tree[f"{CARD}/tt_serial"] = f"{(code << 36) | 0x4321:016x}"
        tree[f"{CARD}/tt_asic_id"] = "beefcafe12345678"
        tree[f"{CARD}/tt_fw_bundle_ver"] = bundle or ""
        tree[f"{CARD}/tt_heartbeat"] = "1000"
        tree[f"{CARD}/tt_heartbeat.later"] = "1010"
    if arch == "blackhole":
        tree[f"{CARD}/tt_therm_trip_count"] = "0"
        tree[f"{HWMON}/fan1_input"] = "1400"
    return apply(tree, changes or {}, **facts)


def apply(
    tree: dict[str, str], changes: Mapping[str, str | None], **facts: object
) -> dict[str, str]:
    for path, text in changes.items():
        if text is not None:
            tree[path] = text
        elif path.endswith("/"):
            tree = {known: value for known, value in tree.items() if not known.startswith(path)}
        else:
            tree.pop(path, None)
    if facts:
        tree["/capture.json"] = json.dumps({**json.loads(tree["/capture.json"]), **facts})
    return tree


def tt_smi(board: str, ddr_status: str | None = None, **board_info: object) -> dict[str, object]:
    """A snapshot as tt-smi 6.8 prints it, or with fields of older versions."""
    status = {"n": "0x2222222", "p": "0x55555555", "e": None}[board[0]]
    if board == "p100":
        status = "0x15551555"
    return {
        "time": "2026-01-01T00:00:00",
        "host_info": {"OS": "Linux", "Hostname": "secret-host", "Driver": "TT-KMD 2.4.1"},
        "device_info": [
            {
                "smbus_telem": {
                    "BOARD_ID": "0x10001851170900c", "DDR_STATUS": ddr_status or status
                },
                "board_info": {
                    "bus_id": BDF,
                    "board_type": {"n": f"{board} L", "p": f"{board}a", "e": board}[board[0]],
                    "board_id": "10001851170900c",
                    "dram_status": True,
                    "dram_speed": "12G",
                    "pcie_speed": 4,
                    "pcie_width": "16",
                    **board_info,
                },
                "telemetry": {"voltage": "0.81", "current": " 30.0", "power": " 38.0",
                              "aiclk": "1000", "asic_temperature": "46.0"},
                "firmwares": {"fw_bundle_version": "80.14.0.0" if board[0] == "e" else "19.2.0"},
                "limits": {"thm_limit": "75", "tdp_limit": "160"},
            }
        ],
        "processes": [{"pid": 1, "user": "alice", "device": 0, "cmdline": "python secret.py"}],
    }  # fmt: skip


def write(tree: Mapping[str, str], root: Path) -> Path:
    """The tree as files below ``root``."""
    for path, text in tree.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root
