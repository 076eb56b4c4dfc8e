"""A capture holds what the checks read, and no name, serial number or address."""

from __future__ import annotations

import os
import socket
import tarfile
from pathlib import Path

import pytest
from doctor_trees import BOARDS, machine, write

from temper.doctor import Examined, run
from temper.doctor.capture import Scrubber, capture
from temper.machine.archive import open_machine
from temper.machine.facts import HostFacts
from temper.machine.machine import LiveMachine, MemoryMachine

TRAP = {"/proc/4711/fd/7": "/dev/tenstorrent/0", "/proc/4711/comm": "python3",
        "/proc/4711/fd/8": "/home/alice/private.txt"}  # fmt: skip


def memory(tree: dict[str, str]) -> MemoryMachine:
    return MemoryMachine({path: text.encode() for path, text in tree.items()})


@pytest.mark.parametrize("board", BOARDS)
def test_a_capture_gives_the_same_findings_as_the_machine(board: str, tmp_path: Path) -> None:
    original = memory(machine(board, TRAP))
    capture(original, tmp_path / "out.tar")
    again = run(Examined(open_machine(str(tmp_path / "out.tar"))))
    assert again.findings == run(Examined(original)).findings


@pytest.mark.parametrize("board", ["n150", "p150"])
def test_a_capture_carries_no_serial_number_and_no_name(board: str, tmp_path: Path) -> None:
    tree = machine(board, TRAP | {"/commands/dmesg": "tenstorrent on aa:bb:cc:dd:ee:ff failed"})
    capture(memory(tree), tmp_path / "out.tar")
    content = (tmp_path / "out.tar").read_bytes()
    for secret in (b"4321", b"beefcafe", b"10001851170900c", b"secret", b"alice", b"aa:bb:cc"):
        assert secret not in content


def test_tree_and_archive_are_examined_alike(tmp_path: Path) -> None:
    root = write(machine("p150"), tmp_path / "tree")
    capture(open_machine(str(root)), tmp_path / "out.tar")
    reports = [run(Examined(open_machine(str(tmp_path / n)))) for n in ("tree", "out.tar")]
    assert reports[0].findings == reports[1].findings


def test_this_machine_can_be_captured_without_its_names(tmp_path: Path) -> None:
    assert capture(LiveMachine(), tmp_path / "out.tar") > 3
    host, user = socket.gethostname(), os.environ.get("USER", "")
    with tarfile.open(tmp_path / "out.tar") as archive:
        assert all(m.isreg() and m.uid == 0 and not m.uname for m in archive)
    content = (tmp_path / "out.tar").read_text("utf-8", "replace")
    for name in (host, user):
        if len(name) > 5 and name not in ("localhost", "debian", "ubuntu"):
            assert name not in content
    assert not list(tmp_path.glob("*.part"))


def test_the_scrubber_removes_names_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "lab-42.corp.example")
    monkeypatch.setenv("USER", "alice")
    scrub = Scrubber(HostFacts(home="/home/alice"))
    text = scrub.text("lab-42: /home/alice/x by alice on 10.1.2.3 aa:bb:cc:dd:ee:ff, malice")
    assert text == "removed: /home/user/x by removed on 0.0.0.0 00:00:00:00:00:00, malice"
    assert scrub.file("/sys/a/tt_fw_bundle_ver", "18.3.0.0") == "18.3.0.0"
    assert scrub.file("/sys/a/tt_serial", "0000018000004321") == f"{0x18 << 36:x}"
