"""A reader of .tracy files of version 0.10 and 0.11, written from the format's description only."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def unframe(data: bytes) -> bytes:
    """The payload: blocks of LZ4 in which every sequence is literals."""
    assert data[:4] == b"tlZ\x04"
    at, out = 4, bytearray()
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        block = data[at + 4 : at + 4 + size]
        at += 4 + size
        length, place = block[0] >> 4, 1
        if length == 15:
            while True:
                length += block[place]
                place += 1
                if block[place - 1] != 255:
                    break
        assert len(block) - place == length <= 65536
        out += block[place:]
    return bytes(out)


class Reader:
    def __init__(self, path: Path) -> None:
        self.data = unframe(path.read_bytes())
        self.at = 0
        self.read()

    def take(self, layout: str) -> Any:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values[0] if len(values) == 1 else values

    def skip(self, size: int) -> None:
        self.at += size

    def text(self) -> str:
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def read(self) -> None:
        assert self.data[:5] == b"tracy"
        self.at = 5
        self.version = self.take("3B")
        self.last_time = self.take("qqdq")[3]
        assert self.last_time > 0
        self.take("QQqBI12xB")
        self.text(), self.text()
        self.take("QQ")
        self.text()
        assert self.take("Q") == 0
        self.at += 28
        self.frames = {}
        for _ in range(self.take("Q")):
            name, continuous, frames = self.take("QBQ")
            times, time = [], 0
            for _ in range(frames):
                deltas = [self.take("q") for _ in range(1 if continuous else 2)]
                assert self.take("i") == -1
                times.append([time := time + delta for delta in deltas])
            self.frames[name] = times
        self.strings, pointers = [], {}
        for _ in range(self.take("Q")):
            pointers[self.take("Q")] = len(self.strings)
            self.strings.append(self.text())
        self.names = [self.take("QQ") for _ in range(self.take("Q"))]
        self.threads = {}
        for _ in range(self.take("Q")):
            tid, pointer = self.take("QQ")
            self.threads[tid] = self.strings[pointers[pointer]]
        assert self.take("Q") == 0
        for _ in range(2):
            self.skip(8 * self.take("Q"))
        assert self.take("QQQ") == (0, 1, 0)
        self.sources = []
        for _ in range(self.take("Q")):
            parts = [self.take("QB") for _ in range(3)]
            assert all(flag == 3 for _, flag in parts)
            line, _ = self.take("II")
            self.sources.append((*(self.strings[i] for i, _ in parts), line))
        self.counts = [
            dict(self.take("hQ") for _ in range(self.take("Q"))) for _ in ("host", "device")
        ]
        assert self.take("Q") == 0
        self.messages, time = [], 0
        for _ in range(self.take("Q")):
            _, delta, index, flag, _ = self.take("QqQBI")
            self.at += 3
            assert flag == 3
            time += delta
            self.messages.append((time, self.strings[index]))
        self.skip(12 * self.take("Q"))
        self.read_threads()
        self.read_devices()
        self.read_plots(pointers)
        self.frames = {self.strings[pointers[n]] if n else "": t for n, t in self.frames.items()}
        self.read_memory()
        assert self.take("QQQIQ") == (0, 0, 0, 0, 0)
        assert self.data[self.at :] == bytes(16 + 256 * 8 + 9 * 8)

    def source(self, number: int) -> tuple[str, str, str, int]:
        return self.sources[-number - 1]

    def read_threads(self) -> None:
        total, _, count = self.take("QQQ")
        self.zones: dict[str, list[Any]] = {}
        for _ in range(count):
            tid, zones, _, _ = self.take("QQQB")
            found: list[Any] = []
            self._timeline(found, 0, 0)
            assert len(found) == zones
            self.zones[self.threads[tid]] = found
            self.skip(8 * self.take("Q"))
            assert self.take("QQ") == (0, 0)
        assert total == sum(map(len, self.zones.values()))

    def _timeline(self, found: list[Any], time: int, depth: int) -> int:
        for _ in range(self.take("I")):
            source, delta, _ = self.take("hqI")
            time += delta
            start = time
            place = len(found)
            found.append(None)
            time = self._timeline(found, time, depth + 1)
            time += self.take("q")
            found[place] = (self.source(source)[0], start, time, depth)
        return time

    def read_devices(self) -> None:
        total, _, contexts = self.take("QQQ")
        self.device: dict[str, list[Any]] = {}
        seen = 0
        for _ in range(contexts):
            _, _, zones, _, kind = self.take("QBQfB")
            assert kind == 3
            self.at += 3
            _, rows = self.take("QQ")
            for _ in range(rows):
                tid, count = self.take("QQ")
                cpu = gpu = 0
                found = self.device.setdefault(self.threads[tid], [])
                for _ in range(count):
                    cpu_start, gpu_start, source = self.take("qqh")
                    self.at += 3
                    _, children, cpu_end, gpu_end = self.take("HQqq")
                    assert children == 0
                    cpu, gpu = cpu + cpu_start, gpu + gpu_start
                    start = gpu
                    cpu, gpu = cpu + cpu_end, gpu + gpu_end
                    found.append((self.source(source), start, gpu))
                    seen += 1
            assert zones <= total
        assert seen == total

    def read_plots(self, pointers: dict[int, int]) -> None:
        self.plots = {}
        known = {given for given, _ in self.names}
        for _ in range(self.take("Q")):
            kind, form, _, _, _, name = self.take("BBBBIQ")
            assert (kind, form) == (0, 1)
            assert name in known
            low, high, total, count = self.take("dddQ")
            points, time = [], 0
            for _ in range(count):
                delta, value = self.take("qd")
                points.append((time := time + delta, value))
            values = [value for _, value in points]
            assert (low, high, total) == (min(values), max(values), sum(values))
            self.plots[self.strings[pointers[name]]] = points

    def read_memory(self) -> None:
        pools, total = self.take("QQ")
        self.memory = []
        for _ in range(pools):
            name, events, active, freed = self.take("QQQQ")
            assert active + freed == events
            time = 0
            for _ in range(events):
                address, size = self.take("QQ")
                self.at += 6
                delta, life = self.take("qq")
                self.take("HH")
                time += delta
                self.memory.append((name, address, size, time, life))
            self.take("QQQQ")
        assert len(self.memory) == total
