"""The .tracy file, written without Tracy: host zones, device rows, memory pools, messages.

Layout of file versions 0.10.0 and 0.11.0, which differ in the version byte only. Device zones are
packed with numpy; literal-only LZ4 blocks need no compression library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from temper.errors import UsageError
from temper.files import replacing
from temper.record.events import Kind
from temper.report.writers.tracy_zones import (
    PLOTTED_CALLS,
    Allocation,
    HostZone,
    SourceTable,
    StringTable,
    host_zones,
    memory_events,
    write_timeline,
)
from temper.run.expand import blocks
from temper.run.records import ProcessRun, Run
from temper.run.timeline import timeline

VERSIONS = {"0.11.0": (0, 11, 0), "0.10.0": (0, 10, 0)}
DEFAULT_VERSION = "0.11.0"

_BLOCK = 64 * 1024
_NEUTRAL_CONTEXT = 3  # OpenCL: other numbers mean different vendors in different Tracy versions
_GPU_ZONE = np.dtype(
    [
        ("cpu_start", "<i8"), ("gpu_start", "<i8"), ("source", "<i2"), ("callstack", "u1", 3),
        ("thread", "<u2"), ("children", "<u8"), ("cpu_end", "<i8"), ("gpu_end", "<i8"),
    ]
)  # fmt: skip
_FRAME = np.dtype([("start", "<i8"), ("image", "<i4")])
_ENDED_FRAME = np.dtype([("times", "<i8", 2), ("image", "<i4")])
_POINT = np.dtype([("time", "<i8"), ("value", "<f8")])
_MEMORY_FORMAT = 1  # of a plot: its values are bytes
_QUEUES = ("queue 0: ops", "queue 1: transfers")


def write_tracy(run: Run, path: Path, *, version: str = DEFAULT_VERSION) -> None:
    """Write a trace that Tracy's viewer of this version opens."""
    if version not in VERSIONS:
        raise UsageError(f"cannot write Tracy version {version!r}", allowed=list(VERSIONS))
    with replacing(path) as file:
        _Writer(run, VERSIONS[version], _Blocks(file)).write()


