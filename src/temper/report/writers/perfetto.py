"""The Perfetto trace: protobuf packets, packed with numpy where there are many.

Varints are written at fixed width (padded with continuation bits, which every protobuf reader
takes), so that a million slices are one array. Host tracks carry the measured wall clock, chip
tracks the device's clock, modelled or measured, and say which. Within a call the device's times are
its own; each call begins where the host made it, and a flow leads from it to its ops.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

import numpy as np

from temper.files import replacing
from temper.record.events import Kind
from temper.report.writers.tracy_zones import (
    PLOTTED_CALLS,
    HostZone,
    SourceTable,
    StringTable,
    host_zones,
)
from temper.run.expand import blocks
from temper.run.records import MEASURED, MODELLED, ProcessRun, Run

_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_BYTES_UNIT = 3
# Field 47 of a track event, flow_ids: the calls of a process are numbered from a number of its own.
_FLOW = b"\xf9\x02"
_VIRTUAL = {MODELLED: " virtual", MEASURED: ""}


def write_perfetto(run: Run, path: Path) -> None:
    """Write a trace for Perfetto."""
    with replacing(path) as file:
        _Trace(run, file).write()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _packet(body: bytes) -> bytes:
    return _bytes(1, body)


def _wide(values: np.ndarray, width: int) -> np.ndarray:
    """Varints of exactly ``width`` bytes: (n, width) of uint8."""
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    digits = (values.astype(np.uint64)[:, None] >> shifts[None, :]) & np.uint64(0x7F)
    digits[:, :-1] |= np.uint64(0x80)
    wide: np.ndarray = digits.astype(np.uint8)
    return wide


def _columns(count: int, *parts: bytes | np.ndarray) -> bytes:
    """Rows made of constant bytes and per-row bytes, one after the other."""
    wide = [
        np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part)))
        if isinstance(part, bytes)
        else part
        for part in parts
    ]
    return np.ascontiguousarray(np.concatenate(wide, axis=1)).tobytes()


class _Trace:
    def __init__(self, run: Run, file: IO[bytes]) -> None:
        self._run, self._file = run, file
        self._names: dict[str, int] = {}
        self._places: dict[tuple[str, str, int], int] = {}
        self._sequence = _number(10, 1)
        self._base = min(
            (int(p.events["start_ns"].min()) for p in run.processes if len(p.events)), default=0
        )

    def write(self) -> None:
        self._file.write(_packet(self._sequence + _number(13, _STATE_CLEARED) + _number(8, 0)))
        for index, process in enumerate(self._run.processes):
            self._host(index, process)
            self._chip(index, process)

    # Descriptions

    def _track(self, uuid: int, name: str, parent: int = 0, body: bytes = b"") -> None:
        described = _number(1, uuid) + _bytes(2, name) + body
        if parent:
            described += _number(5, parent)
        self._file.write(_packet(self._sequence + _bytes(60, described)))

    def _process(self, uuid: int, pid: int, name: str) -> None:
        self._track(uuid, name, body=_bytes(3, _number(1, pid) + _bytes(6, name)))

    def _intern(self, names: list[str]) -> np.ndarray:
        """Numbers of names, making new ones known first."""
        new = b""
        for name in names:
            if name not in self._names:
                self._names[name] = len(self._names) + 1
                new += _bytes(2, _number(1, self._names[name]) + _bytes(2, name))
        if new:
            self._file.write(_packet(self._sequence + _number(13, _NEEDS_STATE) + _bytes(12, new)))
        return np.array([self._names[name] for name in names], dtype=np.uint64)

    def _locate(self, places: list[tuple[str, str, int]]) -> np.ndarray:
        new = b""
        for place in places:
            if place not in self._places:
                self._places[place] = len(self._places) + 1
                file, function, line = place
                body = _number(1, self._places[place]) + _bytes(2, file) + _bytes(3, function)
                new += _bytes(4, body + _number(4, max(0, line)))
        if new:
            self._file.write(_packet(self._sequence + _number(13, _NEEDS_STATE) + _bytes(12, new)))
        return np.array([self._places[place] for place in places], dtype=np.uint64)

    # Events

    def _slices(
        self,
        track: int,
        start: np.ndarray,
        end: np.ndarray,
        names: np.ndarray,
        places: np.ndarray | None = None,
        flows: np.ndarray | None = None,
    ) -> None:
        """Begin and end of each slice, in the order given; slices of a track must nest."""
        count = len(start)
        if not count:
            return
        place = b"" if places is None else b"\x90\x02"
        size = 2 + 5 + 5 + (6 if places is not None else 0) + (10 if flows is not None else 0)
        head = self._sequence + _number(13, _NEEDS_STATE)
        begin_size = 10 + len(head) + 2 + size
        end_size = 10 + len(head) + 2 + 7
        uuid = b"\x58" + _wide(np.array([track]), 4).tobytes()
        parts: list[bytes | np.ndarray] = [
            bytes([0x0A, begin_size, 0x40]), _wide(start, 9), head, bytes([0x5A, size]),
            bytes([0x48, _SLICE_BEGIN]), uuid, b"\x50", _wide(names, 4), place,
        ]  # fmt: skip
        if places is not None:
            parts.append(_wide(places, 4))
        if flows is not None:
            parts += [_FLOW, flows.astype("<u8").view(np.uint8).reshape(count, 8)]
        parts += [
            bytes([0x0A, end_size, 0x40]), _wide(end, 9), head, bytes([0x5A, 7]),
            bytes([0x48, _SLICE_END]), uuid,
        ]  # fmt: skip
        self._file.write(_columns(count, *parts))

    def _counter(self, track: int, time: np.ndarray, value: np.ndarray) -> None:
        if not len(time):
            return
        head = self._sequence
        size = 2 + 5 + 2 + 9
        uuid = b"\x58" + _wide(np.array([track]), 4).tobytes()
        self._file.write(
            _columns(
                len(time), bytes([0x0A, 10 + len(head) + 2 + size, 0x40]), _wide(time, 9), head,
                bytes([0x5A, size, 0x48, _COUNTER]), uuid, b"\xf0\x01", _wide(value, 9),
            )
        )  # fmt: skip

    # Tracks

    def _host(self, index: int, process: ProcessRun) -> None:
        uuid = 1000 * (index + 1)
        self._process(uuid, process.pid or index + 1, "host, measured wall clock")
        self._track(uuid + 1, "calls and spans", uuid)
        self._track(uuid + 2, "signposts", uuid)
        strings = StringTable()
        sources = SourceTable(strings)
        zones = host_zones(process, self._base, sources)
        labels = sources.names()
        numbers = self._intern(labels)
        if zones:
            self._nested(uuid + 1, zones, numbers, _first_flow(index))
        for mark in process.of_kind(Kind.MARK):
            name = self._intern([process.name(mark["ref"])])[0]
            event = _number(9, _INSTANT) + _number(11, uuid + 2) + _number(10, int(name))
            at = max(0, int(mark["start_ns"]) - self._base)
            body = _number(8, at) + self._sequence + _number(13, _NEEDS_STATE)
            self._file.write(_packet(body + _bytes(11, event)))

    def _nested(
        self, track: int, zones: list[HostZone], numbers: np.ndarray, first_flow: int
    ) -> None:
        """Zones that nest: begins and ends must come in their true order."""
        head = self._sequence + _number(13, _NEEDS_STATE)
        ends: list[int] = []

        def close(until: float) -> None:
            while ends and ends[-1] <= until:
                event = _number(9, _SLICE_END) + _number(11, track)
                self._file.write(_packet(_number(8, ends.pop()) + head + _bytes(11, event)))

        for zone in zones:
            # The virtual chip's transfers take no time of the host; the link's tracks have them.
            if zone.end_ns <= zone.start_ns:
                continue
            close(zone.start_ns)
            event = _number(9, _SLICE_BEGIN) + _number(11, track)
            event += _number(10, int(numbers[-zone.source - 1]))
            if zone.call >= 0:
                event += _FLOW + struct.pack("<Q", first_flow + zone.call)
            self._file.write(_packet(_number(8, max(0, zone.start_ns)) + head + _bytes(11, event)))
            ends.append(max(0, zone.end_ns))
        close(float("inf"))

    def _chip(self, index: int, process: ProcessRun) -> None:
        record = next(iter(process.programs.values()), None)
        chip = record.chip.name if record else "chip"
        basis = record.basis if record else MODELLED
        uuid = 1000 * (index + 1) + 500
        # A process of its own, numbered beyond real ones, keeps the two clocks apart.
        self._process(uuid, (1 << 30) + index, f"{chip}{_VIRTUAL[basis]}, {basis} clock")
        device, dispatch, link_in, link_out, dram, sram = range(uuid + 1, uuid + 7)
        self._track(device, "device", uuid)
        self._track(dispatch, "dispatch", uuid)
        self._track(link_in, "link to chip", uuid)
        self._track(link_out, "link from chip", uuid)
        unit = _bytes(8, _number(3, _BYTES_UNIT))
        self._track(dram, "DRAM held", uuid, unit)
        self._track(sram, "SRAM held of one core", uuid, unit)
        words = self._intern(["dispatch", "inputs", "outputs"])
        counted = done = 0
        shift = 0.0
        for block in blocks(process):
            record, calls = block.record, len(block.calls)
            # A call's ops begin when the host called, or when those of the call before have ended.
            late = block.calls["start_ns"] - self._base - block.call_start_ns
            shifts = np.maximum.accumulate(np.maximum(late, shift))
            shift = float(shifts[-1])
            flows = np.repeat(_first_flow(index) + np.arange(done, done + calls), len(record.ops))
            done += calls
            keep = [i for i, info in enumerate(record.ops) if not info.is_host]
            infos = [record.ops[i] for i in keep]
            names = self._intern([info.name for info in infos])
            places = self._locate([(i.op.source.file, i.code, i.op.source.line) for i in infos])
            start = (block.start_ns[:, keep] + shifts[:, None]).ravel()
            end = (block.end_ns[:, keep] + shifts[:, None]).ravel()
            self._slices(
                device, _ns(start), _ns(end), np.tile(names, calls), np.tile(places, calls),
                flows.reshape(calls, -1)[:, keep].ravel(),
            )  # fmt: skip
            times, begin = record.schedule, block.call_start_ns + shifts
            for track, word, first, last in (
                (dispatch, words[0], 0.0, min(record.cost.host_ns, times.period_ns)),
                (link_in, words[1], times.in_start_ns, times.in_end_ns),
                (link_out, words[2], times.out_start_ns, times.out_end_ns),
            ):
                if last > first:
                    label = np.full(calls, word, dtype=np.uint64)
                    self._slices(track, _ns(begin + first), _ns(begin + last), label)
            if counted < PLOTTED_CALLS and record.ops:
                some = min(calls, PLOTTED_CALLS - counted)
                counted += some
                for track, pool in ((dram, "dram"), (sram, "sram")):
                    used = np.array(record.memory.used(pool), dtype=np.int64)
                    held = np.tile(used[record.launched], some)
                    at = block.start_ns[:some] + shifts[:some, None]
                    self._counter(track, _ns(at.ravel()), held)


def _first_flow(process: int) -> int:
    return (process + 1) << 40


def _ns(times: np.ndarray) -> np.ndarray:
    whole: np.ndarray = np.maximum(np.rint(times), 0).astype(np.uint64)
    return whole
