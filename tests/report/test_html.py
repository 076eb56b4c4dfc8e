"""The HTML report: self-contained, hostile names harmless, and alive in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import samples

from temper.program import Source
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder
from temper.report.html import write_html
from temper.report.writers import write_run
from temper.run.logs import run_from_logs
from temper.run.opening import Profile, open_profile
from temper.run.records import Run

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>{{script}}"


def hostile_run() -> Run:
    program = samples.mlp()
    source = Source(HOSTILE, f"/home/{HOSTILE}.py", 7)
    program = program.replace(
        name=HOSTILE, ops=tuple(replace(op, source=source) for op in program.ops)
    )
    log = ProcessLog()
    recorder = Recorder(log)
    handle = recorder.begin_program(program, samples.cost(program))
    recorder.record_call(handle, 10, 20)
    recorder.mark(HOSTILE)
    recorder.flush()
    return run_from_logs([log], command=HOSTILE)


def test_a_report_needs_no_network(tmp_path: Path) -> None:
    write_html(samples.run(), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert not re.search(r"""(src|href)=["']?https?:""", text)
    assert "default-src 'none'" in text
    assert "@import" not in text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    write_html(hostile_run(), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert text.count("<script") == 2
    assert "<img" not in text
    assert "owned'</script>" not in text


def test_the_page_says_whose_times_it_shows(tmp_path: Path) -> None:
    run = samples.run()
    write_run(run, tmp_path / "run")
    data = page_data(tmp_path / "run" / "report.html")
    assert data["word"] == "modelled"
    # One replay: 2 x (50 + 10) µs of ops, 3 gaps of 0.7 µs, 30 µs over the link.
    assert data["headline"][0] == ["a warm call", "152 µs", "modelled, 6,575 calls/s"]
    assert data["headline"][1] == ["device time", "120 µs", "108 µs to 132 µs, modelled"]
    assert data["scope"].startswith("All figures are of one warm call; 3 were recorded")
    names = [timeline["name"] for timeline in data["timelines"]]
    assert names == ["device, modelled clock", "host, measured wall clock"]


def page_data(path: Path) -> dict[str, object]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    data: dict[str, object] = json.loads(found.group(1))
    return data


# What is done to the page; each leaves what it saw in an attribute.
PROBE = "page_probe.js"
LARGE = "large_page_probe.js"
CATCH = "<script>window.failures=[];window.onerror=(m)=>window.failures.push(String(m));</script>"


def in_browser(path: Path, width: int, tmp_path: Path, probe: str = PROBE) -> dict[str, object]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium here")
    text = path.read_text()
    script = (Path(__file__).parent / probe).read_text()
    # The probe must come after the page's scripts and may use what they define.
    probed = tmp_path / "probed.html"
    probed.write_text(
        text.replace("<body>", f"<body>{CATCH}", 1).replace(
            "</body>", f"<script>{script}</script></body>"
        )
    )
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1200",
            # Under a budget of virtual time nothing takes any.
            *([] if probe == LARGE else ["--virtual-time-budget=3000"]),
            "--dump-dom", probed.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stderr[-1500:]
    seen: dict[str, object] = json.loads(html.unescape(found.group(1)))
    return seen


@pytest.mark.parametrize("width", [1280, 390])
def test_sort_search_zoom_and_click_work_in_a_browser(tmp_path: Path, width: int) -> None:
    write_html(samples.run(host_op=True), tmp_path / "r.html")
    seen = in_browser(tmp_path / "r.html", width, tmp_path)
    assert seen["errors"] == []
    assert seen["rows"] == 5  # of the warm calls
    assert seen["first"] == "layers.0  Matmul"
    assert seen["ascending"] != seen["first"]
    assert seen["byName"] == "activations.0  Unary"
    assert seen["found"] == ["activations.0  Unary", "activations.1  Unary"]
    assert seen["none"] == 0
    assert seen["zoomed"] == pytest.approx(0.25)
    assert seen["wheeled"] == pytest.approx(0.2)
    assert seen["fit"] == 1
    assert seen["clicked"] == "layers.0  Matmul"
    assert seen["faint"] == 3  # both matmuls and the op of the host
    dim, bright = seen["shades"]  # type: ignore[misc]
    assert dim < 100
    assert bright == 255
    assert "45 µs to 55 µs" in str(seen["detail"]) or "9 µs to 11 µs" in str(seen["detail"])
    boxes, path = seen["icicle"]  # type: ignore[misc]
    assert boxes > 5
    assert "layers" in path or "activations" in path
    assert seen["clock"] == "host, measured wall clock"
    assert seen["theme"] in ("dark", "light")
    assert seen["dots"] == 2
    # The graph: ends, modules and their ops; folded, opened, and from view to view.
    assert seen["folded"] == 7
    assert seen["foldedModule"] == 0  # a module with one op is that op
    assert [text.split(" ")[0] for text in seen["opened"]][:2] == ["inputs", "0"]  # type: ignore[attr-defined]
    assert seen["edges"] == [6, 3]  # a chain of five ops; up, to the host's op, and back
    large, small = seen["areas"]  # type: ignore[misc]
    assert large > 1.5 * small  # 50 µs and 10 µs
    assert seen["colours"] == ["var(--compute)", "var(--dram)"]  # results in SRAM and in DRAM
    assert seen["fromGraph"] == "layers.1  Matmul"
    assert seen["toTimeline"] == [True, 8]
    assert seen["toTable"] == seen["toGraph"] == "2"
    assert seen["fromMemory"] == "activations.0  Unary"
    assert seen["toMemory"] == 2
    assert seen["ticks"] == ["1.000102 ms", "1.000104 ms"]
    assert "reached" in seen["heads"]  # type: ignore[operator]
    assert "runs" in seen["heads"]  # type: ignore[operator]
    assert seen["pools"] == 2
    assert seen["wide"] == 0, "the page must not scroll sideways"


def nested(blocks: int, layers: int) -> Run:
    """Two ops a layer in modules within modules, each layer reading two that came before."""
    program = samples.mlp(layers=blocks * layers)
    ops = tuple(
        replace(op, source=Source(f"blocks.{i // 2 // layers}.layers.{i // 2 % layers}.{op.kind}"))
        for i, op in enumerate(program.ops)
    )
    log = ProcessLog()
    recorder = Recorder(log)
    program = program.replace(ops=ops)
    recorder.record_call(recorder.begin_program(program, samples.cost(program)), 10, 20)
    recorder.flush()
    return run_from_logs([log])


def test_a_graph_of_two_thousand_ops_is_quick(tmp_path: Path) -> None:
    write_html(nested(20, 50), tmp_path / "r.html", advice=())
    seen = in_browser(tmp_path / "r.html", 1280, tmp_path, LARGE)
    assert seen["errors"] == []
    assert seen["boxes"] == 2000 + 2  # and the call's ends
    assert seen["bright"] == 22 + 2  # layers 3 and 30 to 39 of one block
    assert seen["folded"] == 1 + 2
    assert seen["shown"] == 19 + 49 + 2 + 2  # the op's block and layer stand open
    # Half a second on a quiet core; picking and searching lay nothing out again.
    assert max(seen[act] for act in ("open", "search", "fold", "pick")) < 5_000, seen  # type: ignore[type-var]


def test_a_cards_csv_becomes_a_page_too(tmp_path: Path) -> None:
    write_run(samples.run(host_op=True), tmp_path / "run")
    profile = open_profile(tmp_path / "run" / "ops_perf_results.csv")
    write_html(Profile("card", profile.table), tmp_path / "r.html")
    data = page_data(tmp_path / "r.html")
    assert len(data["ops"]["code"]) == 5  # type: ignore[index]


def test_hostile_names_do_nothing_in_a_browser(tmp_path: Path) -> None:
    write_html(hostile_run(), tmp_path / "r.html")
    browser_seen = in_browser(tmp_path / "r.html", 1280, tmp_path)
    assert browser_seen["title"] != "owned"
    assert HOSTILE.split("{{")[0] in str(browser_seen["first"])
