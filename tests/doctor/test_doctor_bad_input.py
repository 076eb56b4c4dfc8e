"""Missing, empty, unreadable, foreign and hostile files never stop the doctor."""

from __future__ import annotations

import io
import os
import random
import stat
import tarfile
import time
from pathlib import Path

import pytest
from doctor_trees import CARD, HWMON, apply, host, machine, write

from temper.doctor import Examined, run
from temper.errors import BadFileError, UsageError
from temper.machine import smi, telemetry
from temper.machine.archive import open_machine
from temper.machine.commands import _run
from temper.machine.machine import DirectoryMachine, LiveMachine, MemoryMachine

GARBAGE = ["", "\0\0\0", "N/A", "ÿþ", "-" * 5000, "0x", "99999999999999999999999", "{", "1e309"]


def memory(tree: dict[str, str]) -> MemoryMachine:
    return MemoryMachine({path: text.encode() for path, text in tree.items()})


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("board", ["e75", "n150", "p150"])
def test_garbage_in_every_file_is_survived(board: str, text: str) -> None:
    tree = machine(board)
    for path in tree:
        if not path.endswith(("/vendor", "/device")):
            tree[path] = text
    report = run(Examined(memory(tree)))
    assert len(report.cards) == 1
    assert not [f for f in report.findings if "could not finish" in f.seen]
    assert telemetry.read(memory(tree))


def test_garbage_in_single_files_is_survived() -> None:
    choose = random.Random(7)
    for _ in range(200):
        tree = machine(choose.choice(["e150", "n300", "p100"]))
        for path in choose.sample(sorted(tree), 3):
            tree[path] = choose.choice(GARBAGE)
        report = run(Examined(memory(tree)))
        assert not [f for f in report.findings if "could not finish" in f.seen]


def test_missing_files_are_survived_one_by_one() -> None:
    whole = machine("p150")
    for path in whole:
        report = run(Examined(memory({p: t for p, t in whole.items() if p != path})))
        assert not [f for f in report.findings if "could not finish" in f.seen]


def test_unreadable_files_read_as_missing(tmp_path: Path) -> None:
    root = write(machine("n150"), tmp_path)
    for name in ("temp1_input", "power1_input"):
        os.chmod(root / HWMON.lstrip("/") / name, 0)
    assert run(Examined(DirectoryMachine(root))).exit_code() == 0


def test_decimal_commas_of_another_locale_are_understood() -> None:
    changes = {f"{CARD}/current_link_speed": "16,0 GT/s PCIe", "/proc/loadavg": "0,42 0,1 0,1"}
    assert run(Examined(memory(machine("n150", changes)))).exit_code("warning") == 0
    [device] = smi.parse('{"device_info": [{"telemetry": {"asic_temperature": "46,5"}}]}')
    assert device.temperature_c == 46.5


def test_hundreds_of_other_pci_devices_are_passed_quickly() -> None:
    tree = machine("n150")
    for number in range(800):
        tree[f"/sys/bus/pci/devices/0000:{number % 256:02x}:{number // 256:02x}.7/vendor"] = (
            "0x8086"
        )
    start = time.perf_counter()
    report = run(Examined(memory(tree)))
    assert time.perf_counter() - start < 0.5
    assert len(report.cards) == 1


def test_a_container_without_sysfs_but_with_the_node_has_a_card() -> None:
    report = run(Examined(memory({**host(), "/dev/tenstorrent/0": ""})))
    assert report.cards == ("Tenstorrent card at /dev/tenstorrent/0",)
    assert report.exit_code() == 0


def test_an_empty_tree_is_a_machine_without_a_card(tmp_path: Path) -> None:
    report = run(Examined(DirectoryMachine(tmp_path)))
    assert report.exit_code("warning") == 0
    assert report.cards == ()


@pytest.mark.parametrize(
    "text",
    ["", "no json", "{}", '{"device_info": null}', '{"device_info": [1, null, {}]}', "[" * 100_000,
     '{"device_info": [{"board_info": {"bus_id": null, "dram_status": "N/A"}, "limits": []}]}',
     'Gathering...\n{"device_info": [{"board_info": {"bus_id": "0000:01:00.0"}}]}\ndone'],
)  # fmt: skip
def test_any_output_of_tt_smi_is_survived(text: str) -> None:
    smi.parse(text)
    tree = machine("n150", {"/commands/tt-smi": text})
    assert run(Examined(memory(tree))).exit_code("warning") == 0


