"""Which Tenstorrent cards a machine has, by their right names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from temper.chips import ARCHITECTURES, CHIPS, Architecture, Chip
from temper.chips.architecture import LastStack
from temper.chips.data import ALIASES
from temper.machine.machine import Machine
from temper.machine.smi import SmiDevice

VENDOR = 0x1E52
PCI = "/sys/bus/pci/devices"
CLASS = "/sys/class/tenstorrent"
_BY_PCI_DEVICE = {arch.pci_device: name for name, arch in ARCHITECTURES.items()}
# Boards that Temper names but has no single-chip record of.
OTHER_BOARDS = {0x35: "Galaxy", 0x44: "p300", 0x45: "p300", 0x46: "p300", 0x47: "Galaxy",
                0xA: "e300", 0x1: "e300"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Card:
    """One PCI function of a card, with where to read more about it."""

    index: int
    bdf: str  # empty when only the device node is visible
    path: str
    arch: str  # empty when unknown
    board: str  # n150, p150, ...; empty when software cannot tell
    node: str  # /dev/tenstorrent/N, or empty
    hwmon: str
    smi: SmiDevice

    @property
    def chip(self) -> Chip | None:
        """The chip's record; None when the board is not known."""
        return CHIPS.get(self.board)

    @property
    def architecture(self) -> Architecture | None:
        """The architecture's record; None when it is not known."""
        return ARCHITECTURES.get(self.arch)

    @property
    def last_stack(self) -> LastStack | None:
        """The last versions that serve the card, where newer ones have dropped it."""
        return self.architecture.last_stack if self.architecture else None

    @property
    def title(self) -> str:
        name = self.architecture.title if self.architecture else "Tenstorrent card"
        board = f" {self.board}" if self.board else ""
        return f"{name}{board}"

    @property
    def label(self) -> str:
        return f"{self.title} at {self.bdf or self.node}"


def find(machine: Machine, smi: list[SmiDevice] | None = None) -> list[Card]:
    """Cards by PCI id, else by driver class, else by device node."""
    nodes = _nodes_by_bdf(machine)
    snapshots = {device.bus_id.lower(): device for device in smi or [] if device.bus_id}
    paths = {bdf: f"{PCI}/{bdf}" for bdf in machine.listing(PCI)}
    if not paths:  # containers often mount the class but not the bus
        paths = {bdf: f"{CLASS}/{name}/device" for bdf, (name, _) in nodes.items()}
    cards: list[Card] = []
    for bdf, path in sorted(paths.items()):
        if machine.number(f"{path}/vendor") != VENDOR:
            continue
        arch = _BY_PCI_DEVICE.get(machine.number(f"{path}/device") or 0, "")
        seen = snapshots.get(bdf.lower(), SmiDevice())
        node = nodes.get(bdf, ("", ""))[1]
        board = _board(machine, path, arch, seen)
        hwmon = _hwmon(machine, path, bdf)
        cards.append(Card(len(cards), bdf, path, arch, board, node, hwmon, seen))
    if not cards:
        for number in machine.listing("/dev/tenstorrent"):
            if number.isdigit():
                node = f"/dev/tenstorrent/{number}"
                cards.append(Card(len(cards), "", "", "", "", node, "", SmiDevice()))
    return _guess_nodes(machine, cards)


def _nodes_by_bdf(machine: Machine) -> dict[str, tuple[str, str]]:
    found = {}
    for name in machine.listing(CLASS):
        number = re.fullmatch(r"tenstorrent[!/]?(\d+)", name)
        bdf = machine.target(f"{CLASS}/{name}/device").rsplit("/", 1)[-1]
        if number and bdf:
            found[bdf] = (name, f"/dev/tenstorrent/{number.group(1)}")
    return found


def _guess_nodes(machine: Machine, cards: list[Card]) -> list[Card]:
    """Without the class directory a single card and a single node belong together."""
    names = [name for name in machine.listing("/dev/tenstorrent") if name.isdigit()]
    if len(cards) == len(names) == 1 and not cards[0].node:
        card = cards[0]
        node = f"/dev/tenstorrent/{names[0]}"
        return [Card(0, card.bdf, card.path, card.arch, card.board, node, card.hwmon, card.smi)]
    return cards


def _board(machine: Machine, path: str, arch: str, smi: SmiDevice) -> str:
    """The board from its id, else from the driver's or tt-smi's word for it."""
    serial = machine.text(f"{path}/tt_serial") or ""
    try:
        code = (int(serial, 16) >> 36) & 0xFFFFF
    except ValueError:
        code = 0
    for chip in CHIPS.values():
        if chip.arch == arch and code in chip.board_upi:
            return chip.name
    if code in OTHER_BOARDS:
        return OTHER_BOARDS[code]
    for word in (machine.text(f"{path}/tt_card_type"), smi.board_type):
        name = (word or "").strip().lower()
        name = ALIASES.get(name, name)
        if name in CHIPS and CHIPS[name].arch == arch:
            return name
    return ""


def _hwmon(machine: Machine, path: str, bdf: str) -> str:
    own = [f"{path}/hwmon/{name}" for name in machine.listing(f"{path}/hwmon")]
    shared = [
        f"/sys/class/hwmon/{name}"
        for name in machine.listing("/sys/class/hwmon")
        if machine.target(f"/sys/class/hwmon/{name}/device").rsplit("/", 1)[-1] == bdf
    ]
    return next(iter(own + shared), "")
