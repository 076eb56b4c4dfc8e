"""One study in PostgreSQL that several processes tune, one of which is killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
TRIALS = 8

pytest.importorskip("pg8000", reason="pg8000, the driver of the dev extra, is not installed")
if not SERVERS:
    pytest.skip("no PostgreSQL server under /usr/lib/postgresql", allow_module_level=True)


def _as_server(*command: str) -> subprocess.CompletedProcess[str]:
    """PostgreSQL refuses to run as root: as nobody there."""
    user = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", **user)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="temper-pg-"))
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tools, data = SERVERS[-1], folder / "data"
    _as_server(str(tools / "initdb"), "-D", str(data), "-U", "temper", "-A", "trust", "-N")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
    log = str(folder / "log")
    _as_server(str(tools / "pg_ctl"), "-D", str(data), "-l", log, "-w", "-o", options, "start")
    try:
        yield f"postgresql://temper@127.0.0.1:{port}/postgres"
    finally:
        _as_server(str(tools / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from tiny import no_batch
from temper.tuning.accuracy import floors
from temper.tuning.tune import tune
tune(no_batch, floors=floors(0.9), trials=int(sys.argv[3]), study=sys.argv[1])
"""


def test_four_processes_share_a_study_and_one_may_be_killed(url: str) -> None:
    import optuna
    from optuna.trial import TrialState

    from temper.tuning.store import abandon_dead, with_driver

    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", SCRIPT, url, here, str(TRIALS)]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    storage = optuna.storages.RDBStorage(with_driver(url))
    killed = 0
    deadline = time.monotonic() + 300
    while not killed and time.monotonic() < deadline:
        for summary in optuna.get_all_study_summaries(storage):
            study = optuna.load_study(study_name=summary.study_name, storage=storage)
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            owners = [int(t.user_attrs["owner"].split(":")[1])
                      for t in running if "owner" in t.user_attrs]  # fmt: skip
            if owners:
                killed = owners[0]
                os.kill(killed, signal.SIGKILL)
                break
        time.sleep(0.05)
    assert killed
    for worker in workers:
        _, errors = worker.communicate(timeout=300)
        assert worker.returncode == (-signal.SIGKILL if worker.pid == killed else 0), errors
    study.set_user_attr("looked", True)
    abandon_dead(study)
    trials = study.get_trials(deepcopy=False)
    assert not [t for t in trials if t.state == TrialState.RUNNING]
    done = [t.user_attrs["trial"] for t in trials if t.state == TrialState.COMPLETE]
    assert len(done) >= TRIALS
    judged = [str(t["setting"]) for t in done if not t["note"].startswith("as ")]
    assert len(judged) == len(set(judged)), "a setting was judged twice"