def test_an_old_snapshot_without_newer_parts_is_read() -> None:
    text = (
        '{"time": "x", "host_info": {}, "device_info": [{"smbus_telem": {}, "board_info": '
        '{"bus_id": "0000:01:00.0", "board_type": "n300 L", "dram_status": true}, '
        '"telemetry": {"voltage": "0.79", "aiclk": " 500", "asic_temperature": "42.1"}}]}'
    )
    [device] = smi.parse(text)
    assert device.board_type == "n300"
    assert device.dram_trained is True
    assert device.clock_mhz == 500


def test_a_hanging_command_is_ended_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    start = time.perf_counter()
    assert _run((str(script),), 0.2).status == "timeout"
    assert time.perf_counter() - start < 5


def test_a_command_that_fails_or_is_no_program_is_no_error(tmp_path: Path) -> None:
    assert _run(("false",), 5).status == "failed"
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    assert _run((str(broken),), 5).status == "failed"


def test_links_out_of_a_tree_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("top secret")
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").symlink_to(secret)
    (root / "sys").symlink_to(tmp_path)
    found = DirectoryMachine(root)
    assert found.text("/proc/meminfo") is None
    assert found.listing("/sys") == []
    assert found.text("/../secret") is None


def test_a_pipe_in_a_tree_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    os.mkfifo(tmp_path / "proc/meminfo")
    assert DirectoryMachine(tmp_path).text("/proc/meminfo") is None


def test_a_huge_file_is_read_only_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    with (tmp_path / "proc/meminfo").open("wb") as file:
        file.truncate(8 << 30)
    text = DirectoryMachine(tmp_path).text("/proc/meminfo")
    assert text is not None
    assert len(text) <= 1 << 20


def _archive(path: Path, *members: tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def _member(
    name: str, size: int = 2, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [_member("../../etc/passwd"), _member("/etc/passwd"), _member("a/../../b"),
     _member("sys/x", 0, tarfile.SYMTYPE, "/etc/passwd"),
     _member("sys/x", 0, tarfile.LNKTYPE, "capture.json"), _member("dev/x", 0, tarfile.CHRTYPE),
     _member("pipe", 0, tarfile.FIFOTYPE), _member("big", 2 << 20)],
    ids=["parent", "absolute", "inner parent", "symlink", "hard link", "device", "pipe", "big"],
)  # fmt: skip
def test_a_hostile_archive_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    path = _archive(tmp_path / "a.tar", _member("capture.json"), member)
    with pytest.raises(BadFileError):
        open_machine(str(path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar"]


def test_a_compressed_bomb_is_refused_unread(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.tar.gz", _member("capture.json", 50 << 20), mode="w:gz")
    with pytest.raises(BadFileError):
        open_machine(str(path))


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.tar", *(_member(f"sys/{n}", 0) for n in range(20_001)))
    with pytest.raises(BadFileError, match="members"):
        open_machine(str(path))


@pytest.mark.parametrize("content", [b"", b"garbage" * 100, b"\0" * 10240])
def test_what_is_no_archive_is_an_error_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    with pytest.raises(BadFileError):
        open_machine(str(path))


def test_a_truncated_archive_is_an_error_in_words(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.tar", _member("capture.json", 5000))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(BadFileError):
        open_machine(str(path))


def test_a_root_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        open_machine("/no/such/place")


def test_a_check_that_breaks_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from temper.doctor import examination, registry

    def broken(context: Examined) -> registry.Result:
        raise RuntimeError("boom")
        yield

    entry = registry.Check("kernel", "host", broken)
    checks = [entry if check.name == "kernel" else check for check in registry.CHECKS]
    monkeypatch.setattr(examination, "CHECKS", checks)
    report = run(Examined(memory(apply(machine("n150"), {}))))
    assert any("RuntimeError: boom" in f.seen for f in report.findings)
    assert any(f.check == "memory" for f in report.findings)


def test_a_capture_cannot_steer_the_terminal(tmp_path: Path) -> None:
    from temper.doctor.screen import report_lines

    evil = "\x1b]0;owned\x07\x1b[2J"
    tree = machine("n150", {"/proc/sys/kernel/osrelease": f"5.15 {evil}"})
    tree = apply(tree, {}, environment={"ARCH_NAME": evil, "TT_METAL_PROFILER": evil})
    lines = list(report_lines(run(Examined(memory(tree))), 100, verbose=True))
    styled = "".join(lines).replace("\x1b[0m", "")
    assert "\x1b]" not in styled
    assert "\x1b[2J" not in styled
    assert "\x07" not in styled


def test_files_of_proc_are_read_to_their_end() -> None:
    text = LiveMachine().text("/proc/self/maps")
    if text is None:
        pytest.skip("no /proc here")
    assert len(text) > 4096
    assert "[stack]" in text
