"""Real profiles of three kinds of network at every level, opened by the tools of the field."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from networks import profile_networks
from test_outside_tools import PERFETTO
from tools import run_with

from temper.frontdoor.session import Session
from temper.run.records import ProgramRecord

PERF_REPORT = """
import contextlib, io, json, re, sys
from tt_perf_report import perf_report
found = {}
for path in sys.argv[1:]:
    sys.argv = ["tt-perf-report", "--no-color", "--ignore-signposts", path]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        perf_report.main()
    text = printed.getvalue()
    line = next(line for line in text.splitlines() if "device ops" in line)
    found[path] = {
        "ops": int(re.search(r"([\\d,]+) device ops", line)[1].replace(",", "")),
        "us": int(re.search(r"([\\d,]+) μs", line)[1].replace(",", "")),
        # Its own list of categories lacks some of ttnn's ops, on a card as well as here.
        "warned": [x for x in text.splitlines() if "Warning" in x and "Unclassified" not in x],
    }
print(json.dumps(found))
"""
VISUALIZER = """
import json, os, sys
os.environ["APP_DATA_DIRECTORY"] = sys.argv[1]
from ttnn_visualizer.app import create_app
client = create_app({"SERVER_MODE": False}).test_client()
found = {}
for folder in sys.argv[2:]:
    opened = client.post("/api/instance/local-paths", json={"performance_path": folder})
    assert opened.status_code == 200, opened.data
    query = {"instanceId": opened.get_json()["instance_id"], "hide_host_ops": "false"}
    report = client.get("/api/performance/perf-results/report", query_string=query)
    assert report.status_code == 200, (folder, report.data)
    rows = report.get_json()["report"]
    found[folder] = sum(float(row["device_time"] or 0) for row in rows)
print(json.dumps(found))
"""

MEMORY = """
import json, os, sys
os.environ["APP_DATA_DIRECTORY"] = sys.argv[1]
from ttnn_visualizer.app import create_app
client = create_app({"SERVER_MODE": False}).test_client()
found = {}
for folder in sys.argv[2:]:
    opened = client.post("/api/instance/local-paths", json={"profiler_path": folder})
    assert opened.status_code == 200, opened.data
    query = {"instanceId": opened.get_json()["instance_id"]}
    def get(view):
        answer = client.get("/api/" + view, query_string=query)
        assert answer.status_code == 200, (folder, view, answer.data)
        return answer.get_json()
    operations = get("operations")
    first = get(f"operations/{operations[-1]['id']}")
    found[folder] = {
        "operations": len(operations), "tensors": len(get("tensors")),
        "devices": get("devices"), "config": get("config"), "cluster": get("cluster-descriptor"),
        "mesh": get("mesh-descriptor")["chips"],
        "layouts": sorted({b["buffer_layout"] for o in get("operation-buffers")
                           for b in o["buffers"]}),
        "device_ops": [
            n["params"]["name"] for o in operations for n in o["device_operations"]
            if n["node_type"] == "function_start"
        ],
        "buffers": [
            [b["address"], b["size"], b["buffer_type"]]
            for b in get("operation-buffers")[-1]["buffers"]
        ],
        "pages": [
            [p["operation_id"], p["address"], p["core_x"], p["core_y"], p["bank_id"],
             p["chunk_address"], p["chunk_size"], p["num_pages"] * p["page_size"]]
            for p in get("buffer-pages")
        ],
        "circular": [
            [int(n["params"]["size"]), int(n["params"]["address"])]
            for n in first["device_operations"] if n["node_type"] == "circular_buffer_allocate"
        ],
        "frames": [o["stack_trace"] for o in operations],
        "linked": sum(bool(o["inputs"]) for o in operations),
        "stacks": sum(bool(o["stack_trace"]) for o in operations),
        "graph": len(first["device_operations"]),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Session]:
    base = tmp_path_factory.mktemp("networks")
    return {base / name: session for name, session in profile_networks(base).items()}


def device_us(session: Session) -> float:
    """Kernel time of every executed op, rounded up to whole ns as the files have it."""
    return (
        sum(
            max(1, round(op.cost.kernel_ns)) * op.count
            for op in session.run.op_records()
            if not op.info.is_host
        )
        / 1e3
    )


@pytest.mark.parametrize("name", ["ops_perf_results.csv", "ops_perf_results_v2.csv"])
def test_tt_perf_report_reads_every_network_at_every_level(
    profiles: dict[Path, Session], name: str
) -> None:
    paths = [str(folder / name) for folder in profiles]
    found = json.loads(run_with("tt-perf-report", PERF_REPORT, *paths).splitlines()[-1])
    for folder, session in profiles.items():
        told = found[str(folder / name)]
        assert not told["warned"], folder.name
        assert told["us"] == pytest.approx(device_us(session), abs=1.0), folder.name


