"""A profiled command: records calls without torch, optionally in children or until it is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time


def work(calls: int) -> None:
    # Here, so that a child can be the first to load the runtime.
    import samples

    import temper.frontdoor.environment as environment
    from temper.record import recorder

    environment.start_from_environment()

    active = recorder.ACTIVE
    assert active is not None, "the profiler is off"
    program = samples.mlp()
    handle = active.begin_program(program, samples.cost(program))
    for i in range(calls):
        active.record_call(
            handle, time.perf_counter_ns(), time.perf_counter_ns(), first_call=i == 0
        )


def main(mode: str) -> None:
    if mode == "plain":
        work(3)
    elif mode == "fail":
        work(2)
        sys.exit(7)
    elif mode in ("fork", "fork_first"):
        if mode == "fork":  # else each child loads the runtime by itself
            work(1)
        children = [
            multiprocessing.get_context("fork").Process(target=work, args=(2,)) for _ in "ab"
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        if mode == "fork_first":
            work(1)
    elif mode == "spawn":
        work(1)
        for _ in range(2):
            subprocess.run([sys.executable, __file__, "plain"], check=True)
    elif mode == "killed":
        work(5)
        time.sleep(0.4)  # the idle hand-over takes a tenth of a second
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "forever":
        work(4)
        stubborn = "import signal,time; signal.signal(2,1); signal.signal(15,1); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
        print(child.pid, flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1])
