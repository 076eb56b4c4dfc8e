"""Is there a card, a driver for it, and permission to use it?"""

from __future__ import annotations

from temper.chips import ARCHITECTURES
from temper.doctor import versions
from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check
from temper.machine.cards import Card

MODULE = "/sys/module/tenstorrent"
_KMD = "tt-kmd"
_KNOWN = ", ".join(f"{a.pci_device:04x} {a.title}" for a in ARCHITECTURES.values())


@check("card", "card")
def card_present(context: Examined) -> Result:
    """No card is no fault: everything but the card itself works without one."""
    if not context.has_card:
        loaded = context.machine.exists(MODULE)
        bus = bool(context.machine.listing("/sys/bus/pci/devices"))
        where = (
            "no PCI function with vendor 1e52" if bus else "and no PCI bus in sysfs (a container?)"
        )
        yield Finding(
            "card", "card", "note",
            f"no Tenstorrent card: {where}" + ("; the driver is loaded" if loaded else ""),
            why="compiling, running, profiling, tuning and explaining work on the virtual chip; "
            "its times are modelled",
            fix="to use a card: seat it in an x16 slot, connect its power, install tt-kmd; "
            "in a container pass --device /dev/tenstorrent",
            source="lspci -d 1e52: shows cards",
        )  # fmt: skip
        return
    for card in context.cards:
        if not card.arch:
            yield Finding(
                "card", "card", "note" if card.path else "warning",
                f"{card.label}: PCI details are hidden or the device id is unknown",
                expected=f"device id {_KNOWN}",
                why="link, firmware and temperature cannot be judged without it",
                fix="mount /sys read-only into the container, or update temper",
                source="tt-kmd enumerate.h", card=card.label,
            )  # fmt: skip
        elif not card.board:
            yield Finding(
                "card", "card", "note", f"{card.label}: the board type cannot be read",
                expected="a board id in tt_serial, or tt-smi's board type",
                why="limits that differ between boards are then not judged",
                fix="install tt-smi in this environment", source="tt-umd board ids",
                card=card.label,
            )  # fmt: skip
        else:
            yield Finding("card", "card", "ok", card.label, card=card.label)


@check("driver", "driver")
def driver_loaded(context: Examined) -> Result:
    """Whether the kernel driver is loaded, and which."""
    machine = context.machine
    if not context.has_card:
        return
    if not machine.exists(MODULE):
        hidden = machine.listing("/dev/tenstorrent")
        if hidden:  # a container that passes the node but not /sys/module
            yield Finding("driver", "driver", "note", "driver version hidden, device node present")
            return
        yield Finding(
            "driver", "driver", "problem", "the card is there, its driver is not loaded",
            expected="kernel module tenstorrent", why="nothing can open the card without it",
            fix=_install_hint(context.cards), source=_KMD,
        )  # fmt: skip
        return
    version = versions.parse(machine.text(f"{MODULE}/version"))
    shown = versions.show(version) if version else "of unknown version"
    for card in context.cards:
        yield _version_finding(card, version, shown)
    for card in context.cards:
        bound = machine.target(f"{card.path}/driver").rsplit("/", 1)[-1] if card.path else ""
        if bound and bound != "tenstorrent":
            yield Finding(
                "driver", "driver", "problem", f"{card.label} is bound to {bound}",
                expected="tenstorrent", why=f"{bound} keeps the card for something else "
                "(vfio-pci: a virtual machine)",
                fix=f"unbind it from {bound}, then load tenstorrent", source=_KMD,
                card=card.label,
            )  # fmt: skip


def _version_finding(card: Card, version: versions.Version | None, shown: str) -> Finding:
    def finding(level: str, **texts: str) -> Finding:
        return Finding(
            "driver", "driver", level, f"driver {shown}", card=card.label, source=_source, **texts
        )

    _source = "tt-umd kmd_versions.hpp; vendor specification for Grayskull"
    if version is None:
        return finding("note", expected="a readable /sys/module/tenstorrent/version")
    last = card.last_stack
    if last is not None:
        newest = versions.show(last.driver)
        if version >= last.driver_dropped:
            return finding(
                "problem", expected=f"{last.driver[0]}.x, the last is {newest}",
                why=f"driver {versions.show(last.driver_dropped)} dropped {_title(card)}: it is "
                "too new for this card and ignores it",
                fix=f"remove it and install tt-kmd {newest} (dkms)",
            )  # fmt: skip
        if version < versions.DRIVER_MIN_TT_SMI:
            return finding(
                "warning", expected=f"1.27 to {newest}", why="tt-smi asks for at least 1.27",
                fix=f"install tt-kmd {newest} (dkms)",
            )  # fmt: skip
        return finding("ok")
    if version < versions.DRIVER_MIN:
        return finding(
            "problem", expected="2.0.0 or newer",
            why="the user-mode driver of tt-metal refuses older ones",
            fix="install the current tt-kmd (dkms), reload the module or reboot",
        )  # fmt: skip
    wanted = card.architecture.driver_recommended if card.architecture else None
    if wanted and version < wanted:
        return finding(
            "warning", expected=f"{versions.show(wanted)} or newer for {_title(card)}",
            why="tt-metal's installation guide asks for it", fix="install the current tt-kmd",
        )  # fmt: skip
    return finding("ok")