def test_the_visualizers_server_shows_every_network_at_every_level(
    profiles: dict[Path, Session], tmp_path: Path
) -> None:
    folders = [str(folder) for folder in profiles]
    printed = run_with("ttnn-visualizer", VISUALIZER, str(tmp_path), *folders)
    found = json.loads(printed.strip().splitlines()[-1])
    for folder, session in profiles.items():
        assert found[str(folder)] == pytest.approx(device_us(session), abs=0.5), folder.name


def test_the_visualizers_memory_views_are_filled(
    profiles: dict[Path, Session], tmp_path: Path
) -> None:
    folders = {str(folder / "memory_report"): s for folder, s in profiles.items()}
    printed = run_with("ttnn-visualizer", MEMORY, str(tmp_path), *folders)
    found = json.loads(printed.strip().splitlines()[-1])
    for folder, session in folders.items():
        seen, [record] = found[folder], list(session._warm.called)
        assert seen["operations"] == len(record.program.ops)
        assert seen["tensors"] == len(record.program.values)
        assert seen["linked"] > 0.8 * seen["operations"]
        assert seen["stacks"] > 0.8 * seen["operations"]
        # A view that launches nothing has no device op in its graph.
        runs = len(record.program.ops) - 1 in record.launched
        assert seen["graph"] >= 4 if runs else seen["graph"] == 2
        assert seen["cluster"]["arch"] == {"0": "wormhole_b0"}
        # The topology view draws chips that have an id, at the places of the mesh.
        assert seen["cluster"]["chip_unique_ids"].keys() == seen["mesh"].keys() == {"0"}
        # TensorMemoryLayout of tt-metal: the buffers view breaks at a number without a name.
        kinds = {"interleaved": 0, "height": 2, "width": 3, "block": 4}
        used = {spec.memory.sharding for spec in record.program.values.values()}
        assert set(seen["layouts"]) <= {kinds[kind] for kind in used} | {0}
        # Memory and performance are linked where the device ops begin as the CSV's rows do.
        with (Path(folder).parent / "ops_perf_results.csv").open() as file:
            codes = [r["OP CODE"] for r in csv.DictReader(file) if r["OP TYPE"] == "tt_dnn_device"]
        assert seen["device_ops"] == codes[: len(seen["device_ops"])]
        # As `temper memory` says of the last op: bytes of a bank, DRAM and SRAM.
        step = record.memory.steps[-1]
        assert sum(size for size, _ in seen["circular"]) == step.circular_bytes
        check_pages(seen["pages"], record)
        # Each frame with its line of code; a model of another package may be called from there.
        frames = [trace for trace in seen["frames"] if trace]
        assert all(re.match(r'  File "[^"]+", line \d+, in .+\n    \S', trace) for trace in frames)
        sizes = {kind: sum(b[1] for b in seen["buffers"] if b[2] == kind) for kind in (0, 1)}
        assert sizes == {0: step.dram_bytes, 1: step.sram_tensor_bytes}


def check_pages(pages: list[list[int]], record: ProgramRecord) -> None:
    """Pages lie on cores of the chip, one after the other, within their buffer."""
    x, y = record.chip.grid
    stays = {(s.address, s.bank_bytes) for s in record.memory.timeline.stays if s.buffer == "sram"}
    sizes = {address: max(size for a, size in stays if a == address) for address, _ in stays}
    assert bool(pages) == bool(stays)
    taken = set()
    for operation, address, core_x, core_y, bank, at, size, held in pages:
        assert 0 <= core_x < x
        assert 0 <= core_y < y
        assert address <= at
        assert at + size <= address + sizes[address]
        assert size == held
        taken.add((operation, bank, at))
    assert len(taken) == len(pages)


def test_perfettos_schema_reads_every_network(profiles: dict[Path, Session]) -> None:
    for folder, session in profiles.items():
        path = str(folder / "trace.perfetto-trace")
        read = json.loads(run_with("perfetto", PERFETTO, path))
        # Begin and end of each op are rounded to whole ns.
        ops = session.run.op_count
        assert read["device_ns"] / 1e3 == pytest.approx(device_us(session), abs=2e-3 * ops)
        calls = sum(len(process.calls) for process in session.run.processes)
        assert sum(read["flows"].values()) == calls, folder.name


def test_folded_stacks_and_the_chrome_trace_hold_the_device_time(
    profiles: dict[Path, Session],
) -> None:
    for folder, session in profiles.items():
        device = [op for op in session._warm.op_records() if not op.info.is_host]
        total = sum(op.total_ns for op in device)
        lines = (folder / "stacks.folded").read_text().splitlines()
        assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == pytest.approx(total, rel=1e-3)
        trace = json.loads((folder / "trace.json").read_text())["traceEvents"]
        spans = [event for event in trace if event.get("cat") == "device"]
        assert sum(s["dur"] for s in spans) * 1e3 == pytest.approx(
            sum(op.cost.kernel_ns for op in device)
        )
