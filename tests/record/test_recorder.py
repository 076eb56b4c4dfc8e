"""Recording: what the runtime calls, and what a run knows afterwards."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
import samples

import temper
from temper.errors import UsageError
from temper.record import recorder
from temper.record.log import ProcessLog
from temper.run.logs import run_from_logs
from temper.run.run_table import table_of_run


def test_nothing_is_recorded_when_profiling_is_off() -> None:
    assert recorder.ACTIVE is None
    temper.signpost("nobody listens")
    assert recorder.ACTIVE is None


def test_a_call_becomes_one_row_for_every_op() -> None:
    run = samples.run(calls=3, host_op=True)
    assert run.op_count == 6 * 5
    table = table_of_run(run)
    # 12 matmuls of 50 µs and 12 activations of 10 µs; the host op is no device time.
    assert table.total("kernel_ns", table.is_device) == 12 * 50_000 + 12 * 10_000


def test_top_is_ordered_by_total_time() -> None:
    top = samples.run(calls=2).top(3)
    assert [row.code for row in top[:2]] == ["MatmulDeviceOperation"] * 2
    assert top[0].total_ns >= top[1].total_ns >= top[2].total_ns
    assert "modelled" in str(top[0])


def test_profile_in_python_switches_on_and_off(tmp_path: Path) -> None:
    program = samples.mlp()
    with temper.profile(tmp_path / "run") as session:
        active = recorder.ACTIVE
        assert active is not None
        handle = active.begin_program(program, samples.cost(program))
        temper.signpost("begin")
        active.record_call(handle, 10, 20, first_call=True)
        assert session.op_count == 4
    assert recorder.ACTIVE is None
    assert session.top(1)[0].count == 1
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_profile_is_written_even_when_the_block_fails(tmp_path: Path) -> None:
    def work() -> None:
        with temper.profile(tmp_path / "run"):
            active = recorder.ACTIVE
            assert active is not None
            program = samples.mlp()
            active.record_call(active.begin_program(program, samples.cost(program)), 1, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert (tmp_path / "run" / "run.json").is_file()
    assert recorder.ACTIVE is None


def test_two_profiles_at_once_are_refused_with_a_way_out() -> None:
    with temper.profile(), pytest.raises(UsageError, match="already being taken"):
        temper.profile().__enter__()


def test_an_unwritable_directory_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot write"), temper.profile(tmp_path / "file" / "run"):
        pytest.fail("the block must not run")


def test_measured_op_times_belong_to_the_call_before_them() -> None:
    log = ProcessLog()
    active = recorder.Recorder(log)
    program = samples.mlp(layers=1)
    handle = active.begin_program(program, samples.cost(program))
    active.record_call(handle, 0, 100)
    active.record_call(handle, 100, 200, op_host_ns=[60, 40])
    active.record_call(handle, 200, 300)
    active.flush()
    process = run_from_logs([log]).processes[0]
    assert process.op_host_ns == {1: [60, 40]}


def test_recorders_hand_over_while_they_are_busy() -> None:
    log = ProcessLog()
    active = recorder.Recorder(log)
    program = samples.mlp()
    handle = active.begin_program(program, samples.cost(program))
    later = active._flushed_ns + 2 * recorder.FLUSH_NS
    active.record_call(handle, later - 5, later)
    assert len(log.table) == 1


def _child(result: str) -> None:
    Path(result).write_text(str(recorder.ACTIVE))


def test_a_forked_child_does_not_write_into_its_parents_profile(tmp_path: Path) -> None:
    with temper.profile() as session:
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_child, args=(str(tmp_path / "child"),))
        child.start()
        child.join(20)
        temper.signpost("parent goes on")
    assert (tmp_path / "child").read_text() == "None"
    assert len(session.run.processes[0].events) == 1


def test_events_survive_any_thread(tmp_path: Path) -> None:
    import threading

    log = ProcessLog()
    active = recorder.Recorder(log)
    program = samples.mlp()
    handle = active.begin_program(program, samples.cost(program))

    def work() -> None:
        for i in range(2000):
            active.record_call(handle, i, i + 1)
            if i % 100 == 0:
                active.flush()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    active.flush()
    assert len(log.table) == 8000
    assert (np.asarray(log.table["kind"]) == 1).all()
    assert os.getpid() == log.hello["pid"]
