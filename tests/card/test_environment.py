"""Bad environments and bad frames, one line each; no ttnn is needed here."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from temper.options import resolve
from temper.targets.choose import automatic, choose
from temper.targets.ttnn import environment, frames
from temper.targets.ttnn.environment import Environment, TtnnError, card_problems, find, problems


def test_a_folder_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_TTNN", "/nowhere/at/all")
    with pytest.raises(TtnnError, match="TEMPER_TTNN names /nowhere/at/all, which does not exist"):
        find("n150")


def test_a_folder_without_python_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEMPER_TTNN", str(tmp_path))
    with pytest.raises(TtnnError, match="has no bin/python"):
        choose(resolve({"target": "ttnn"}))


def test_a_python_without_ttnn_is_one_line() -> None:
    (line,) = problems(Environment(Path(sys.executable)))
    assert "has no ttnn" in line
    assert "\n" not in line


def _python(folder: Path, answer: str) -> Path:
    script = folder / "python"
    script.write_text(f"#!/bin/sh\necho '{answer}'\n")
    script.chmod(0o755)
    return script


def test_another_version_and_another_numpy_are_told(tmp_path: Path) -> None:
    python = _python(tmp_path, '{"python": "3.12", "ttnn": "0.70.0", "numpy": "2.1.0"}')
    told = problems(Environment(python, mocked=True))
    assert "ttnn 0.70.0" in told[0]
    assert environment.VERSION in told[0]
    assert "numpy 2.1.0" in told[1]


def test_a_python_that_does_not_start_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'cannot load libfoo' >&2\nexit 127\n")
    broken.chmod(0o755)
    assert problems(Environment(broken)) == [f"{broken} does not start: cannot load libfoo"]


def test_no_card_and_a_busy_card_are_told(tmp_path: Path) -> None:
    devices = tmp_path / "tenstorrent"
    devices.mkdir()
    assert "no card" in card_problems(devices)[0]
    node = devices / "0"
    node.touch()
    assert card_problems(devices) == []


def test_auto_takes_the_virtual_chip_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_TTNN", "/nowhere")
    target, why = automatic("n150")
    assert target.name == "virtual"
    assert "/nowhere" in why
    with pytest.warns(UserWarning, match="target auto took virtual: TEMPER_TTNN names"):
        choose(resolve({"target": "auto"}))


def test_a_frame_carries_json_and_arrays_and_refuses_anything_else() -> None:
    ours, theirs = socket.socketpair()
    sent = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 4), np.int32)]
    frames.send(ours, {"do": "run"}, sent)
    message, got = frames.receive(theirs)
    assert message == {"do": "run"}
    assert [a.tolist() for a in got] == [a.tolist() for a in sent]
    ours.sendall(b"\xff" * 12)
    with pytest.raises(frames.BadFrame):
        frames.receive(theirs)
    ours.close()
    with pytest.raises(frames.Closed):
        frames.receive(theirs)


def test_a_card_that_another_process_holds_is_told_with_its_number(tmp_path: Path) -> None:
    devices = tmp_path / "tenstorrent"
    devices.mkdir()
    node = devices / "0"
    node.touch()
    script = f"f = open({str(node)!r}); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        (line,) = card_problems(devices)
        assert line == f"the card is busy: process {holder.pid} holds {node}"
        holder.communicate(b"\n")


def test_a_missing_driver_is_told(tmp_path: Path) -> None:
    if Path("/sys/module/tenstorrent").exists():
        pytest.skip("this machine has the driver")
    (line,) = card_problems(tmp_path / "nothing")
    assert line == "the driver tenstorrent is not loaded: sudo modprobe tenstorrent"
