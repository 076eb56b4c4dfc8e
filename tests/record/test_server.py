"""The capture server: on disk as it comes, for nobody but the processes it was started for."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import samples

from temper.files import replacing_folder
from temper.record.capture import Capture, unfinished
from temper.record.client import SocketSink
from temper.record.recorder import Recorder
from temper.record.server import CaptureServer
from temper.report.writers import write_run
from temper.run.folder import is_ours, read_run
from temper.run.logs import run_from_logs

HERE = Path(__file__).parents[1] / "profiles"


def frame(kind: int, payload: bytes, length: int | None = None) -> bytes:
    return struct.pack("<IB", len(payload) if length is None else length, kind) + payload


def send(server: CaptureServer, data: bytes, *, token: bool = True) -> None:
    greeting = frame(3, server.token.encode()) if token else b""
    with (
        socket.create_connection(("127.0.0.1", server.port), 5) as peer,
        contextlib.suppress(OSError),  # the server may hang up at any byte
    ):
        peer.sendall(greeting + data)
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)


def record(server: CaptureServer, calls: int) -> None:
    sink = SocketSink(server.port, server.token)
    recorder = Recorder(sink)
    program = samples.mlp()
    handle = recorder.begin_program(program, samples.cost(program))
    for at in range(calls):
        recorder.record_call(handle, 1000 * at, 1000 * at + 500)
    recorder.remove_sink(sink)


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\x05\0\0\0\x01{bad}", b"", frame(3, b"0" * 64)],
)
def test_a_peer_without_the_token_leaves_nothing(data: bytes) -> None:
    server = CaptureServer()
    send(server, data, token=False)
    record(server, 2)
    assert server.wait_until_idle(5)
    [log] = server.stop()
    assert len(log.table) == 2


@pytest.mark.parametrize(
    "bad",
    [
        frame(1, b'{"type": "program", "handle": 1e999}'),
        frame(1, b"[" * 100_000),
        frame(1, b'{"type": "op_host", "program": -1, "ns": "x"}'),
        frame(1, b'{"type": "string", "index": {}, "text": 1}'),
        frame(9, b"?"),
        frame(2, b"?", length=2**32 - 1),
        frame(2, b"\x01" * 39),
    ],
)
def test_a_bad_message_costs_its_own_connection_only(bad: bytes) -> None:
    server = CaptureServer()
    send(server, bad)
    record(server, 3)
    assert server.wait_until_idle(5)
    run = run_from_logs(server.stop())
    assert run.op_count == 3 * 4


def test_unfinished_frames_take_no_memory() -> None:
    server = CaptureServer()
    before = psutil.Process().memory_info().rss
    peers = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(3)]
    for peer in peers:
        peer.sendall(frame(3, server.token.encode()) + frame(1, b"", length=1 << 28))
        for _ in range(40):
            peer.sendall(b"x" * (1 << 20))
    deadline = time.monotonic() + 10
    files = server.capture.directory
    while sum(f.stat().st_size for f in files.iterdir()) < 3 * 40 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert psutil.Process().memory_info().rss - before < 30e6
    for peer in peers:
        peer.close()
    assert all(log.empty for log in server.stop())


def test_a_crowd_of_strangers_does_not_keep_a_process_out() -> None:
    server = CaptureServer()
    crowd = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(100)]
    record(server, 1)
    assert server.wait_until_idle(5)
    for stranger in crowd:
        stranger.close()
    assert sum(len(log.table) for log in server.stop()) == 1


def test_a_killed_profiler_loses_nothing_received_and_the_next_one_offers_to_finish(
    tmp_path: Path,
) -> None:
    code = shlex.join([sys.executable, str(HERE / "client_script.py"), "forever"])
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    process = subprocess.Popen(
        [sys.executable, "-m", "temper.frontdoor.tt_profile", "-o", "run", code],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    left = psutil.Process(process.pid).children
    process.stdout.readline()
    time.sleep(0.5)
    children = left(recursive=True)
    assert not unfinished(tmp_path / "run")  # it is being written
    process.send_signal(signal.SIGKILL)
    process.wait()
    for child in children:
        child.kill()
    [found] = unfinished(tmp_path / "run")
    assert found.about()["command"] == code

    def temper(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "temper", "profile", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stderr

    assert "temper profile --finish" in temper("-o", "other", "true")
    temper("--finish", "run")
    run = read_run(tmp_path / "run")
    assert run.op_count == 16
    assert any("killed" in note for note in run.notes)
    assert not unfinished(tmp_path / "run")


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_run(samples.run(), tmp_path / "run")
    stale = tmp_path / "run" / "ops_perf_results.csv"
    stale.write_text("old")
    with (
        contextlib.suppress(RuntimeError),
        replacing_folder(tmp_path / "run", is_ours) as part,
    ):
        (part / "run.json").write_text("new")
        raise RuntimeError
    assert stale.read_text() == "old"
    assert (tmp_path / "run" / "run.json").read_text() != "new"
    write_run(samples.run(), tmp_path / "run")
    assert stale.read_text() != "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    write_run(samples.run(), tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "mine"
    assert read_run(tmp_path).op_count


def test_what_a_killed_writer_left_is_taken_away(tmp_path: Path) -> None:
    left = tmp_path / ".run.999999999.part"
    left.mkdir()
    write_run(samples.run(), tmp_path / "run")
    assert not left.exists()


def test_a_torn_last_frame_keeps_its_whole_events(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "capture")
    with capture.open() as file:
        file.write(frame(2, b"\x01" * 100, length=4000))
    [log] = capture.logs()
    assert len(log.table) == 2
