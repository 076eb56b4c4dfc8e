"""The virtual clock follows modelled time, never runs backwards, and is never the default."""

from __future__ import annotations

import subprocess
import sys
import time
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from temper import clock
from temper.compat import clock as virtual
from temper.errors import UsageError

READERS = ("perf_counter", "monotonic", "time")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    virtual.uninstall()


def test_wall_time_is_the_default_and_untouched() -> None:
    before = {name: getattr(time, name) for name in dir(time)}
    virtual.install("wall")
    assert clock.mode() == "wall"
    assert all(getattr(time, name) is function for name, function in before.items())


@pytest.mark.parametrize("name", READERS)
def test_the_device_clock_shows_modelled_time_only(name: str) -> None:
    virtual.install("device")
    start, start_ns = getattr(time, name)(), getattr(time, f"{name}_ns")()
    sum(range(100_000))
    assert getattr(time, f"{name}_ns")() == start_ns
    clock.advance(2_500_000)
    assert getattr(time, f"{name}_ns")() - start_ns == 2_500_000
    assert getattr(time, name)() - start == pytest.approx(2.5e-3, abs=1e-6)


def test_both_adds_real_time_without_what_simulating_took() -> None:
    virtual.install("both")
    start = time.perf_counter_ns()
    wall = clock.wall_ns()
    clock.advance(10_000_000, spent_ns=0)
    passed = time.perf_counter_ns() - start
    assert 10_000_000 <= passed <= 10_000_000 + clock.wall_ns() - wall + 1_000_000
    before = time.perf_counter_ns()
    clock.advance(0, spent_ns=5_000_000_000)
    assert time.perf_counter_ns() >= before


def test_a_script_that_waits_for_a_deadline_ends() -> None:
    virtual.install("device")
    deadline = time.monotonic() + 0.02
    rounds = 0
    while time.monotonic() < deadline:
        time.sleep(0.01)
        rounds += 1
    assert 2 <= rounds <= 3  # sums of hundredths


def test_waiting_with_a_timeout_ends_though_the_device_clock_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "queue")  # imported anew it takes the replaced function
    virtual.install("device")
    import multiprocessing
    import queue

    with pytest.raises(queue.Empty):
        queue.Queue().get(timeout=0.01)
    receiver, sender = multiprocessing.Pipe()
    assert not receiver.poll(0.01)
    sender.close()


def test_timeit_follows_and_everything_is_given_back() -> None:
    real = time.perf_counter
    virtual.install("device")
    assert clock.mode() == "device"
    assert timeit.timeit(lambda: clock.advance(1e6), number=10) == pytest.approx(0.01, rel=1e-6)
    virtual.uninstall()
    assert time.perf_counter is real
    assert timeit.default_timer is real
    assert clock.mode() == "wall"


def test_temper_itself_measures_real_time() -> None:
    virtual.install("device")
    scope = {"__name__": "temper.some.module", "time": time}
    exec("def now(): return time.perf_counter_ns()", scope)
    first = scope["now"]()  # type: ignore[operator]
    sum(range(100_000))
    assert scope["now"]() > first  # type: ignore[operator]


def test_an_unknown_clock_is_an_error() -> None:
    with pytest.raises(UsageError, match="no clock 'sun'"):
        virtual.install("sun")


def test_the_command_stamps_the_clock_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("from temper import clock\nprint(clock.mode())\n")
    for mode in clock.MODES:
        done = subprocess.run(
            [sys.executable, "-m", "temper", "run", "--clock", mode, "s.py"],
            cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stdout.strip() == mode
        assert (f"--clock {mode}" in done.stderr) == (mode != "wall")


def test_the_run_record_says_which_clock_the_script_saw(tmp_path: Path) -> None:
    source = (
        "import sys, torch, temper\n"
        "model = temper.compile(torch.nn.ReLU().eval())\n"
        "with temper.profile(sys.argv[1]):\n"
        "    model(torch.ones(32, 32))\n"
    )
    (tmp_path / "s.py").write_text(source)
    subprocess.run(
        [sys.executable, "-m", "temper", "run", "--clock", "device", "s.py", "run"],
        cwd=tmp_path, capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    assert '"clock": "device"' in (tmp_path / "run" / "run.json").read_text()
