"""What the HTML report shows, as plain JSON: aggregated and cut to what a browser can hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from temper import chips
from temper._version import __version__
from temper.chips import FIDELITY_PHASES, Chip
from temper.program.memory_plan import POOLS, MemoryPlan
from temper.report.advice import Advice
from temper.report.graph_data import places, program_graphs
from temper.report.summary import Summary, calls_text, summarise
from temper.report.timeline_data import timelines
from temper.run.calls import ALL
from temper.run.opening import Profile
from temper.run.records import ProgramRecord, Run
from temper.run.table import OpTable, combined
from temper.units import bytes_text, rate_text, time_text

_MAX_ROWS = 20_000
_MAX_HOLDERS = 200
_MAX_POINTS = 3_000
_SMALL = 0.02  # of the pool's peak: thinner than a line of the picture


def report_data(opened: Profile, advice: Sequence[Advice]) -> dict[str, Any]:
    """Everything on the page is about one call, where one call stands for all that were chosen."""
    profile = opened.one_call()
    part = 1.0 if profile is opened else 1.0 / opened.count
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
        "scope": _scope(opened, profile, summary),
        "ops": rows,
        "graphs": program_graphs(profile.run, table.rows) if profile.run else [],
        "tree": _tree(table.select(table.is_device)),
        "roof": _roof(chip),
        "timelines": timelines(profile),
        "memory": _memory(profile.run),
        "advice": [_advice(item, part) for item in advice],
        "notes": list(summary.notes),
    }  # fmt: skip


def _scope(opened: Profile, shown: Profile, summary: Summary) -> str:
    """Which calls the figures of the page are about."""
    if opened.run is None:
        return "Figures are of all rows of the file."
    kind = "" if summary.chosen == ALL else f"{summary.chosen} "
    if shown.count == 1:
        recorded = f"; {opened.count} were recorded, this one has the median wall time"
        return f"All figures are of one {kind}call{recorded if opened.count > 1 else ''}."
    counts = Counter[str]()
    for process in opened.run.processes:
        names = {record.handle: record.program.name for record in process.called}
        counts.update(names[int(handle)] for handle in process.calls["ref"])
    each = ", ".join(f"{name} {count}" for name, count in counts.most_common(6))
    return (
        f"All figures are of {calls_text(summary)} together: programs were called differently "
        f"often ({each})."
    )


def _headline(summary: Summary) -> list[list[str]]:
    split = summary.split
    band = f"{time_text(summary.low_ns)} to {time_text(summary.high_ns)}"
    items = [
        [
            "device time",
            time_text(split.device),
            f"{band}, {summary.word}" if summary.modelled else summary.word,
        ],
        ["ops", f"{summary.ops:,}", "on the device"],
    ]
    if summary.call_ns and summary.call_ns == split.total:
        rate = f"{1e9 / summary.call_ns:,.0f} calls/s"
        kind = {"warm": "a warm call", "first": "a first call"}.get(summary.chosen, "a call")
        items.insert(0, [kind, time_text(summary.call_ns), f"{summary.word}, {rate}"])
    elif summary.calls:
        items.insert(0, [calls_text(summary), time_text(split.total), f"{summary.word}, together"])
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
                    "per core, computed" if high.pool == "sram" else "computed",
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
    columns["place"] = (places(profile.run) if profile.run else [""] * cut.rows)[: cut.rows]
    columns["reached"] = _reached(profile.run, cut.rows)
    return cut, columns


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else round(float(value), 2)


def _neighbours(run: Run | None, rows: int) -> list[str]:
    if run is None:
        return [""] * rows
    return [
        cost.neighbour + (" (extrapolated)" if cost.extrapolated else "")
        for record in run.called
        for cost in record.costs
    ][:rows]


def _reached(run: Run | None, rows: int) -> list[dict[str, float]]:
    """Shares of the chip's peaks that each op reaches, as the cost model has them."""
    if run is None:
        return [{}] * rows
    return [
        {name: round(share, 4) for name, share in cost.utilisation.items()}
        for record in run.called
        for cost in record.costs
    ][:rows]


def _merged(table: OpTable) -> OpTable:
    kept = table.select(~table.text("type").equals("signpost"))
    names = ("module", "code", "shape", "formats", "type")
    codes, first = combined([kept.text(name) for name in names])
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


def _memory(run: Run | None) -> list[dict[str, Any]]:
    """The pools over one call of the program that fills them most."""
    records = [record for record in run.called if record.program.ops] if run else []
    sizes = [len(record.ops) for record in records]
    bases = {id(record): sum(sizes[:i]) for i, record in enumerate(records)}
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
                # The op table's row of each op; a view shares that of the op after it.
                "rows": _rows_of(fullest, bases[id(fullest)]),
                "holders": _holders(plan, pool),
            }
        )
    return pools


def _rows_of(record: ProgramRecord, base: int) -> list[int]:
    starts = np.searchsorted(record.launched, np.arange(len(record.infos)))
    return [int(row) for row in base + np.minimum(starts, max(0, len(record.ops) - 1))]


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


def _advice(item: Advice, part: float) -> dict[str, Any]:
    """Its figures of the part of the calls that the page is about."""
    return {
        "title": item.title,
        "why": item.why,
        "paste": item.paste,
        "accuracy": item.accuracy,
        "now": time_text(item.now_ns * part),
        "then": time_text(item.then_ns * part),
        "band": f"{time_text(item.low_ns * part)} to {time_text(item.high_ns * part)}",
        "share": item.share,
        "basis": item.basis,
    }
