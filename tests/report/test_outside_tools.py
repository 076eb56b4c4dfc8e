"""Proof by tools that we did not write: they open our files and find our totals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import samples
from tools import run_with

from temper.report.writers import write_run

PERF_REPORT = """
import sys
from tt_perf_report import perf_report
sys.argv = ["tt-perf-report", "--no-color", "--ignore-signposts", *sys.argv[1:]]
perf_report.main()
"""
VISUALIZER = """
import json, sys, types
from pathlib import Path
from ttnn_visualizer import csv_queries, utils
folder = Path(sys.argv[1])
assert utils.is_valid_performance_report_dir(folder)
instance = types.SimpleNamespace(performance_path=str(folder), remote_connection=None)
report = csv_queries.OpsPerformanceReportQueries.generate_report_strict(
    instance, hide_host_ops=False)
with csv_queries.DeviceLogProfilerQueries(instance) as log:
    zones = len(log.runner.df)
times = [float(row["device_time"] or 0) for row in report["report"]]
print(json.dumps({"rows": len(times), "us": sum(times), "zones": zones,
                  "signposts": len(report["signposts"])}))
"""
PERFETTO = """
import json, sys
from collections import Counter
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
names, tracks, open_slices, times = {}, {}, Counter(), Counter()
flows = {}
for packet in trace.packet:
    for part in (packet, packet.track_event, packet.track_descriptor, packet.interned_data):
        assert not len(UnknownFieldSet(part)), packet
kinds = Counter()
for packet in trace.packet:
    for entry in packet.interned_data.event_names:
        names[entry.iid] = entry.name
    if packet.HasField("track_descriptor"):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
    if packet.HasField("track_event"):
        event = packet.track_event
        assert event.track_uuid in tracks
        track = tracks[event.track_uuid]
        kinds[event.type] += 1
        if event.type == event.TYPE_SLICE_BEGIN:
            assert event.name_iid in names
            open_slices[track] += 1
            for flow in event.flow_ids:
                flows.setdefault(flow, []).append((packet.timestamp, track))
            times[track] -= packet.timestamp
        elif event.type == event.TYPE_SLICE_END:
            open_slices[track] -= 1
            times[track] += packet.timestamp
assert not any(open_slices.values())
chains = Counter(" ".join(track.split()[0] for _, track in sorted(f)) for f in flows.values())
print(json.dumps({"device_ns": times["device"], "kinds": dict(kinds), "flows": chains}))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("runs")
    chips = ("n150", "p150", "e75", "e150")
    return {chip: write_run(samples.run(chip=chip, host_op=True), base / chip) for chip in chips}


# 12 matmuls of 50 µs and 12 activations of 10 µs.
TOTAL_US = 12 * 50 + 12 * 10


@pytest.mark.parametrize(
    ("chip", "name"),
    [
        ("n150", "ops_perf_results.csv"),
        ("n150", "ops_perf_results_v2.csv"),
        ("p150", "ops_perf_results.csv"),
        ("p150", "ops_perf_results_v2.csv"),
        ("e75", "ops_perf_results.csv"),
        ("e150", "ops_perf_results_v2.csv"),
    ],
)
def test_tt_perf_report_finds_our_totals_without_a_warning(
    runs: dict[str, Path], chip: str, name: str
) -> None:
    arch = []
    if name == "ops_perf_results.csv" and chip == "p150":
        arch = ["--arch", "blackhole"]  # the old names do not say which chip it was
    printed = run_with("tt-perf-report", PERF_REPORT, str(runs[chip] / name), *arch)
    assert "Warning" not in printed
    assert "Performance Report" in printed
    assert "Matmul Optimization" in printed
    summary = next(line for line in printed.splitlines() if "device ops" in line)
    assert "24 device ops, 6 host ops" in summary
    assert re.search(rf"\b{TOTAL_US} μs", summary), summary
    if chip in ("n150", "p150"):
        expected = {"n150": "wormhole", "p150": "blackhole"}[chip]
        assert f"Architecture: {expected}" in printed


@pytest.mark.parametrize("chip", ["p150", "e150"])
def test_ttnn_visualizer_loads_the_folder(runs: dict[str, Path], chip: str) -> None:
    printed = run_with("ttnn-visualizer", VISUALIZER, str(runs[chip]))
    found = json.loads(printed.strip().splitlines()[-1])
    assert found["us"] == pytest.approx(TOTAL_US)
    assert found["rows"] == 31
    assert found["signposts"] == 1
    assert found["zones"] == 24 * 2 * 5 * 4


def test_perfettos_own_schema_reads_the_trace(runs: dict[str, Path]) -> None:
    printed = run_with("perfetto", PERFETTO, str(runs["n150"] / "trace.perfetto-trace"))
    read = json.loads(printed)
    assert read["device_ns"] == TOTAL_US * 1000
    # From each of six calls to its four ops on the device.
    assert read["flows"] == {"calls device device device device": 6}
