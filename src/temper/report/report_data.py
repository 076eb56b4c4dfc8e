"""What the HTML report shows, as plain JSON: aggregated and cut to what a browser can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from temper import chips
from temper._version import __version__
from temper.chips import FIDELITY_PHASES, Chip
from temper.program.memory_plan import POOLS, MemoryPlan
from temper.record.events import Kind
from temper.report.advice import Advice
from temper.report.summary import Summary, calls_text, summarise
from temper.run.expand import blocks
from temper.run.opening import Profile
from temper.run.records import Run
from temper.run.table import OpTable
from temper.units import bytes_text, rate_text, time_text

_MAX_SEGMENTS = 30_000
_MAX_ROWS = 20_000
_MAX_HOLDERS = 200
_MAX_POINTS = 3_000
_SMALL = 0.02  # of the pool's peak: thinner than a line of the picture


def report_data(profile: Profile, advice: Sequence[Advice]) -> dict[str, Any]:
    summary = summarise(profile)
    table, rows = _table_for_page(profile)
    chip = profile.run.chip if profile.run and profile.run.chip else _chip(profile.table)
    return {
        "title": summary.name,
        "version": __version__,
        "chip": chip.title,
        "word": summary.word,
        "command": str(profile.run.meta.get("command", "")) if profile.run else "",
        "headline": _headline(summary),
        "split": [
            {"name": name, "ns": value}
            for name, value in (
                ("device", summary.split.device), ("gaps", summary.split.gap),
                ("host ops", summary.split.host_ops), ("transfer", summary.split.transfer),
                ("waiting", summary.split.other),
            )
            if value > 0
        ],
        "bounds": summary.bounds,
        "ops": rows,
        "tree": _tree(table),
        "roof": _roof(chip),
        "timelines": _timelines(profile, table),
        "memory": _memory(profile.run),
        "advice": [_advice(item) for item in advice],
        "notes": list(summary.notes),
    }  # fmt: skip


def _headline(summary: Summary) -> list[list[str]]:
    split = summary.split
    band = f"{time_text(summary.low_ns)} to {time_text(summary.high_ns)}"
    calls = f" of {calls_text(summary)}" if summary.calls else ""
    items = [
        [
            "device time",
            time_text(split.device),
            f"{band}, {summary.word}" if summary.modelled else summary.word,
        ],
        ["ops", f"{summary.ops:,}", f"on the device{calls}"],
    ]
    if summary.call_ns:
        rate = f"{1e9 / summary.call_ns:,.0f} calls/s"
        kind = {"warm": "a warm call", "first": "a first call"}.get(summary.chosen, "a call")
        items.append([kind, time_text(summary.call_ns), f"{summary.word}, {rate}"])
    items.append(["gaps", time_text(split.gap), "device idle between ops"])
    items.append(["rate", rate_text(summary.tflops), f"{summary.gbps:.3g} GB/s of DRAM"])
    if summary.host_ops:
        items.append(["host ops", f"{summary.host_ops}", time_text(split.host_ops)])
    for high in summary.memory:
        if high.size_bytes:
            items.append(
                [
                    f"{high.pool.upper()} high water",
                    bytes_text(high.size_bytes),
                    "a core, computed" if high.pool == "sram" else "computed",
                ]
            )
    if summary.wall_ns:
        items.append(["wall time", time_text(summary.wall_ns), "measured on this host"])
    for work in summary.once:
        where = f"once, on the {work.place}, {work.basis}"
        items.append([work.name, time_text(work.time_ns), where])
    return items


def _table_for_page(profile: Profile) -> tuple[OpTable, dict[str, list[Any]]]:
    """A run has one row an op already; a card's CSV is merged by module, kind and shape."""
    table = profile.table if profile.run else _merged(profile.table)
    # Rows keep their order, which the timeline refers to; only the tail is cut.
    cut = table.select(np.arange(min(table.rows, _MAX_ROWS)))
    texts = (
        "code",
        "type",
        "module",
        "location",
        "fidelity",
        "bound",
        "shape",
        "formats",
        "memory",
    )
    columns: dict[str, list[Any]] = {
        name: [cut.text(name)[row] for row in range(cut.rows)] for name in texts
    }
    for name in (
        "count", "kernel_ns", "low_ns", "high_ns", "gap_ns", "cores", "flops", "dram_bytes",
        "pm_ideal_ns",
    ):  # fmt: skip
        values = cut.count if name == "count" else cut.number(name)
        columns[name] = [_number(value) for value in values]
    columns["neighbour"] = _neighbours(profile.run, cut.rows)
    return cut, columns


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else round(float(value), 2)


