"""Mutated files to every reader of profiles, and mutated streams to the capture server.

    python benchmarks/fuzz.py [csv|folder|capture|server ...] [--minutes 10] [--seed 1]

A reader may refuse a file by an error of ours. Anything else, an input that takes longer than ten
seconds of CPU or two minutes in all, or memory that grows all the time, is a finding: its seed is
printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from profiler import run_of
from temper.errors import TemperError
from temper.record.capture import Capture, read_log
from temper.record.server import CaptureServer
from temper.record.wire import HEADER, TOKEN_FRAME, frame, hello_message, json_frame
from temper.report.advise import advise_profile
from temper.report.compare import compare
from temper.report.judge import judge
from temper.report.report_data import report_data
from temper.report.writers import write_ops_csv, write_run
from temper.run import folder
from temper.run.logs import run_from_logs
from temper.run.opening import open_profile

# Of CPU, so that a busy machine finds nothing of its own; what waits for ever ends by the second.
_LIMIT_S, _WAIT_S = 10, 120
# What readers trip over: signs, sizes, text that is no number, quotes, nulls, deep nesting.
_WORDS = [
    b"", b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"inf", b"18446744073709551616", b"abc", b"\0",
    b'"', b"'", b",", b"\n", b"\r\n", b"{", b"}", b"[", b"]", b"null", b"true", b"\xff\xfe",
    b"9" * 400, b"[" * 3000, b'{"a":' * 500, "µs".encode(), b"../../etc", b"1;2", b"0x10",
]  # fmt: skip


def mutated(data: bytes, dice: random.Random) -> bytes:
    """One to six changes: bytes, words, cuts, repeats, swapped pieces."""
    made = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(made) + 1)
        end = min(len(made), at + dice.choice((1, 2, 8, 40, 400)))
        match dice.randrange(6):
            case 0 if made:
                made[min(at, len(made) - 1)] = dice.randrange(256)
            case 1:
                made[at:end] = dice.choice(_WORDS)
            case 2:
                del made[at:end]
            case 3:
                made[at:at] = made[at:end] * dice.choice((1, 3, 20))
            case 4:
                del made[at:]
            case _:
                other = dice.randrange(len(made) + 1)
                made[at:at] = made[other : other + 60]
    return bytes(made)


def look(path: Path) -> None:
    """Everything that ``temper report`` and ``temper diff`` do with a profile."""
    for calls in ("warm", "all"):
        opened = open_profile(path, calls)
        judge(opened.table)
        json.dumps(report_data(opened, advise_profile(opened)))
    compare(opened, opened)


class _Kinds:
    """What is mutated, by name; each takes one mutation to the readers."""

    def __init__(self, place: Path) -> None:
        self.place = place
        run = run_of(60, depth=5)
        write_run(run, place / "seed")
        write_ops_csv(run, place / "v2.csv", newer=True)
        self.csvs = [
            (place / "seed" / folder.OPS_CSV).read_bytes(),
            (place / "v2.csv").read_bytes(),
        ]
        self.stream = json_frame(hello_message())
        for process in run.processes:
            for record in process.programs.values():
                from temper.record.wire import program_message

                message = program_message(record.handle, record.program, record.cost, {})
                self.stream += json_frame(message)
            self.stream += frame(2, process.events.tobytes())
        self.server = CaptureServer(port=_free_port(), capture=Capture(place / "served"))

    def csv(self, dice: random.Random) -> None:
        path = self.place / "ops_perf_results.csv"
        path.write_bytes(mutated(dice.choice(self.csvs), dice))
        look(path)

    def folder(self, dice: random.Random) -> None:
        broken = self.place / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(self.place / "seed", broken)
        (broken / folder.OPS_CSV).unlink()
        name = dice.choice((folder.RUN_JSON, folder.RUN_JSON, folder.EVENTS))
        (broken / name).write_bytes(mutated((broken / name).read_bytes(), dice))
        look(broken)

    def capture(self, dice: random.Random) -> None:
        path = self.place / "process_1.frames"
        path.write_bytes(mutated(self.stream, dice))
        run = run_from_logs([read_log(path)])
        target = self.place / "finished"
        shutil.rmtree(target, ignore_errors=True)
        if run.op_count < 100_000:
            write_run(run, target)

    def to_server(self, dice: random.Random) -> None:
        """A stranger, or a child of the profiler whose stream is damaged; the server lives on."""
        token = self.server.token.encode()
        hello = HEADER.pack(len(token), TOKEN_FRAME) + token
        if dice.random() < 0.5:
            hello = mutated(hello, dice)
        data = hello + mutated(self.stream, dice)
        if dice.random() < 0.3:
            data += struct.pack("<IB", dice.choice((1 << 31, 1 << 28, 5)), dice.randrange(5))
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=_WAIT_S) as peer:
            try:
                for start in range(0, len(data), 7000):
                    peer.sendall(data[start : start + 7000])
            except OSError:
                pass  # hung up on
        if not self.server._thread.is_alive():
            raise RuntimeError("the capture server has ended")
        served = list((self.place / "served").glob("*.frames"))
        if len(served) > 200:
            for path in served[:-100]:
                path.unlink()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _late(*_: object) -> None:
    raise TimeoutError(f"an input took longer than {_LIMIT_S} s of CPU, or than {_WAIT_S} s in all")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("kinds", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="temper-fuzz-"))
    made = _Kinds(place)
    kinds: dict[str, Callable[[random.Random], None]] = {
        "csv": made.csv, "folder": made.folder, "capture": made.capture, "server": made.to_server,
    }  # fmt: skip
    chosen = given.kinds or list(kinds)
    for sign in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(sign, _late)
    inputs, refused, findings = dict.fromkeys(chosen, 0), dict.fromkeys(chosen, 0), 0
    began, memory = time.monotonic(), 0.0
    seed = given.seed
    while time.monotonic() - began < 60 * given.minutes:
        name = chosen[seed % len(chosen)]
        inputs[name] += 1
        signal.alarm(_WAIT_S)
        signal.setitimer(signal.ITIMER_PROF, _LIMIT_S)
        try:
            kinds[name](random.Random(seed))
        except TemperError:
            refused[name] += 1
        except Exception:
            findings += 1
            print(f"{name}, seed {seed}:\n{traceback.format_exc()}", flush=True)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if time.monotonic() - began > 60 * given.minutes / 4 and not memory:
            memory = _peak_mb()
        seed += 1
    print(", ".join(f"{name}: {inputs[name]} inputs, {refused[name]} refused" for name in chosen))
    print(f"{findings} findings; memory {memory:.0f} MB at a quarter, {_peak_mb():.0f} at last")
    made.server.stop()
    shutil.rmtree(place, ignore_errors=True)
    return 1 if findings else 0


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main())
