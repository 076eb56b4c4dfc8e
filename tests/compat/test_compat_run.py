"""``temper run`` is ``python`` with stand-ins: argv, path, __main__, exit codes, tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def temper(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "temper", "run", *arguments], cwd=cwd,
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip


def write(tmp_path: Path, source: str, name: str = "folder/script.py") -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(source)


SHOW = """
import sys, json
import beside
print(json.dumps([__name__, sys.argv, sys.path[0], __file__, sys.modules["__main__"].__name__,
                  beside.here]))
"""


def test_a_script_sees_what_python_shows_it(tmp_path: Path) -> None:
    write(tmp_path, SHOW)
    write(tmp_path, "here = 1\n", "folder/beside.py")
    ours = temper("folder/script.py", "--chip", "x", "-m", "--", "y", cwd=tmp_path)
    plain = subprocess.run([sys.executable, "folder/script.py", "--chip", "x", "-m", "--", "y"],
                           cwd=tmp_path, capture_output=True, text=True, check=True)  # fmt: skip
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout


def test_a_module_sees_what_python_shows_it(tmp_path: Path) -> None:
    write(tmp_path, "import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n", "pack/tool.py")
    write(tmp_path, "", "pack/__init__.py")
    done = temper("-m", "pack.tool", "a", "-b", cwd=tmp_path)
    assert done.stdout.strip() == f"__main__ ['a', '-b'] {tmp_path}"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit('told')", 1),
        ("raise ValueError('mine')", 1),
        ("import os; os._exit(5)", 5),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_exit_codes_are_the_scripts_own(tmp_path: Path, source: str, code: int) -> None:
    write(tmp_path, source)
    done = temper("folder/script.py", cwd=tmp_path)
    assert done.returncode == code, done.stderr


def test_a_scripts_error_shows_its_own_traceback_only(tmp_path: Path) -> None:
    write(tmp_path, "def f():\n    raise ValueError('mine')\nf()\n")
    done = temper("folder/script.py", cwd=tmp_path)
    assert "line 3, in <module>" in done.stderr
    assert "ValueError: mine" in done.stderr
    assert "runner.py" not in done.stderr
    assert "click" not in done.stderr


def test_wrong_names_are_usage_errors(tmp_path: Path) -> None:
    write(tmp_path, "print('ran')")
    for arguments in (["nowhere.py"], ["-m", "no_such_module_here"],
                      ["--chip", "n151", "folder/script.py"]):  # fmt: skip
        done = temper(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("temper: ")
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_pytest_runs_through_it(tmp_path: Path) -> None:
    write(tmp_path, "import tracy\ndef test_it():\n    tracy.signpost('x')\n", "test_x.py")
    done = temper("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_x.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_chip_reaches_the_script(tmp_path: Path) -> None:
    source = "from temper.options import resolve\nprint(resolve()['chip'])\n"
    write(tmp_path, source)
    assert temper("--chip", "p150a", "folder/script.py", cwd=tmp_path).stdout == "p150\n"


def test_classes_of_the_script_can_be_pickled(tmp_path: Path) -> None:
    source = "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))\n"
    write(tmp_path, source)
    assert temper("folder/script.py", cwd=tmp_path).stdout == "<class '__main__.A'>\n"
