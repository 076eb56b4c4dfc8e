"""The virtual clock follows modelled time, never runs backwards, and is never the default."""

from __future__ import annotations

import subprocess
import sys
import threading
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
@pytest.mark.parametrize("mode", ["device", "both"])
def test_modelled_time_and_the_scripts_own_work_count(name: str, mode: str) -> None:
    virtual.install(mode)
    start, real = getattr(time, f"{name}_ns")(), clock.wall_ns()
    sum(range(200_000))
    clock.advance(2_500_000_000)
    passed, most = getattr(time, f"{name}_ns")() - start, clock.wall_ns() - real
    # The system's clocks drift against each other by some hundred nanoseconds.
    assert 0 < passed - 2_500_000_000 <= most + 100_000
    assert getattr(time, name)() == pytest.approx(getattr(time, f"{name}_ns")() / 1e9, abs=1.0)


def test_neither_simulating_nor_compiling_takes_time_on_the_device_clock() -> None:
    virtual.install("device")
    real, start = clock.wall_ns(), time.perf_counter_ns()
    for work in (clock.simulating, clock.compiling):
        with work, work:  # nested work counts once
            time.sleep(0.05)
            inside = time.perf_counter_ns() - start
    passed = time.perf_counter_ns() - start
    assert inside <= passed < clock.wall_ns() - real - 95_000_000


def test_both_counts_compiling() -> None:
    virtual.install("both")
    start = time.perf_counter_ns()
    with clock.simulating:
        time.sleep(0.05)
    assert time.perf_counter_ns() - start < 45_000_000
    with clock.compiling:
        time.sleep(0.05)
    assert time.perf_counter_ns() - start > 50_000_000


def test_host_work_of_threads_that_simulate_at_once_counts_once() -> None:
    virtual.install("device")
    gate = threading.Barrier(2)

    def simulate() -> None:
        gate.wait()
        with clock.simulating:
            time.sleep(0.05)

    before = clock.simulating.total_ns()
    threads = [threading.Thread(target=simulate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.simulating.total_ns() - before < 95_000_000


def test_a_benchmark_that_times_host_work_alone_does_not_divide_by_zero() -> None:
    virtual.install("device")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        sorted(range(10_000), key=lambda i: -i)
        times.append(time.perf_counter() - start)
    assert all(t > 0 for t in times)
    assert len(set(times)) > 1  # measured, so that repeated trials scatter


def test_a_draw_is_one_factor_a_seed_and_follows_the_band() -> None:
    factors = []
    for seed in range(400):
        clock.set_draw(seed)
        factors.append(clock.drawn(100.0, 80.0, 150.0))
    clock.set_draw(7)
    assert clock.drawn(100.0, 80.0, 150.0) == factors[7]  # the same seed, the same time
    inside = sum(0.8 <= f <= 1.5 for f in factors) / len(factors)
    assert inside == pytest.approx(0.8, abs=0.06)  # three deviations of 400 draws
    clock.set_draw(None)
    assert clock.drawn(100.0, 80.0, 150.0) == 1.0


def test_a_script_that_waits_for_a_deadline_ends() -> None:
    virtual.install("device")
    deadline = time.monotonic() + 0.02
    rounds = 0
    while time.monotonic() < deadline:
        time.sleep(0.01)
        rounds += 1
    assert 2 <= rounds <= 3  # sums of hundredths


def test_waiting_with_a_timeout_ends_on_the_device_clock(
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
    assert 10.0 < timeit.timeit(lambda: clock.advance(1e9), number=10) < 10.5
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


def test_compiling_and_simulating_a_model_take_modelled_time_only(tmp_path: Path) -> None:
    source = (
        "import time, torch, temper\n"
        "from temper import clock\n"
        "net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).eval()\n"
        "model, x = torch.compile(net, backend='tt'), torch.ones(512, 512)\n"
        "with torch.no_grad():\n"
        "    model(x)\n"
        "    own = clock.simulating.total_ns() + clock.compiling.total_ns()\n"
        "    start, real = time.perf_counter_ns(), clock.wall_ns()\n"
        "    modelled = clock.elapsed_ns()\n"
        "    for _ in range(10): model(x)\n"
        "passed = time.perf_counter_ns() - start - (clock.elapsed_ns() - modelled)\n"
        "print(passed / (clock.wall_ns() - real), own / 1e9)\n"
    )
    (tmp_path / "s.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "temper", "run", "--clock", "device", "--draw", "3", "s.py"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    host, own_s = map(float, done.stdout.split())
    assert 0 < host < 0.5  # guards and dispatch are host work; the matmuls are not
    assert own_s > 0.1  # tracing and compiling
    assert "draw 3 from their band" in done.stderr


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
