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
    assert data["headline"][0][1:] == ["360 µs", "324 µs to 396 µs, modelled"]  # the replays alone
    names = [timeline["name"] for timeline in data["timelines"]]
    assert names == ["device, modelled clock", "host, measured wall clock"]


def page_data(path: Path) -> dict[str, object]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    data: dict[str, object] = json.loads(found.group(1))
    return data


# Does what a person would do, and leaves what it saw in an attribute.
PROBE = """
<script>
window.addEventListener("load", () => {
  const seen = {errors: window.failures || []};
  const first = () => byId("ops").tBodies[0].rows[0].cells[0].textContent;
  const heads = [...byId("ops").querySelectorAll("th button")];
  seen.rows = byId("ops").tBodies[0].rows.length;
  seen.first = first();
  heads.find((b) => b.textContent === "total").click();
  seen.ascending = first();
  heads.find((b) => b.textContent === "op").click();
  seen.byName = first();
  byId("search").value = "activations sfpu";
  byId("search").dispatchEvent(new Event("input"));
  seen.found = [...byId("ops").tBodies[0].rows].map((r) => r.cells[0].textContent);
  byId("search").value = "nothing like this";
  byId("search").dispatchEvent(new Event("input"));
  seen.none = byId("ops").tBodies[0].rows.length;
  byId("search").value = "";
  byId("search").dispatchEvent(new Event("input"));
  const span = () => line.to - line.from;
  const whole = span();
  byId("zoom-in").click(); byId("zoom-in").click();
  seen.zoomed = span() / whole;
  const turn = {ctrlKey: true, deltaY: -1, clientX: 50, clientY: 300, cancelable: true};
  byId("timeline").dispatchEvent(new WheelEvent("wheel", turn));
  seen.wheeled = span() / whole;
  byId("zoom-fit").click();
  seen.fit = span() / whole;
  const box = byId("timeline").getBoundingClientRect(), lane = currentLine().lanes[0];
  const middle = (lane.s[0] + lane.d[0] / 2) / line.to;
  const at = {clientX: box.left + middle * box.width, clientY: box.top + 36};
  byId("timeline").dispatchEvent(new MouseEvent("click", at));
  seen.clicked = byId("detail").open && byId("detail-body").querySelector("h2").textContent;
  byId("detail").close();
  byId("ops").tBodies[0].rows[0].click();
  seen.detail = byId("detail-body").textContent;
  byId("detail").close();
  const boxes = byId("icicle").querySelectorAll("rect");
  seen.icicle = [boxes.length];
  boxes[1].dispatchEvent(new MouseEvent("click", {bubbles: true}));
  seen.icicle.push(byId("path").textContent);
  byId("clocks").querySelectorAll("button")[1].click();
  seen.clock = currentLine().name;
  byId("theme").click();
  seen.theme = document.documentElement.dataset.theme;
  seen.dots = byId("roofline").querySelectorAll("circle").length;
  seen.pools = byId("memory").querySelectorAll("svg").length;
  seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.title = document.title;
  document.body.setAttribute("data-seen", JSON.stringify(seen));
});
</script>
"""
CATCH = "<script>window.failures=[];window.onerror=(m)=>window.failures.push(String(m));</script>"


def in_browser(path: Path, width: int, tmp_path: Path) -> dict[str, object]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium here")
    text = path.read_text()
    # The probe must come after the page's scripts and may use what they define.
    probed = tmp_path / "probed.html"
    probed.write_text(
        text.replace("<body>", f"<body>{CATCH}", 1).replace("</body>", f"{PROBE}</body>")
    )
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1200",
            "--virtual-time-budget=3000", "--dump-dom", probed.as_uri(),
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
    assert "45 µs to 55 µs" in str(seen["detail"]) or "9 µs to 11 µs" in str(seen["detail"])
    boxes, path = seen["icicle"]  # type: ignore[misc]
    assert boxes > 5
    assert "layers" in path or "activations" in path
    assert seen["clock"] == "host, measured wall clock"
    assert seen["theme"] in ("dark", "light")
    assert seen["dots"] == 2
    assert seen["pools"] == 2
    assert seen["wide"] == 0, "the page must not scroll sideways"


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
