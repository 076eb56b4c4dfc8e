"""Parts of a .tracy file: strings, source locations, nested host zones, memory events."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from temper.record.events import Flag, Kind
from temper.run.opinfo import OpInfo
from temper.run.records import ProcessRun, Run

PLOTTED_CALLS = 200  # memory repeats from call to call; this many show it
_MAX_SOURCES = 32_000  # the format's limit is 32767
_Write = Callable[[bytes], None]
_ACTIVE_INDEX = 3  # a reference by index into the string table


class StringTable:
    """Every string once; a string's pointer is any number that is its own."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    @staticmethod
    def pointer(index: int) -> int:
        return index + 1

    def write(self, write: _Write) -> None:
        write(struct.pack("<Q", len(self._index)))
        for text, index in self._index.items():
            # The loader takes strings as C strings.
            data = text.replace("\0", " ").encode("utf-8", "replace")
            write(struct.pack("<QQ", self.pointer(index), len(data)) + data)


class SourceTable:
    """Dynamic source locations: name, function, file and line of a zone."""

    def __init__(self, strings: StringTable) -> None:
        self._strings = strings
        self._index: dict[tuple[str, str, str, int], int] = {}

    def add(self, name: str, function: str = "", file: str = "", line: int = 0) -> int:
        """The number to put into a zone; beyond the format's limit zones share one location."""
        key = (name, function, file, line)
        if key not in self._index and len(self._index) >= _MAX_SOURCES:
            key = ("other", "", "", 0)
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self._index)
            for text in key[:3]:
                self._strings.add(text)
        return -(index + 1)

    def names(self) -> list[str]:
        """The name of each location, in order."""
        return [key[0] for key in self._index]

    def of_op(self, info: OpInfo) -> int:
        source = info.op.source
        return self.add(info.name, info.code, source.file, source.line)

    def write(self, write: _Write) -> None:
        write(struct.pack("<Q", len(self._index)))
        for name, function, file, line in self._index:
            for text in (name, function, file):
                write(struct.pack("<QB", self._strings.add(text), _ACTIVE_INDEX))
            write(struct.pack("<II", max(0, line), 0))


@dataclass
class HostZone:
    """A span of one thread; ``children`` counts those directly inside it."""

    start_ns: int
    end_ns: int
    source: int
    call: int = -1  # its number among the process's calls, where it is one
    children: int = 0
    inside: list[HostZone] = field(default_factory=list, repr=False)


def host_zones(process: ProcessRun, base_ns: int, sources: SourceTable) -> list[HostZone]:
    """Calls, spans and transfers in order of start; what overlaps is cut to nest."""
    zones = []
    kinds = (Kind.CALL, Kind.SPAN, Kind.TRANSFER_IN, Kind.TRANSFER_OUT)
    calls = {position: number for number, position in enumerate(process.call_indices.tolist())}
    for position in np.flatnonzero(np.isin(process.events["kind"], kinds)).tolist():
        event = process.events[position]
        start, end = int(event["start_ns"]) - base_ns, int(event["end_ns"]) - base_ns
        source, call = _source(process, event, sources), calls.get(position, -1)
        zones.append(HostZone(start, max(start, end), source, call))
    zones.sort(key=lambda zone: (zone.start_ns, -zone.end_ns))
    stack: list[HostZone] = []
    for zone in zones:
        while stack and stack[-1].end_ns <= zone.start_ns:
            stack.pop()
        if stack:
            zone.end_ns = min(zone.end_ns, stack[-1].end_ns)
            stack[-1].inside.append(zone)
            stack[-1].children += 1
        stack.append(zone)
    return zones


def _source(process: ProcessRun, event: np.void, sources: SourceTable) -> int:
    kind, ref, flags = int(event["kind"]), int(event["ref"]), int(event["flags"])
    if kind == Kind.CALL:
        record = process.programs.get(ref)
        name = record.program.name if record else "unknown program"
        how = "first call" if flags & Flag.FIRST else "replay" if flags & Flag.TRACED else "call"
        return sources.add(f"{how} of {name}", "call", *(record.call_site if record else ("", 0)))
    if kind == Kind.SPAN:
        return sources.add(process.name(ref), "span")
    verb = "upload" if kind == Kind.TRANSFER_IN else "read back"
    return sources.add(f"{verb} {process.name(ref)}".strip(), "link")


def write_timeline(zones: Sequence[HostZone], write: _Write) -> None:
    """Depth first, each time as the difference to the one written before it."""
    nested = {id(child) for zone in zones for child in zone.inside}
    roots = [zone for zone in zones if id(zone) not in nested]
    write(struct.pack("<I", len(roots)))
    before = 0
    # (zone, opened): an explicit stack, because zones may nest deeper than Python recurses.
    stack = [(zone, False) for zone in reversed(roots)]
    while stack:
        zone, opened = stack.pop()
        if opened:
            write(struct.pack("<q", zone.end_ns - before))
            before = zone.end_ns
            continue
        write(struct.pack("<hqII", zone.source, zone.start_ns - before, 0, zone.children))
        before = zone.start_ns
        stack.append((zone, True))
        stack.extend((child, False) for child in reversed(zone.inside))


@dataclass
class Allocation:
    """One block of device memory and how long it was held; -1: to the end."""

    address: int
    size_bytes: int
    alloc_ns: int
    free_ns: int
    thread: int


def memory_events(run: Run, pool: str, base_ns: int) -> list[Allocation]:
    """Allocations of all processes, each matched with its release by address."""
    kind = Kind.MEMORY_DRAM if pool == "DRAM" else Kind.MEMORY_SRAM
    found: list[Allocation] = []
    for index, process in enumerate(run.processes):
        live: dict[int, Allocation] = {}
        for event in process.of_kind(kind):
            # Processes have separate address spaces; the pool has one.
            address = int(event["modelled"]) + (index << 44)
            time_ns, size = int(event["start_ns"]) - base_ns, int(event["value"])
            if address in live:
                live.pop(address).free_ns = time_ns
            if size > 0:
                live[address] = Allocation(address, size, time_ns, -1, index + 1)
                found.append(live[address])
    found.sort(key=lambda allocation: allocation.alloc_ns)
    return found
