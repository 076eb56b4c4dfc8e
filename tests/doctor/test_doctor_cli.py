"""The commands doctor and monitor, and the hugepages script, as a user runs them."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from doctor_trees import CARD, HWMON, host, machine, write

from temper.cli.doctor import command as doctor
from temper.cli.monitor import command as monitor
from temper.errors import TemperError, UsageError
from temper.machine import telemetry
from temper.machine.machine import DirectoryMachine, LiveMachine

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup_hugepages.sh"


def invoke(command: object, *arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(command, list(arguments), input=text)  # type: ignore[arg-type]


def test_exit_codes_follow_the_gravest_finding(tmp_path: Path) -> None:
    good = write(machine("n150"), tmp_path / "good")
    warned = write(machine("n150", {"/proc/loadavg": "99 1 1"}), tmp_path / "warned")
    bad = write(machine("n150", {f"{CARD}/current_link_width": "8"}), tmp_path / "bad")
    assert invoke(doctor, "--root", str(good)).exit_code == 0
    assert invoke(doctor, "--root", str(warned)).exit_code == 0
    assert invoke(doctor, "--root", str(warned), "--fail-on", "warning").exit_code == 1
    result = invoke(doctor, "--root", str(bad))
    assert result.exit_code == 1
    assert "Not ready: 1 problem," in result.output


def test_json_carries_every_field(tmp_path: Path) -> None:
    root = write(machine("p150"), tmp_path)
    data = json.loads(invoke(doctor, "--root", str(root), "--json").output)
    assert data["cards"] == ["Blackhole p150 at 0000:01:00.0"]
    assert set(data["findings"][0]) >= {"level", "seen", "expected", "why", "fix", "source"}


def test_a_missing_card_fails_only_when_required(tmp_path: Path) -> None:
    root = write(host(), tmp_path)
    assert invoke(doctor, "--root", str(root)).exit_code == 0
    assert invoke(doctor, "--root", str(root), "--require-card").exit_code == 1


def test_lines_fit_the_terminal(tmp_path: Path) -> None:
    from temper.doctor import Examined, run
    from temper.doctor.screen import report_lines

    changes = {f"{CARD}/current_link_width": "8", "/proc/mounts": ""}
    report = run(Examined(DirectoryMachine(write(machine("n150", changes), tmp_path))))
    import click

    for columns in (60, 80, 120):
        for line in report_lines(report, columns, verbose=True):
            plain = click.unstyle(line)
            # Paths and commands are not broken; everything else fits.
            assert len(plain) <= columns or len(plain.split()) <= 2
            assert plain == plain.rstrip()


def test_a_capture_is_written_and_examined(tmp_path: Path) -> None:
    root = write(machine("n300"), tmp_path / "tree")
    out = str(tmp_path / "out.tar")
    assert invoke(doctor, "--root", str(root), "--capture", out).exit_code == 0
    assert "n300" in invoke(doctor, "--root", out).output


@pytest.mark.parametrize("symptom", ["low-throughput", "high-latency", "memory-errors"])
def test_each_symptom_is_walked_without_a_card(symptom: str, tmp_path: Path) -> None:
    root = write(host(), tmp_path)
    data = json.loads(invoke(doctor, "--root", str(root), "--symptom", symptom, "--json").output)
    assert len(data["steps"]) >= 5
    assert {step["basis"] for step in data["steps"]} <= {"read", "measured", "modelled",
                                                         "arithmetic"}  # fmt: skip
    assert invoke(doctor, "--root", str(root), "--symptom", symptom).exit_code == 0


def test_the_gravest_cause_of_low_throughput_comes_first(tmp_path: Path) -> None:
    changes = {f"{HWMON}/temp1_input": "80000", "/proc/loadavg": "99 9 9",
               f"{CARD}/current_link_speed": "8.0 GT/s PCIe"}  # fmt: skip
    root = write(machine("e150", changes), tmp_path)
    data = json.loads(
        invoke(doctor, "--root", str(root), "--symptom", "low-throughput", "--json").output
    )
    assert [step["question"][:16] for step in data["causes"]] == [
        "Is it throttled ", "Is the link Gen4", "Is the host busy"
    ]  # fmt: skip
    assert data["chip"] == "e150"


def test_the_guides_embedding_is_counted_in_whole_tiles_a_core(tmp_path: Path) -> None:
    root = write(host(), tmp_path)
    text = invoke(doctor, "--root", str(root), "--symptom", "memory-errors", "--chip", "n150",
                  "--tensor", "100000x512:float32").output  # fmt: skip
    # 3125 x 16 tiles over 64 cores: 782 pages of 4096 B, against 1 393 312 B usable.
    assert "3 203 072 B a core of 1 393 312 B usable" in text
    assert "195.31 MiB" in text


@pytest.mark.parametrize("tensor", ["", "10", "0x5:float32", "3x3:float99", "-1x4", "9x9x9"])
def test_a_wrong_tensor_is_a_usage_error(tensor: str) -> None:
    result = invoke(doctor, "--symptom", "memory-errors", "--tensor", tensor)
    assert isinstance(result.exception, UsageError)


def test_an_error_is_explained_from_the_command_line_and_from_stdin() -> None:
    known = invoke(doctor, "--error", "No Tenstorrent devices present.")
    assert known.exit_code == 0
    assert known.output.count("way ") == 3
    assert "way 3" in invoke(doctor, "--error", "-", text="No Tenstorrent devices present.").output
    assert invoke(doctor, "--error", "what is this").exit_code == 1
    assert isinstance(invoke(doctor, "--error", " ").exception, UsageError)


def test_separate_tasks_are_not_mixed() -> None:
    result = invoke(doctor, "--error", "x", "--symptom", "high-latency")
    assert isinstance(result.exception, UsageError)


def test_the_doctor_starts_without_torch_and_numpy() -> None:
    code = (
        "import sys, temper.cli\n"
        "try: temper.cli.main(['doctor'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.splitlines()[-1] == "[]"
    # Processor time, so that a busy machine does not fail the test.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_this_machine_is_examined_without_a_traceback() -> None:
    result = invoke(doctor, "-v", "--no-tt-smi")
    assert result.exit_code in (0, 1)
    assert "temper doctor" in result.output


def test_monitor_reads_every_value_in_its_unit(tmp_path: Path) -> None:
    [reading] = telemetry.read(DirectoryMachine(write(machine("p150"), tmp_path)))
    assert (reading.temperature_c, reading.temperature_limit_c) == (46.0, 90.0)
    assert (reading.power_w, reading.power_limit_w) == (38.0, 150.0)
    assert (reading.voltage_v, reading.current_a, reading.fan_rpm) == (0.81, 30.0, 1400.0)
    assert (reading.clock_mhz, reading.pcie_gen, reading.pcie_width) == (1350.0, 5, 16)
    assert reading.dram_bytes == 32 << 30
    assert reading.throttled == ""


def test_monitor_falls_back_to_tt_smi(tmp_path: Path) -> None:
    root = write(machine("n150", {f"{CARD}/hwmon/": None, f"{CARD}/tt_aiclk": None}), tmp_path)
    [reading] = telemetry.read(DirectoryMachine(root))
    assert (reading.source, reading.temperature_c, reading.clock_mhz) == ("tt-smi", 46.0, 1000.0)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({f"{HWMON}/temp1_input": "76000"}, "heat"),
     ({f"{HWMON}/power1_input": "160000000", f"{CARD}/tt_aiclk": "800"}, "power"),
     ({f"{CARD}/tt_aiclk": "500"}, "")],
)  # fmt: skip
def test_throttling_is_told_from_idling(changes: dict[str, str], kind: str, tmp_path: Path) -> None:
    root = write(machine("n150", changes), tmp_path)
    [reading] = telemetry.read(DirectoryMachine(root))
    assert reading.throttled == kind
    assert invoke(monitor, "--once", "--root", str(root)).exit_code == int(bool(kind))


def test_monitor_prints_text_json_and_csv(tmp_path: Path) -> None:
    root = str(write(machine("n150"), tmp_path / "tree"))
    assert "46 of 75 °C" in invoke(monitor, "--once", "--root", root).output
    [reading] = json.loads(invoke(monitor, "--json", "--root", root).output)
    assert reading["power_w"] == 38.0
    log = tmp_path / "log.csv"
    arguments = ("--csv", str(log), "--interval", "0.1", "--count", "2", "--root", root)
    assert invoke(monitor, *arguments).exit_code == 0
    assert invoke(monitor, *arguments).exit_code == 0
    rows = list(csv.DictReader(log.open()))
    assert len(rows) == 4
    assert float(rows[0]["temperature_c"]) == 46.0


def test_monitor_without_a_card_says_what_is_missing(tmp_path: Path) -> None:
    root = str(write(host(), tmp_path))
    assert isinstance(invoke(monitor, "--once", "--root", root).exception, TemperError)
    result = invoke(monitor, "--json", "--root", root)
    assert (json.loads(result.output), result.exit_code) == ([], 1)


def test_the_full_screen_shows_every_card_and_fits(tmp_path: Path) -> None:
    from rich.console import Console

    from temper.doctor.monitor_view import History, screen

    changes = {f"{HWMON}/temp1_input": "76000"}
    readings = telemetry.read(DirectoryMachine(write(machine("n150", changes), tmp_path)))
    history = History()
    for _ in range(100):
        history.add(readings)
    for width in (80, 120):
        console = Console(width=width, record=True, file=sys.stderr, force_terminal=False)
        with console.capture() as shown:
            console.print(screen(readings, history, 1.0, width))
        text = shown.get()
        assert "THROTTLED by heat" in text
        assert "Wormhole n150" in text
        assert max(len(line) for line in text.splitlines()) <= width


def test_a_recorder_samples_while_work_runs(tmp_path: Path) -> None:
    found = DirectoryMachine(write(machine("n150"), tmp_path))
    with telemetry.CardRecorder(found, interval_s=0.01) as recorder:
        import time

        time.sleep(0.1)
    [summary] = recorder.summary()
    assert summary["samples"] >= 2
    assert summary["temperature_c"] == {"min": 46.0, "mean": 46.0, "max": 46.0}
    assert summary["throttled_samples"] == 0
    recorder.save(tmp_path / "cards.csv")
    rows = list(csv.DictReader((tmp_path / "cards.csv").open()))
    assert len(rows) == summary["samples"]
    assert rows[0]["power_w"] == "38.0"


def test_a_recorder_without_a_card_costs_nothing(tmp_path: Path) -> None:
    with telemetry.CardRecorder(DirectoryMachine(tmp_path)) as recorder:
        pass
    assert recorder.readings == []
    assert recorder.summary() == []
    recorder.save(tmp_path / "cards.csv")
    assert not list(tmp_path.iterdir())


def test_a_live_machine_without_a_card_reads_nothing() -> None:
    live = LiveMachine()
    if live.listing("/dev/tenstorrent"):
        pytest.skip("this machine has a card")
    assert telemetry.read(live) == []


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_the_hugepages_script_changes_nothing_by_default(tmp_path: Path) -> None:
    done = script("4", "--root", str(tmp_path))
    assert done.returncode == 0
    assert "Nothing was changed" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["systemd", "cmdline"])
def test_the_hugepages_script_applies_and_undoes(way: str, tmp_path: Path) -> None:
    flags = ["--cmdline"] if way == "cmdline" else []
    assert script("6", "--apply", "--root", str(tmp_path), *flags).returncode == 0
    written = {p.name: p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert "pagesize=1G" in written["dev-hugepages\\x2d1G.mount"]
    if way == "systemd":
        assert (
            "echo 6 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
            in written["temper-hugepages.service"]
        )
    else:
        assert "hugepagesz=1G hugepages=6" in written["90-tenstorrent-hugepages.cfg"]
    assert script("--undo", "--apply", "--root", str(tmp_path)).returncode == 0
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_the_hugepages_script_counts_the_cards(tmp_path: Path) -> None:
    write(machine("n150"), tmp_path / "wh")
    write(machine("e75"), tmp_path / "gs")
    assert "Reserving 4 hugepages" in script("--root", str(tmp_path / "wh")).stdout
    assert "Reserving 1 hugepages" in script("--root", str(tmp_path / "gs")).stdout


def test_the_hugepages_script_keeps_a_mount_unit_of_others(tmp_path: Path) -> None:
    unit = tmp_path / "lib/systemd/system/dev-hugepages\\x2d1G.mount"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Mount]\n")
    assert "Keeping" in script("4", "--apply", "--root", str(tmp_path)).stdout
    assert not (tmp_path / "etc/systemd/system/dev-hugepages\\x2d1G.mount").exists()
    script("--undo", "--apply", "--root", str(tmp_path))
    assert unit.read_text() == "[Mount]\n"


@pytest.mark.parametrize(
    "arguments",
    [["abc"], ["0"], ["-3"], ["16G"], ["4", "5"], ["1.5"], ["99999999999"], ["64"], ["--nod"],
     ["4", "--node", "9"], ["4", "--node", "x"], ["4", "--node", "0", "--cmdline"], ["4", ""],
     ["$(touch x)"], ["4", "--root", "/no/such/place"]],
)  # fmt: skip
def test_the_hugepages_script_refuses_nonsense(arguments: list[str], tmp_path: Path) -> None:
    tree = host() | {"/proc/meminfo": "MemTotal: 66000000 kB"}
    root = write(tree, tmp_path)
    before = sorted(root.rglob("*"))
    done = script("--apply", "--root", str(root), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("setup_hugepages: ")
    assert sorted(root.rglob("*")) == before


def test_the_hugepages_script_refuses_a_processor_without_such_pages(tmp_path: Path) -> None:
    root = write({"/proc/cpuinfo": "flags\t: fpu sse2\n"}, tmp_path)
    done = script("4", "--root", str(root))
    assert done.returncode == 2
    assert "pdpe1gb" in done.stderr


_FAKE_TTNN = """
import time
bfloat16 = TILE_LAYOUT = None
def open_device(device_id): return object()
def close_device(device): pass
def zeros(shape, **options): return shape
def add(a, b): time.sleep(0.001); return a
def deallocate(tensor): pass
def synchronize_device(device): pass
"""


def test_the_cards_memory_is_timed_in_a_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from temper.doctor import card_stream

    (tmp_path / "ttnn.py").write_text(_FAKE_TTNN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rate, reason = card_stream.measured()
    # 402 653 184 B an addition of at least 1 ms each: at most 403 GB/s.
    assert reason == ""
    assert rate is not None
    assert 20 < rate <= 403
    (tmp_path / "ttnn.py").write_text("raise RuntimeError('TT_FATAL: no card')")
    assert card_stream.measured() == (None, "RuntimeError: TT_FATAL: no card")
    (tmp_path / "ttnn.py").write_text("import time; time.sleep(60)")
    rate, reason = card_stream.measured(time_limit_s=1.0)
    assert rate is None
    assert "may hang" in reason


@pytest.mark.parametrize("chip", ["e75", "n150", "p150"])
def test_the_modelled_stream_stays_below_the_memorys_peak(chip: str) -> None:
    from temper import chips
    from temper.doctor.card_stream import modelled

    stream = modelled(chips.get(chip))
    assert 0 < stream.low_gbps <= stream.gbps <= stream.high_gbps
    assert stream.high_gbps <= chips.get(chip).dram_peak_gbps


def test_json_has_the_fields_that_the_manual_promises(tmp_path: Path) -> None:
    found = json.loads(invoke(doctor, "--json", "--root", str(write(host(), tmp_path))).output)
    assert list(found) == ["machine", "cards", "ready", "counts", "findings"]
    assert set(found["counts"]) == {"problem", "warning", "note", "manual", "ok"}
    fields = ["check", "topic", "level", "seen", "expected", "why", "fix", "source", "card"]
    assert found["findings"]
    for finding in found["findings"]:
        assert list(finding) == fields
        assert all(isinstance(value, str) for value in finding.values())


def test_a_note_says_what_would_be_expected(tmp_path: Path) -> None:
    shown = " ".join(invoke(doctor, "--root", str(write(host(), tmp_path))).output.split())
    assert "0 pages of 1 GiB reserved" in shown
    assert "once a card is in: 1 for Grayskull, 4 for Wormhole, 4 for Blackhole" in shown