def _neighbours(run: Run | None, rows: int) -> list[str]:
    if run is None:
        return [""] * rows
    found = []
    for process in run.processes:
        handles, first = np.unique(process.calls["ref"], return_index=True)
        for handle in handles[np.argsort(first)]:
            for cost in process.programs[int(handle)].costs:
                text = cost.neighbour + (" (extrapolated)" if cost.extrapolated else "")
                found.append(text)
    return (found + [""] * rows)[:rows]


def _merged(table: OpTable) -> OpTable:
    kept = table.select(~table.text("type").equals("signpost"))
    names = ("module", "code", "shape", "formats", "type")
    codes = np.zeros(kept.rows, dtype=np.int64)
    for name in names:
        column = kept.text(name)
        _, codes = np.unique(codes * len(column.values) + column.codes, return_inverse=True)
        codes = codes.reshape(-1)
    _, first = np.unique(codes, return_index=True)
    merged = kept.select(first)
    counts = np.bincount(codes)
    numbers = dict(merged.numbers)
    for name in ("kernel_ns", "gap_ns", "host_ns"):
        values = np.nan_to_num(kept.number(name))
        numbers[name] = np.bincount(codes, weights=values) / counts
    numbers["count"] = counts.astype(np.float64)
    order = np.argsort(-numbers["kernel_ns"] * counts, kind="stable")
    full = OpTable(merged.rows, numbers, merged.texts, table.basis, table.arch, table.notes)
    return full.select(order)


def _chip(table: OpTable) -> Chip:
    return chips.get(table.arch or chips.DEFAULT_CHIP)


def _roof(chip: Chip) -> dict[str, Any]:
    return {
        "peaks": {name: chip.peak_tflops(name) for name in FIDELITY_PHASES},
        "dram": chip.dram_peak_gbps,
        "limit": _MAX_POINTS,
    }


def _tree(table: OpTable) -> dict[str, Any]:
    """Time by module path: {n: name, v: ns, c: children}."""
    root: dict[str, Any] = {"n": "model", "v": 0.0, "c": {}}
    module, code = table.text("module"), table.text("code")
    times = np.nan_to_num(table.number("kernel_ns")) * table.count
    for row in range(table.rows):
        if not times[row]:
            continue
        path = [part for part in module[row].replace("/", ".").split(".") if part]
        node = root
        node["v"] += float(times[row])
        for part in [*path[:12], code[row].removesuffix("DeviceOperation")]:
            node = node["c"].setdefault(part, {"n": part, "v": 0.0, "c": {}})
            node["v"] += float(times[row])
    return _plain_tree(root)


def _plain_tree(node: dict[str, Any]) -> dict[str, Any]:
    children = sorted(node["c"].values(), key=lambda child: -child["v"])[:200]
    return {
        "n": node["n"],
        "v": round(node["v"]),
        "c": [_plain_tree(child) for child in children],
    }


def _timelines(profile: Profile, table: OpTable) -> list[dict[str, Any]]:
    if profile.run is None:
        return [_card_timeline(profile.table)]
    return [_device_timeline(profile.run), _host_timeline(profile.whole or profile.run)]


def _lane(name: str) -> dict[str, Any]:
    return {"name": name, "s": [], "d": [], "o": [], "t": []}


def _add(lane: dict[str, Any], start: float, end: float, op: int = -1, text: str = "") -> None:
    lane["s"].append(round(start))
    lane["d"].append(max(0, round(end) - round(start)))
    lane["o"].append(op)
    lane["t"].append(text)


def _device_timeline(run: Run) -> dict[str, Any]:
    lanes = []
    budget = _MAX_SEGMENTS // max(1, len(run.processes))
    shown = total = offset = 0
    for process in run.processes:
        several = f" (process {process.pid})" if len(run.processes) > 1 else ""
        device, link = _lane(f"device{several}"), _lane(f"link{several}")
        handles, first = np.unique(process.calls["ref"], return_index=True)
        rows = {}
        for handle in handles[np.argsort(first)]:
            rows[int(handle)] = offset
            offset += len(process.programs[int(handle)].ops)
        for block in blocks(process, max_ops=budget):
            times = block.record.schedule
            base = rows[block.record.handle]
            for call in range(len(block.calls)):
                begin = float(block.call_start_ns[call])
                _add(link, begin + times.in_start_ns, begin + times.in_end_ns, -1, "inputs")
                _add(link, begin + times.out_start_ns, begin + times.out_end_ns, -1, "outputs")
                for index in range(len(block.record.ops)):
                    _add(
                        device, block.start_ns[call, index], block.end_ns[call, index], base + index
                    )
        shown += len(device["s"])
        total += process.op_count
        lanes += [device, link]
    note = f"first {shown:,} of {total:,} ops" if shown < total else ""
    return {"name": f"device, {run.basis} clock", "lanes": lanes, "note": note, "marks": []}


