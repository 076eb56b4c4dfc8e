"""Traces: what a .tracy file and a Perfetto trace hold, read back by other code."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from tracy_reader import Reader

from temper.errors import UsageError
from temper.report.writers import write_device_log, write_perfetto, write_tracy
from temper.run.logs import run_from_logs


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Protobuf fields of one message: (number, integer or bytes)."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        elif key & 7 == 1:
            found.append((key >> 3, int.from_bytes(data[at : at + 8], "little")))
            at += 8
        else:
            assert key & 7 == 2
            size = varint()
            found.append((key >> 3, data[at : at + size]))
            at += size
    return found


@pytest.mark.parametrize("version", ["0.11.0", "0.10.0"])
def test_tracy_reads_back_zones_of_host_and_device(tmp_path: Path, version: str) -> None:
    write_tracy(samples.run(calls=2, host_op=True), tmp_path / "a.tracy", version=version)
    read = Reader(tmp_path / "a.tracy")
    assert ".".join(map(str, read.version)) == version
    ops = read.device["queue 0: ops"]
    assert len(ops) == 4 * 4
    assert ops[0][0] == ("layers.0/Matmul", "MatmulDeviceOperation", samples.MODEL_FILE, 10)
    assert [end - start for _, start, end in ops[:2]] == [50_000, 10_000]
    assert ops[1][1] - ops[0][2] == 700
    assert len(read.device["queue 1: transfers"]) == 2 * 4
    (host,) = read.zones.values()
    names = [name for name, *_ in host]
    assert names.count("call of mlp") == 1
    assert names.count("first call of mlp") == 1
    assert names.count("replay of mlp") == 2
    assert names[:2] == ["capture", "passes"]
    assert [text for _, text in read.messages] == ["steady"]
    assert read.memory[0][2] == 4 << 20
    assert read.last_time >= max(end for *_, end in ops)


def test_tracy_has_a_frame_for_each_call_and_plots_of_memory(tmp_path: Path) -> None:
    run = samples.run(calls=2)
    write_tracy(run, tmp_path / "a.tracy")
    read = Reader(tmp_path / "a.tracy")
    (process,) = run.processes
    base = int(process.events["start_ns"].min())
    calls = [[int(c["start_ns"]) - base, int(c["end_ns"]) - base] for c in process.calls]
    assert read.frames[f"calls of process {process.pid}"] == calls
    assert read.frames[""] == [[0], *([start] for start, _ in calls)]
    places = {s[0]: s[2:] for s in read.sources}
    # The line that called the model is not known to a hand-made program: its first op's stands in.
    assert places["replay of mlp"] == (samples.MODEL_FILE, 10)
    sram = read.plots[f"SRAM held per core of process {process.pid}"]
    assert [time for time, _ in sram] == [start for _, start, _ in read.device["queue 0: ops"]]
    plan = next(iter(process.programs.values())).memory
    assert [value for _, value in sram] == 4 * plan.used("sram")
    assert f"DRAM held of process {process.pid}" in read.plots


def test_every_zone_of_a_tracy_file_is_counted_at_its_source(tmp_path: Path) -> None:
    write_tracy(samples.run(calls=3), tmp_path / "a.tracy")
    read = Reader(tmp_path / "a.tracy")
    assert sum(read.counts[0].values()) == sum(map(len, read.zones.values()))
    assert sum(read.counts[1].values()) == sum(map(len, read.device.values()))


def test_overlapping_spans_are_cut_to_nest(tmp_path: Path) -> None:
    from temper.record.log import ProcessLog
    from temper.record.recorder import Recorder

    log = ProcessLog()
    recorder = Recorder(log)
    for name, start, end in (("a", 0, 100), ("b", 50, 150), ("c", 60, 70), ("d", 200, 200)):
        recorder.span(name, start, end)
    recorder.flush()
    write_tracy(run_from_logs([log]), tmp_path / "a.tracy")
    (zones,) = Reader(tmp_path / "a.tracy").zones.values()
    assert zones == [("a", 0, 100, 0), ("b", 50, 100, 1), ("c", 60, 70, 2), ("d", 200, 200, 0)]


def test_an_unknown_tracy_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"0\.9"):
        write_tracy(samples.run(), tmp_path / "a.tracy", version="0.9.0")


def test_perfetto_slices_are_the_ops_with_their_lines(tmp_path: Path) -> None:
    write_perfetto(samples.run(calls=2, host_op=True), tmp_path / "t")
    packets = [dict(fields(body)) for _, body in fields((tmp_path / "t").read_bytes())]
    names, places, tracks, events = {}, {}, {}, []
    for packet in packets:
        if 60 in packet:
            track = dict(fields(packet[60]))
            tracks[track[1]] = track[2].decode()
        if 12 in packet:
            for number, body in fields(packet[12]):
                entry = dict(fields(body))
                if number == 2:
                    names[entry[1]] = entry[2].decode()
                else:
                    places[entry[1]] = (entry[2].decode(), entry[4])
        if 11 in packet:
            events.append((packet[8], dict(fields(packet[11]))))
    device = next(uuid for uuid, name in tracks.items() if name == "device")
    begins = [(t, e) for t, e in events if e[11] == device and e[9] == 1]
    ends = [t for t, e in events if e[11] == device and e[9] == 2]
    assert len(begins) == len(ends) == 4 * 4
    assert names[begins[0][1][10]] == "layers.0/Matmul"
    assert places[begins[0][1][34]] == (samples.MODEL_FILE, 10)
    assert ends[0] - begins[0][0] == 50_000
    lanes = {"dispatch", "link to chip", "link from chip", "DRAM held", "SRAM held of one core"}
    assert lanes <= set(tracks.values())
    sram = next(uuid for uuid, name in tracks.items() if name == "SRAM held of one core")
    # 512 tiles over 64 cores, and the circular buffers of the op.
    assert max(e[30] for _, e in events if e[11] == sram) > 512 // 64 * 2048
    # Each of four calls leads to its four ops, which begin no earlier than it does.
    flows: dict[int, list[tuple[int, str]]] = {}
    for time, event in events:
        if 47 in event:
            flows.setdefault(event[47], []).append((time, tracks[event[11]]))
    assert len(flows) == 4
    for steps in flows.values():
        assert [track for _, track in sorted(steps)] == ["calls and spans"] + ["device"] * 4
    assert any("measured wall clock" in name for name in tracks.values())
    assert any("modelled clock" in name for name in tracks.values())


def test_the_device_log_joins_with_the_ops_csv(tmp_path: Path) -> None:
    write_device_log(samples.run(calls=1), tmp_path / "log.csv")
    first, header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert first == "ARCH: wormhole_b0, CHIP_FREQ[MHz]: 1000, Max Compute Cores: 64"
    assert len(header.split(",")) == 15
    cells = [row.split(",") for row in rows]
    assert {len(row) for row in cells} == {15}
    assert sorted({int(row[7]) for row in cells}) == [1024 * i for i in range(1, 9)]
    kernel = [int(r[5]) for r in cells if r[7] == "1024" and r[10].endswith("-KERNEL")]
    assert max(kernel) - min(kernel) == 50_000
    assert {row[11] for row in cells} == {"ZONE_START", "ZONE_END"}


def test_the_device_log_stops_where_tt_metals_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TT_METAL_PROFILER_PROGRAM_SUPPORT_COUNT", "5")
    write_device_log(samples.run(calls=9), tmp_path / "log.csv")
    rows = (tmp_path / "log.csv").read_text().splitlines()[2:]
    assert len({row.split(",")[7] for row in rows}) == 5