def _install_hint(cards: list[Card]) -> str:
    for card in cards:
        if card.last_stack is not None:
            newest = versions.show(card.last_stack.driver)
            return (
                f"install tt-kmd {newest} ({_title(card)} needs {card.last_stack.driver[0]}.x), "
                "then: sudo modprobe tenstorrent"
            )
    return "sudo modprobe tenstorrent; if it is not found, install tt-kmd 2.x (dkms)"


@check("permission", "driver")
def node_permission(context: Examined) -> Result:
    """Whether this user may open the card."""
    machine = context.machine
    for card in context.cards:
        if not card.node:
            if machine.exists(MODULE) and not _too_new(context, card):
                yield Finding(
                    "permission", "driver", "problem", f"{card.title} has no device node",
                    expected="/dev/tenstorrent/0", why="programs open the card through it",
                    fix="outside a container: look into 'sudo dmesg | grep tenstorrent'; "
                    "inside: start it with --device /dev/tenstorrent",
                    source=_KMD, card=card.label,
                )  # fmt: skip
            continue
        access = machine.access(card.node)
        if access is None:
            yield Finding(
                "permission", "driver", "problem", f"{card.node} is missing",
                expected="a character device", why="programs open the card through it",
                fix="in a container pass --device /dev/tenstorrent; else reload the module",
                source=_KMD, card=card.label,
            )  # fmt: skip
        elif "r" not in access or "w" not in access:
            yield Finding(
                "permission", "driver", "problem",
                f"{card.node} is there, but this user may not read and write it",
                expected="mode 0666 as tt-kmd's udev rule sets",
                why="it is no missing card or driver: only permission is missing",
                fix="install tt-kmd's udev rule, then: sudo udevadm control --reload && "
                "sudo udevadm trigger", source="tt-kmd udev rules", card=card.label,
            )  # fmt: skip
        else:
            yield Finding("permission", "driver", "ok", f"{card.node} can be opened")


def _too_new(context: Examined, card: Card) -> bool:
    """A driver that ignores the card explains the missing node already."""
    version = versions.parse(context.machine.text(f"{MODULE}/version"))
    last = card.last_stack
    return last is not None and version is not None and version >= last.driver_dropped


def _title(card: Card) -> str:
    return card.architecture.title if card.architecture else "this card"


@check("firmware", "card")
def firmware_version(context: Examined) -> Result:
    """Whether the card's firmware is one that the stack takes."""
    for card in context.cards:
        text = context.machine.text(f"{card.path}/tt_fw_bundle_ver") or card.smi.firmware
        version = versions.parse_bundle(text)
        if version is None or not any(version):
            continue  # attributes exist only if the firmware publishes them
        source = "tt-umd firmware_utils.cpp; tt-metal INSTALLING.md"
        fix = "flash the current bundle with tt-flash (this needs a reset or reboot)"
        if card.last_stack is not None:
            good = version[:4] == card.last_stack.firmware
            newest = versions.show(card.last_stack.firmware)
            yield Finding(
                "firmware", "card", "ok" if good else "warning",
                f"firmware {versions.show(version)}", expected=f"{newest}, the last for "
                f"{_title(card)}", why="" if good else "older packs miss fixes",
                fix="" if good else f"flash fw_pack-{newest} with the tt-flash of that time",
                source="vendor specification", card=card.label,
            )  # fmt: skip
            continue
        version = versions.drop_legacy_prefix(version)
        arch = card.architecture
        least = arch.firmware_min if arch else None
        wanted = arch.firmware_recommended if arch else None
        shown = f"firmware bundle {versions.show(version)}"
        if least and version < least:
            yield Finding(
                "firmware", "card", "problem", shown, expected=f"{versions.show(least)} or newer",
                why=f"the user-mode driver refuses older firmware on {_title(card)}",
                fix=fix, source=source, card=card.label,
            )  # fmt: skip
        elif wanted and version < wanted:
            yield Finding(
                "firmware", "card", "warning", shown,
                expected=f"{versions.show(wanted)} or newer for {_title(card)}",
                why="tt-metal's installation guide asks for it", fix=fix, source=source,
                card=card.label,
            )  # fmt: skip
        else:
            yield Finding("firmware", "card", "ok", shown, card=card.label)
