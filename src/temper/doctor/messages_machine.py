"""Messages about the machine: card, driver, firmware, hugepages, permission."""

from __future__ import annotations

from temper.doctor import arithmetic
from temper.doctor.known import Known

_HUGEPAGES = (
    "scripts/setup_hugepages.sh 4 shows what to do, --apply does it (1 GiB pages, not 2 MiB)",
    "switch the IOMMU to translating (kernel command line: intel_iommu=on or amd_iommu=on, and no "
    "iommu=pt), then none are needed",
    "temper doctor says which of pages, mount and IOMMU is missing",
)

MESSAGES = (
    Known(
        "no-device",
        r"No Tenstorrent devices? (?:present|found|detected)|No chips detected|"
        r"No (?:TT )?devices found|could not find any tenstorrent",
        "No card could be opened",
        "no card, no driver, or no permission: three different things that give one message",
        (
            "temper doctor tells which of the three it is",
            "without a card use the virtual chip: torch.compile(model, backend='tt')",
            "in a container pass --device /dev/tenstorrent and the hugepages mount",
        ),
        "pybuda, tt-metal, tt-umd",
    ),
    Known(
        "iommu-or-hugepages",
        r"IOMMU is required for sysmem without hugepages",
        "Neither a translating IOMMU nor 1 GiB hugepages",
        "the card needs one of the two to reach host memory",
        _HUGEPAGES,
        "tt-umd sysmem manager",
    ),
    Known(
        "hugepages",
        r"hugepage.{0,60}(?:fail|could not|no huge page mount|cannot open)|no huge page mount|"
        r"Insufficient NumHugepages|NumHostMemChannels: \d+ used|"
        r"Failed to allocate or map an? hugepage|Failed to pin pages",
        "The driver did not get its 1 GiB hugepages",
        "it wants files on hugetlbfs at /dev/hugepages-1G, one page a Grayskull, four a newer card",
        _HUGEPAGES,
        "tt-umd hugepage.cpp",
        arithmetic.pages,
    ),
    Known(
        "driver-version",
        r"requires KMD version [\d.]+ or newer|KMD version .{0,40}(?:too old|not supported)|"
        r"IOMMU support prior to KMD",
        "The kernel driver is older than the user-mode driver needs",
        "tt-kmd and the tt-metal in use are of different generations",
        (
            "install the current tt-kmd (dkms) and reload it: sudo modprobe -r tenstorrent && "
            "sudo modprobe tenstorrent",
            "on Grayskull do the opposite: keep tt-kmd 1.31 and use tt-metal v0.55",
            "in a container update the host's driver: it is the kernel's, not the image's",
        ),
        "tt-umd pci_device.cpp",
    ),
    Known(
        "firmware-old",
        r"Firmware (?:bundle )?version .{1,40} is older than",
        "The card's firmware is older than the user-mode driver accepts",
        "a newer tt-metal needs newer firmware on the card",
        (
            "flash the current bundle with tt-flash, then reset or reboot",
            "use a tt-metal release of the firmware's time",
            "temper doctor shows the bundle that the card reports",
        ),
        "tt-umd topology_discovery.cpp",
        arithmetic.firmware,
    ),
    Known(
        "firmware-new",
        r"Firmware (?:bundle )?version .{1,40} is newer than",
        "Harmless: the firmware is newer than a fixed number in tt-umd",
        "a warning only; the number lags behind releases and was dropped upstream later",
        (
            "ignore it",
            "update tt-metal if you need features of the new firmware",
            "look further up or down in the log for the real error",
        ),
        "tt-umd pull request 2945",
    ),
    Known(
        "device-hang",
        r"failed to initialize FW|Timed? ?out (?:while )?waiting for (?:ARC|physical cores|device)|"
        r"ARC core .{0,40}(?:hang|hung|not)|Read 0xffffffff from",
        "The card does not answer",
        "its firmware hangs, mostly after a run that was killed; 0xffffffff means it left the bus",
        (
            "end processes that hold it, then tt-smi -r 0",
            "power the machine off and on (a warm reboot may not reset the card)",
            "temper doctor looks at link, heartbeat and AER errors",
        ),
        "tt-umd, tt-metal",
    ),
    Known(
        "device-busy",
        r"Waiting for lock 'CHIP_IN_USE|CHIP_IN_USE_\d+|Device or resource busy",
        "Another process uses the card",
        "one program at a time may open it",
        (
            "temper doctor names the process that holds it",
            "wait for it, or end it by its number if it is yours",
            "several cards: choose another with TT_VISIBLE_DEVICES",
        ),
        "tt-umd",
    ),
    Known(
        "permission",
        r"(?:/dev/tenstorrent\S*.{0,60}Permission denied|Permission denied.{0,60}/dev/tenstorrent)",
        "The card is there; this user may not open it",
        "tt-kmd's udev rule sets mode 0666; it is missing or another rule wins",
        (
            "install the rule, then sudo udevadm control --reload && sudo udevadm trigger",
            "in a container run with --device /dev/tenstorrent and the right user",
            "until then: sudo chmod 0666 /dev/tenstorrent/0",
        ),
        "tt-kmd udev rules",
    ),
)