class _Blocks:
    """The framing: magic, then 64 KiB blocks, each one LZ4 run of literals."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pending = bytearray()
        file.write(b"tlZ\x04")

    def write(self, data: bytes) -> None:
        self._pending += data
        whole = len(self._pending) // _BLOCK * _BLOCK
        for start in range(0, whole, _BLOCK):
            self._block(bytes(self._pending[start : start + _BLOCK]))
        del self._pending[:whole]

    def pack(self, layout: str, *values: int | float) -> None:
        self.write(struct.pack("<" + layout, *values))

    def close(self) -> None:
        if self._pending:
            self._block(bytes(self._pending))
            self._pending.clear()

    def _block(self, data: bytes) -> None:
        if len(data) < 15:
            token = bytes([len(data) << 4])
        else:
            more = len(data) - 15
            token = b"\xf0" + b"\xff" * (more // 255) + bytes([more % 255])
        self._file.write(struct.pack("<I", len(token) + len(data)) + token + data)


def _memory_over_time(process: ProcessRun, pool: str, origin: int) -> tuple[np.ndarray, np.ndarray]:
    """When each op of the first calls begins on the device, and what is then held."""
    times, held, calls = [np.zeros(0)], [np.zeros(0)], 0
    for block in blocks(process):
        some = block.start_ns[: PLOTTED_CALLS - calls]
        calls += len(some)
        used = np.array(block.record.memory.used(pool), dtype=float)[block.record.launched]
        times.append(some.ravel() + origin)
        held.append(np.tile(used, len(some)))
        if calls >= PLOTTED_CALLS:
            break
    return np.rint(np.concatenate(times)).astype(np.int64), np.concatenate(held)


class _Writer:
    def __init__(self, run: Run, version: tuple[int, int, int], out: _Blocks) -> None:
        self._run, self._version, self._out = run, version, out
        self._strings = StringTable()
        self._sources = SourceTable(self._strings)
        self._base = min(
            (int(p.events["start_ns"].min()) for p in run.processes if len(p.events)), default=0
        )
        self._zones: list[list[HostZone]] = []
        self._messages: list[tuple[int, int, int]] = []  # time, string, process
        for index, process in enumerate(run.processes):
            self._zones.append(host_zones(process, self._base, self._sources))
            for mark in process.of_kind(Kind.MARK):
                text = self._strings.add(process.name(mark["ref"]))
                self._messages.append((int(mark["start_ns"]) - self._base, text, index))
        self._messages.sort()
        self._op_sources = [
            {
                record.handle: np.array([self._sources.of_op(info) for info in record.ops], "<i2")
                for record in process.programs.values()
            }
            for process in run.processes
        ]
        self._transfers = [
            (self._sources.add("transfer in"), self._sources.add("transfer out"))
            for _ in run.processes
        ]
        self._names = {
            name: self._strings.add(name)
            for name in ("DRAM", "SRAM", *_QUEUES, *(self._title(p) for p in run.processes))
        }
        # A process that called nothing has no frames and nothing to plot.
        calling = [(i, p) for i, p in enumerate(run.processes) if len(p.calls)]
        self._frames = [(p, self._name(f"calls of process {p.pid}", i)) for i, p in calling]
        self._plots = [
            (index, pool, self._name(f"{title} of process {process.pid}", index))
            for index, process in calling
            for pool, title in (("dram", "DRAM held"), ("sram", "SRAM held per core"))
        ]
        chip = run.chip
        self._device = self._strings.add(
            f"{chip.name if chip else 'chip'}, {run.basis} device clock"
        )

    def write(self) -> None:
        out = self._out
        self._header()
        self._write_frames()
        self._write_strings()
        out.pack(f"Q{self._threads + 1}Q", self._threads + 1, 0, *range(1, self._threads + 1))
        out.pack("QQ", 1, 0)  # external threads: slot 0
        out.pack("QQQ", 0, 1, 0)  # static source locations: none but slot 0
        self._sources.write(out.write)
        self._counts()
        out.pack("Q", 0)  # locks
        self._write_messages()
        out.pack("Q12x", 1)  # zone extras: slot 0
        self._write_threads()
        self._write_devices()
        self._write_plots()
        self._write_memory()
        out.pack("QQQIQ", 0, 0, 0, 0, 0)  # callstacks, frames, app info, images
        out.pack("QQ", 0, 0)  # context switches; switches by CPU: total …
        out.write(b"\0" * (256 * 8))  # … and each of 256 CPUs
        out.pack("QQ3QQQQQ", *([0] * 9))  # tid->pid, CPU threads, symbols, code, samples, files
        out.close()

    def _name(self, text: str, process: int) -> int:
        """A string that frames or a plot are named by; two processes may have told one id."""
        while text in self._names:
            text = f"{text} ({process})"
        self._names[text] = self._strings.add(text)
        return self._names[text]

    def _write_frames(self) -> None:
        """The main set starts a frame with each call; each process has a set with their ends."""
        out = self._out
        starts = [p.calls["start_ns"] - self._base for p in self._run.processes]
        main = np.unique(np.concatenate([np.zeros(1, np.int64), *starts]))
        out.pack("QQBQ", 1 + len(self._frames), 0, 1, len(main))
        frames = np.zeros(len(main), dtype=_FRAME)
        frames["start"], frames["image"] = np.diff(main, prepend=0), -1
        out.write(frames.tobytes())
        for process, name in self._frames:
            begin, end = (process.calls[k] - self._base for k in ("start_ns", "end_ns"))
            # A frame ends before the next begins: a call within another is no frame of its own.
            keep = begin >= np.concatenate(([0], np.maximum.accumulate(end)))[: len(end)]
            times = np.stack((begin[keep], end[keep]), axis=1).ravel()
            ended = np.zeros(len(times) // 2, dtype=_ENDED_FRAME)
            ended["times"] = np.diff(times, prepend=0).reshape(-1, 2)
            ended["image"] = -1
            out.pack("QBQ", StringTable.pointer(name), 0, len(ended))
            out.write(ended.tobytes())

    def _write_plots(self) -> None:
        """Memory held over the device's clock, of the first calls: later ones repeat it."""
        out = self._out
        out.pack("Q", len(self._plots))
        for index, pool, name in self._plots:
            process = self._run.processes[index]
            times, held = _memory_over_time(process, pool, self._origin(process))
            low, high = (float(held.min()), float(held.max())) if len(held) else (0.0, 0.0)
            out.pack("BBBBIQ", 0, _MEMORY_FORMAT, 1, 1, 0, StringTable.pointer(name))
            out.pack("dddQ", low, high, float(held.sum()), len(held))
            points = np.zeros(len(held), dtype=_POINT)
            points["time"], points["value"] = np.diff(times, prepend=0), held
            out.write(points.tobytes())

    def _origin(self, process: ProcessRun) -> int:
        """Modelled times are shown from the process's first call on."""
        return int(process.calls["start_ns"][0]) - self._base if len(process.calls) else 0

    @property
    def _threads(self) -> int:
        """Thread ids: each process, then each process's two device queues."""
        return len(self._run.processes) * 3

    def _queue(self, process: int, queue: int) -> int:
        return len(self._run.processes) + 1 + 2 * process + queue

    def _title(self, process: ProcessRun) -> str:
        return f"process {process.pid}, measured wall clock"

    def _header(self) -> None:
        out = self._out
        out.write(b"tracy" + bytes(self._version))
        last = max([1, *(zone.end_ns for zones in self._zones for zone in zones)])
        for process in self._run.processes:
            last = max(last, self._origin(process) + int(timeline(process).total_ns))
        out.pack("qqdqQQqBI12x", 0, 1, 1.0, last, 0, self._pid(), 0, 0, 0)
        out.pack("B", 0)  # not on demand
        for text in ("temper", str(self._run.meta.get("command", ""))[:1000] or "python"):
            self._text(text)
        started = self._run.processes[0].said("unix_ns") if self._run.processes else 0
        out.pack("QQ", started // 10**9, 0)
        self._text(f"temper: device times are {self._run.basis}")
        out.pack("Q", 0)  # CPU topology
        out.write(b"\0" * 28)  # no crash

    def _pid(self) -> int:
        return self._run.processes[0].pid if self._run.processes else 0

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "replace")[:1000]
        self._out.pack("Q", len(data))
        self._out.write(data)

    def _write_strings(self) -> None:
        out = self._out
        self._strings.write(out.write)
        pools = [self._names[name] for name in ("DRAM", "SRAM")]
        pools += [name for _, name in self._frames] + [name for _, _, name in self._plots]
        out.pack("Q", len(pools))
        for index in pools:
            pointer = StringTable.pointer(index)
            out.pack("QQ", pointer, pointer)
        out.pack("Q", self._threads)
        for index, process in enumerate(self._run.processes):
            names = [(index + 1, self._title(process))]
            names += [(self._queue(index, queue), _QUEUES[queue]) for queue in (0, 1)]
            for tid, name in names:
                out.pack("QQ", tid, StringTable.pointer(self._names[name]))
        out.pack("Q", 0)  # external names

    def _counts(self) -> None:
        """Zones of each source location, which the loader reserves room for."""
        host: dict[int, int] = {}
        for zones in self._zones:
            for zone in zones:
                host[zone.source] = host.get(zone.source, 0) + 1
        device: dict[int, int] = {}
        for index, process in enumerate(self._run.processes):
            for handle, count in zip(
                *np.unique(process.calls["ref"], return_counts=True), strict=True
            ):
                record = process.programs[int(handle)]
                sources = self._op_sources[index][int(handle)]
                for info, source in zip(record.ops, sources, strict=True):
                    if not info.is_host:
                        device[int(source)] = device.get(int(source), 0) + int(count)
                for source in self._transfers[index]:
                    device[source] = device.get(source, 0) + int(count)
        for table in (host, device):
            self._out.pack("Q", len(table))
            for source, count in table.items():
                self._out.pack("hQ", source, count)

    def _write_messages(self) -> None:
        out = self._out
        out.pack("Q", len(self._messages))
        before = 0
        for number, (time_ns, text, _) in enumerate(self._messages):
            out.pack("QqQBI3x", number + 1, time_ns - before, text, 3, 0xFFFFFFFF)
            before = time_ns

    def _write_threads(self) -> None:
        out = self._out
        parents = sum(bool(zone.children) for zones in self._zones for zone in zones)
        out.pack("QQQ", sum(map(len, self._zones)), parents, len(self._zones))
        for index, zones in enumerate(self._zones):
            out.pack("QQQB", index + 1, len(zones), 0, 0)
            write_timeline(zones, out.write)
            own = [n + 1 for n, (_, _, process) in enumerate(self._messages) if process == index]
            out.pack(f"Q{len(own)}Q", len(own), *own)
            out.pack("QQ", 0, 0)

    def _write_devices(self) -> None:
        out = self._out
        sizes = []
        for process in self._run.processes:
            ops = sum(
                int((process.calls["ref"] == handle).sum())
                * sum(not info.is_host for info in record.ops)
                for handle, record in process.programs.items()
            )
            sizes.append((ops, 2 * len(process.calls)))
        out.pack("QQQ", sum(map(sum, sizes)), 0, len(sizes))
        for index, process in enumerate(self._run.processes):
            out.pack("QBQfB", index + 1, 0, sum(sizes[index]), 1.0, _NEUTRAL_CONTEXT)
            out.write((self._device + 1).to_bytes(3, "little"))
            out.pack("QQ", 0, 2)
            origin = self._origin(process)
            for queue in (0, 1):
                out.pack("QQ", self._queue(index, queue), sizes[index][queue])
                for zones in self._device_zones(index, process, queue, origin):
                    out.write(zones.tobytes())

    def _device_zones(
        self, index: int, process: ProcessRun, queue: int, origin: int
    ) -> Iterator[np.ndarray]:
        cpu = gpu = 0
        for block in blocks(process):
            if queue == 0:
                keep = [not info.is_host for info in block.record.ops]
                sources = self._op_sources[index][block.record.handle]
                start, end = block.start_ns[:, keep], block.end_ns[:, keep]
                source = np.broadcast_to(sources[keep], start.shape)
            else:
                times = block.record.schedule
                offsets = np.array([times.in_start_ns, times.out_start_ns])
                stops = np.array([times.in_end_ns, times.out_end_ns])
                start = block.call_start_ns[:, None] + offsets
                end = block.call_start_ns[:, None] + stops
                source = np.broadcast_to(np.array(self._transfers[index], "<i2"), start.shape)
            zones = np.zeros(start.size, dtype=_GPU_ZONE)
            host = np.broadcast_to(
                (block.calls["start_ns"] - self._base)[:, None], start.shape
            ).ravel()
            begin = np.rint(start.ravel()).astype(np.int64) + origin
            stop = np.maximum(np.rint(end.ravel()).astype(np.int64) + origin, begin)
            zones["source"] = source.ravel()
            zones["thread"] = index + 1
            # Every time is stored as the difference to the one before it.
            zones["cpu_start"] = np.diff(host, prepend=cpu)
            zones["gpu_start"] = begin - np.concatenate(([gpu], stop[:-1]))
            zones["gpu_end"] = stop - begin
            if len(zones):
                cpu, gpu = int(host[-1]), int(stop[-1])
            yield zones

    def _write_memory(self) -> None:
        """Pool 0 must exist; ours are DRAM and SRAM."""
        out = self._out
        pools: list[tuple[int, list[Allocation]]] = [(0, [])]
        pools += [
            (StringTable.pointer(self._names[name]), memory_events(self._run, name, self._base))
            for name in ("DRAM", "SRAM")
        ]
        out.pack("QQ", len(pools), sum(len(events) for _, events in pools))
        for name, events in pools:
            freed = sum(event.free_ns >= 0 for event in events)
            out.pack("QQQQ", name, len(events), len(events) - freed, freed)
            before = 0
            for event in events:
                life = event.free_ns - event.alloc_ns if event.free_ns >= 0 else -1
                out.pack("QQ6xq", event.address, event.size_bytes, event.alloc_ns - before)
                out.pack("qHH", life, event.thread, event.thread)
                before = event.alloc_ns
            low = min((event.address for event in events), default=0)
            high = max((event.address + event.size_bytes for event in events), default=0)
            usage = sum(event.size_bytes for event in events if event.free_ns < 0)
            out.pack("QQQQ", high, low, usage, name)
