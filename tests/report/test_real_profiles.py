"""Real profiles of three kinds of network at every level, opened by the tools of the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from networks import profile_networks
from tools import run_with

from temper.frontdoor.session import Session

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