def _host_timeline(run: Run) -> dict[str, Any]:
    lanes, marks = [], []
    base = min((int(p.events["start_ns"].min()) for p in run.processes if len(p.events)), default=0)
    budget = _MAX_SEGMENTS // max(1, len(run.processes))
    cut = False
    for process in run.processes:
        name = f"process {process.pid}"
        calls, spans = _lane(f"{name}: calls"), _lane(f"{name}: spans")
        cut |= len(process.calls) > budget
        for event in process.calls[:budget]:
            text = process.programs[int(event["ref"])].program.name
            _add(calls, event["start_ns"] - base, event["end_ns"] - base, -1, text)
        for event in process.of_kind(Kind.SPAN)[:budget]:
            text = process.name(event["ref"])
            _add(spans, event["start_ns"] - base, event["end_ns"] - base, -1, text)
        for event in process.of_kind(Kind.MARK)[:1000]:
            marks.append([int(event["start_ns"]) - base, process.name(event["ref"])])
        lanes += [calls, spans]
    note = f"first {budget:,} calls of each process" if cut else ""
    return {"name": "host, measured wall clock", "lanes": lanes, "note": note, "marks": marks}


def _card_timeline(table: OpTable) -> dict[str, Any]:
    """Gaps and kernels one after the other, in the order of the file."""
    device = table.select(table.is_device)
    gap = np.nan_to_num(device.number("gap_ns"))
    kernel = np.nan_to_num(device.number("kernel_ns"))
    ends = np.cumsum(gap + kernel)
    shown = min(device.rows, _MAX_SEGMENTS)
    lane = _lane("device")
    code, bound = device.text("code"), device.text("bound")
    for row in range(shown):
        _add(lane, ends[row] - kernel[row], ends[row], -1, code[row])
    lane["b"] = [bound[row] for row in range(shown)]
    note = f"first {shown:,} of {device.rows:,} ops" if shown < device.rows else ""
    return {"name": f"device, {table.basis}", "lanes": [lane], "note": note, "marks": []}


def _memory(run: Run | None) -> list[dict[str, Any]]:
    """The pools over one call of the program that fills them most."""
    records = [record for record in run.called if record.program.ops] if run else []
    pools = []
    for pool in reversed(POOLS):
        fullest = max(records, key=lambda r, p=pool: max(r.memory.used(p)), default=None)  # type: ignore[misc]
        if fullest is None or not max(fullest.memory.used(pool)):
            continue
        plan = fullest.memory
        pools.append(
            {
                "pool": "SRAM of one core" if pool == "sram" else "DRAM",
                "program": fullest.program.name,
                "capacity": plan.capacity(pool),
                "used": plan.used(pool),
                "ops": [info.name for info in fullest.infos],
                "holders": _holders(plan, pool),
            }
        )
    return pools


def _holders(plan: MemoryPlan, pool: str) -> list[list[Any]]:
    """Name, module, bytes, first and last op; small ones of equal life are put together."""
    large: list[list[Any]] = []
    small: dict[tuple[int, int], list[int]] = {}
    peak = max(plan.used(pool))
    for held in plan.holdings:
        if held.pool != pool:
            continue
        if held.size_bytes >= _SMALL * peak:
            large.append([held.name, held.module, held.size_bytes, held.first, held.last])
        else:
            group = small.setdefault((held.first, held.last), [0, 0])
            group[0] += 1
            group[1] += held.size_bytes
    large += [
        [f"{count} small tensors", f"{count} small tensors", size, first, last]
        for (first, last), (count, size) in small.items()
    ]
    return sorted(large, key=lambda h: -h[2] * (h[4] - h[3] + 1))[:_MAX_HOLDERS]


def _advice(item: Advice) -> dict[str, Any]:
    return {
        "title": item.title,
        "why": item.why,
        "paste": item.paste,
        "accuracy": item.accuracy,
        "now": time_text(item.now_ns),
        "then": time_text(item.then_ns),
        "band": f"{time_text(item.low_ns)} to {time_text(item.high_ns)}",
        "share": item.share,
        "basis": item.basis,
    }
