"""Processes that a script starts have what the script has, whichever way they are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def temper(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "temper", "run", *arguments], cwd=cwd, capture_output=True,
        text=True, timeout=180, check=False, env={**os.environ, **environment},
    )  # fmt: skip


WORK = """
import sys

def work(number):
    import tracy
    assert not [entry for entry in sys.path if "startup" in entry]
    return f"{number} {tracy.signpost.__module__} {sys.path[0]}"

"""
WAYS = {
    "a spawned pool": """
import multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool:
    print(pool.map(work, [7])[0])
""",
    "a spawned executor": """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
    print(list(pool.map(work, [7]))[0])
""",
    "a fork server": """
import multiprocessing
with multiprocessing.get_context("forkserver").Pool(1) as pool:
    print(pool.map(work, [7])[0])
""",
    "the interpreter": """
import subprocess
subprocess.run([sys.executable, "-c", "from script import work; print(work(7))"], check=True)
""",
    "a grandchild": """
import subprocess
inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
last = "import sys; sys.path[0] = '.'; from script import work; print(work(7))"
subprocess.run([sys.executable, "-c", inner, last], check=True)
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_process_started_by_a_script_finds_the_stand_ins(way: str, tmp_path: Path) -> None:
    body = "".join(f"    {line}\n" for line in WAYS[way].splitlines())
    (tmp_path / "script.py").write_text(f"{WORK}if __name__ == '__main__':\n{body}")
    done = temper("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    number, module, first = done.stdout.rstrip("\n").split(" ", 2)
    assert (number, module) == ("7", "tracy")
    assert first in (str(tmp_path), "", ".")


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        from tracy import signpost
        return torch.tensor(index)

if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
"""


def test_workers_of_a_data_loader_find_the_stand_ins(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LOADER)
    done = temper("script.py", cwd=tmp_path)
    assert done.stdout.strip() == "[[0, 1], [2, 3]]", done.stderr


def test_workers_of_pytest_find_the_stand_ins(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text("import tracy\ndef test_it():\n    tracy.signpost('x')\n")
    done = temper("-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_chip_and_clock_reach_a_child(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "import time\nfrom temper.options import resolve\nfrom temper import clock\n"
        "start = time.perf_counter()\nclock.advance(1e12)\n"
        "print(resolve()['chip'], clock.mode(), int(time.perf_counter() - start) // 100)\n"
    )
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)\n"
    )
    done = temper("--chip", "p150", "--clock", "device", "script.py", cwd=tmp_path)
    assert done.stdout.strip() == "p150 device 10", done.stderr


def test_a_childs_own_sitecustomize_and_path_are_kept(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = __file__\n")
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\n"
        "code = 'import sys, sitecustomize, tracy; print(customized, sitecustomize.__file__)'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    done = temper("script.py", cwd=tmp_path, PYTHONPATH=str(own))
    expected = str(own / "sitecustomize.py")
    assert done.stdout.split() == [expected, expected], done.stderr


def test_a_process_with_a_clean_environment_is_plain_python(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-E', '-c', 'import tracy'], capture_output=True)\n"
        "print(done.returncode, b'No module named' in done.stderr)\n"
    )
    done = temper("script.py", cwd=tmp_path)
    assert done.stdout.strip() == "1 True"
