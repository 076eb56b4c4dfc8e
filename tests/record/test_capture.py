"""tt_profile: any command, any number of processes, ended in any way."""

from __future__ import annotations

import contextlib
import csv
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from temper.errors import UsageError
from temper.frontdoor.tt_profile import main, targets
from temper.record.server import CaptureServer
from temper.run.folder import read_run

HERE = Path(__file__).parents[1] / "profiles"


def script(mode: str) -> str:
    return shlex.join([sys.executable, str(HERE / "client_script.py"), mode])


def profile(
    arguments: list[str], cwd: Path, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "temper.frontdoor.tt_profile", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(HERE), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_the_default_report_is_where_the_guide_says(tmp_path: Path) -> None:
    done = profile([script("plain")], tmp_path)
    assert done.returncode == 0, done.stderr
    csv = tmp_path / "results" / "perf" / "device_ops_perf_trace.csv"
    assert len(csv.read_text().splitlines()) == 1 + 3 * 4
    assert "temper report" in done.stderr


def test_the_exit_code_is_passed_on_and_the_profile_kept(tmp_path: Path) -> None:
    done = profile(["-o", "out.csv", script("fail")], tmp_path)
    assert done.returncode == 7
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1 + 2 * 4


@pytest.mark.parametrize(
    ("mode", "processes", "calls"), [("fork", 3, 5), ("fork_first", 3, 5), ("spawn", 3, 7)]
)
def test_every_process_that_the_command_starts_is_collected(
    tmp_path: Path, mode: str, processes: int, calls: int
) -> None:
    done = profile(["-o", "run", script(mode)], tmp_path)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    assert len(run.processes) == processes
    assert sum(len(p.calls) for p in run.processes) == calls
    assert len({p.pid for p in run.processes}) == processes


def test_a_killed_process_loses_nothing_that_it_had_sent(tmp_path: Path) -> None:
    done = profile(["-o", "run", script("killed")], tmp_path)
    assert done.returncode == 128 + signal.SIGKILL
    run = read_run(tmp_path / "run")
    assert run.op_count == 5 * 4
    assert any("without closing" in note for note in run.notes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_profiler_leaves_nothing_running_and_a_profile(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "temper.frontdoor.tt_profile", "-o", "run", script("forever")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    stubborn = int(process.stdout.readline())
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=60)
    # On a busy machine an interrupt that the child ignores is followed by a request to end.
    assert process.returncode in (128 + number, 128 + signal.SIGTERM, 1)
    assert not psutil.pid_exists(stubborn) or psutil.Process(stubborn).status() == "zombie"
    assert read_run(tmp_path / "run").op_count == 16


def test_a_command_that_never_connects_gets_advice_and_its_own_exit_code(tmp_path: Path) -> None:
    started = time.monotonic()
    done = profile(["true"], tmp_path)
    assert done.returncode == 0
    assert "nothing connected on port" in done.stderr
    assert "another port with -p" in done.stderr
    assert time.monotonic() - started < 20
    failed = profile(["exit 3"], tmp_path)
    assert failed.returncode == 3
    assert "ended with exit code 3" in failed.stderr
    assert not list(tmp_path.iterdir())  # no empty folder stays behind


def test_a_command_that_the_shell_does_not_find_gets_one_line(tmp_path: Path) -> None:
    done = profile(["no-such-command-here"], tmp_path)
    assert done.returncode == 127
    assert done.stderr.splitlines()[-1] == "temper: the command was not found"


def test_output_of_the_command_is_streamed(tmp_path: Path) -> None:
    done = profile(["echo out; echo err >&2"], tmp_path)
    assert done.stdout == "out\n"
    assert "err" in done.stderr


def test_a_taken_default_port_moves_on_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # something else has it, which serves as well
            held.bind(("127.0.0.1", 8086))
            held.listen()
        done = profile(["-o", "run", script("plain")], tmp_path)
    assert done.returncode == 0
    assert "port 8086 is taken; using 80" in done.stderr


def test_a_given_port_that_is_taken_is_an_error_that_names_the_holder(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        done = profile(["-p", str(port), "true"], tmp_path)
    assert done.returncode == 2
    assert f"port {port} is taken by" in done.stderr
    assert str(os.getpid()) in done.stderr


@pytest.mark.parametrize("port", [0, 70_000, -1])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match="is no port"):
        CaptureServer(port)


def test_an_unquoted_command_gets_the_quoted_one_to_paste(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["pytest", "-svv", "tests/a b.py"])
    assert stop.value.code == 2
    assert "must be quoted" in capsys.readouterr().err


def test_an_unwritable_output_is_told_before_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = profile(["-o", "file/run", f"touch {tmp_path / 'ran'}"], tmp_path)
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_an_output_path_may_be_a_csv_or_a_folder() -> None:
    assert targets("a/b.csv") == (Path("a/b"), Path("a/b.csv"))
    assert targets("a/b") == (Path("a/b"), None)


@pytest.mark.parametrize("variable", ["TT_METAL_DEVICE_PROFILER", "TT_METAL_PROFILER"])
def test_a_plain_script_writes_where_tt_metal_does(tmp_path: Path, variable: str) -> None:
    done = subprocess.run(
        script("spawn"),
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE), variable: "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "generated" / "profiler").glob("ops_perf_results*.csv"))
    assert files[0].name == "ops_perf_results.csv"
    # The script and the two that it started, each in its own file.
    assert [len(f.read_text().splitlines()) for f in files] == [1 + 4, 1 + 12, 1 + 12]
    assert ("tt-metal's own name is" in done.stderr) == (variable == "TT_METAL_PROFILER")


def test_the_switch_set_to_zero_is_off(tmp_path: Path) -> None:
    code = (
        "from temper.frontdoor.environment import start_from_environment as start\n"
        "from temper.record import recorder\nstart(); print(recorder.ACTIVE)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TT_METAL_DEVICE_PROFILER": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize("words", [[script("plain")], shlex.split(script("plain"))])
def test_temper_profile_takes_the_command_quoted_or_as_words(
    tmp_path: Path, words: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "temper", "profile", "-o", "run", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "run").op_count == 12


def test_tt_profile_keeps_the_readings_of_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.path.insert(0, str(HERE.parent / "doctor"))
    from doctor_trees import machine, write

    from temper.machine import telemetry
    from temper.machine.machine import DirectoryMachine

    tree = DirectoryMachine(write(machine("n150"), tmp_path / "tree"))
    monkeypatch.setattr(telemetry, "LiveMachine", lambda: tree)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    with pytest.raises(SystemExit) as stop:
        main(["-o", str(tmp_path / "run"), script("plain")])
    assert stop.value.code == 0
    rows = list(csv.DictReader((tmp_path / "run" / "cards.csv").open()))
    assert rows[0]["temperature_c"] == "46.0"  # as the tree's hwmon says: 46000 thousandths
    [card] = read_run(tmp_path / "run").meta["cards"]
    assert card["power_w"] == {"min": 38.0, "mean": 38.0, "max": 38.0}


def test_a_failed_conftest_is_named_as_the_cause(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "test_x.py").write_text("def test_x():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "temper.frontdoor.tt_profile",
         f"{sys.executable} -m pytest -p no:cacheprovider test_x.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert "conftest.py failed to import" in done.stderr
    assert "ran a model" not in done.stderr
