"""The profiler at scale: what recording adds, what a million ops take to write, a card's CSV.

    python benchmarks/profiler.py [recording|writing|report] [--perf-report PYTHON]

``--perf-report`` names a Python that has tt-perf-report, for the comparison on the same file.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from temper.cost import estimate
from temper.program import Op, Program, Source, TensorSpec
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder
from temper.report.writers import (
    write_device_log,
    write_ops_csv,
    write_perfetto,
    write_run,
    write_tracy,
)
from temper.run.logs import run_from_logs
from temper.run.records import Run

_TURNS, _CALLS = 40, 50
_PERF_REPORT = (
    "import sys; from tt_perf_report import perf_report; "
    "sys.argv = ['x', '--no-color', '--no-advice', sys.argv[1]]; perf_report.main()"
)


def layers(count: int) -> Program:
    """A stack of linear layers and activations: two ops a layer."""
    values = {"x0": TensorSpec((128, 1024))}
    ops, weights = [], {}
    for i in range(count):
        values |= {
            f"w{i}": TensorSpec((1024, 1024)),
            f"h{i}": TensorSpec((128, 1024)),
            f"x{i + 1}": TensorSpec((128, 1024)),
        }
        weights[f"w{i}"] = f"layers.{i}.weight"
        source = Source(f"layers.{i}", "/home/user/model.py", 10 + i)
        ops.append(Op("Matmul", (f"x{i}", f"w{i}"), (f"h{i}",), {"fidelity": "HiFi2"}, source))
        ops.append(Op("Unary", (f"h{i}",), (f"x{i + 1}",), {"functions": [["gelu"]]}, source))
    outputs = (f"x{count}",)
    return Program("layers", "n150", values, tuple(ops), ("x0",), outputs, weights)


def run_of(ops: int, depth: int = 25) -> Run:
    log = ProcessLog()
    recorder = Recorder(log)
    program = layers(depth)
    handle = recorder.begin_program(program, estimate(program))
    now = 1_000
    for i in range(ops // (2 * depth)):
        recorder.record_call(handle, now, now + 900, first_call=i == 0)
        now += 1_000
    recorder.flush()
    log.close()
    return run_from_logs([log])


def recording() -> None:
    """Calls of a small model on the virtual chip, profiled and not, in turns."""
    import torch

    import temper

    model = torch.nn.Sequential(
        *(m for _ in range(10) for m in (torch.nn.Linear(256, 256), torch.nn.GELU()))
    ).eval()
    compiled = torch.compile(model, backend="tt", options={"optimization_level": 1})
    data = torch.randn(8, 256)

    def block(calls: int) -> float:
        # CPU time of this process: a busy machine must not decide the result.
        started = time.process_time()
        for _ in range(calls):
            compiled(data)
        return time.process_time() - started

    with torch.no_grad():
        block(50)
        ops = int(temper.stats()["device_ops"])
        off, on = [], []
        for _ in range(_TURNS):
            off.append(block(_CALLS))
            with temper.profile():
                compiled(data)  # the program is told once
                on.append(block(_CALLS))
    ratios = sorted(b / a - 1 for a, b in zip(off, on, strict=True))
    low, middle, high = (ratios[len(ratios) * part // 4] for part in (1, 2, 3))
    call_us = statistics.median(off) / _CALLS * 1e6
    print(
        f"recording: {call_us:.0f} µs of CPU a call of {ops} ops; profiled {middle:+.1%} "
        f"(quartiles {low:+.1%} and {high:+.1%} of {_TURNS} turns)"
    )
    log = ProcessLog()
    recorder = Recorder(log)
    started = time.process_time()
    for i in range(100_000):
        recorder.record_call(0, i, i + 1)
    each = (time.process_time() - started) / 100_000 * 1e6
    print(f"recording: {each:.2f} µs a recorded call, however many ops it has")


def writing() -> None:
    run = run_of(1_000_000)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for writer in (write_ops_csv, write_tracy, write_perfetto, write_device_log):
            started, cpu = time.perf_counter(), time.process_time()
            writer(run, directory / "file")
            size = (directory / "file").stat().st_size / 1e6
            wall, cpu = time.perf_counter() - started, time.process_time() - cpu
            print(f"writing: {writer.__name__:18} {wall:6.2f} s, {cpu:5.2f} CPU {size:8.1f} MB")
        started, cpu = time.perf_counter(), time.process_time()
        write_run(run, directory / "run")
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        print(f"writing: {run.op_count} ops, the whole folder {wall:.2f} s, {cpu:.2f} s of CPU")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"writing: peak memory {peak:.0f} MB")


def report(perf_report: str | None) -> None:
    with tempfile.TemporaryDirectory() as place:
        path, small = (Path(place) / name for name in ("ops_perf_results.csv", "small.csv"))
        write_ops_csv(run_of(100_000), path, newer=True)
        write_ops_csv(run_of(100), small, newer=True)
        # Both with their modules compiled, as an installed package has them.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(place) / "modules")
        _timed([sys.executable, "-m", "temper", "report", str(small)])
        if perf_report:
            _timed([perf_report, "-c", _PERF_REPORT, str(small)])
        wall, ours = _timed([sys.executable, "-m", "temper", "report", str(path)])
        size = path.stat().st_size / 1e6
        print(f"report: 100k rows, {size:.0f} MB: temper {wall:.2f} s, {ours:.2f} s of CPU")
        if perf_report:
            wall, theirs = _timed([perf_report, "-c", _PERF_REPORT, str(path)])
            print(
                f"report: tt-perf-report {wall:.2f} s, {theirs:.2f} s of CPU: "
                f"{theirs / ours:.0f} times as much"
            )


def _timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", choices=["recording", "writing", "report"])
    parser.add_argument("--perf-report", help="a Python that has tt-perf-report")
    given = parser.parse_args()
    if given.what in (None, "recording"):
        recording()
    if given.what in (None, "writing"):
        writing()
    if given.what in (None, "report"):
        report(given.perf_report)


if __name__ == "__main__":
    main()
