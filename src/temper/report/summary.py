"""A profile in few numbers: where the time went, which ops matter, how full memory was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temper.program.memory_plan import POOLS, HighWater
from temper.record.events import Flag, Kind
from temper.run.calls import ALL, OneTime, one_time_work
from temper.run.opening import Profile
from temper.run.records import MODELLED, Run, call_flags
from temper.run.table import OpTable, Text, combined

GROUPS = {"op": "code", "module": "module", "line": "location", "bound": "bound"}


@dataclass(frozen=True)
class TimeSplit:
    """The run's time by what it was spent on, in ns. ``other`` is waiting and dispatch."""

    device: float
    gap: float
    host_ops: float
    transfer: float
    other: float

    @property
    def total(self) -> float:
        return self.device + self.gap + self.host_ops + self.transfer + self.other


@dataclass(frozen=True)
class Group:
    """Ops that share a name, a module, a line …"""

    name: str
    count: int
    total_ns: float
    share: float
    low_ns: float
    high_ns: float
    gap_ns: float
    bound: str
    cores: float
    where: str
    flops: float = 0.0
    dram_bytes: float = 0.0


@dataclass(frozen=True)
class Summary:
    """What a report opens with: all of it about the chosen calls but ``once``."""

    name: str
    chip: str
    basis: str  # of device times
    ops: int
    host_ops: int
    chosen: str  # which calls: warm, first or all
    calls: int
    call_ns: float  # device clock of one call of the whole model; 0 when unknown
    processes: int
    split: TimeSplit
    low_ns: float
    high_ns: float
    wall_ns: float  # measured; 0 when unknown
    first_call_wall_ns: float
    traced_calls: int
    transfer_bytes: int
    tflops: float
    gbps: float
    bounds: dict[str, float]
    memory: Sequence[HighWater]
    cost_data: str = ""  # the user's own constants behind the times, by name
    once: Sequence[OneTime] = ()  # what the run paid once, whichever calls were chosen
    notes: tuple[str, ...] = field(default=())

    @property
    def word(self) -> str:
        """The basis as a person reads it."""
        if not self.modelled:
            return f"{self.basis} on a card"
        return f"{self.basis} with {self.cost_data}" if self.cost_data else self.basis

    @property
    def modelled(self) -> bool:
        return self.basis == MODELLED

    def as_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["once"] = [vars(work) for work in self.once]
        plain["split"] = {**vars(self.split), "total": self.split.total}
        plain["memory"] = [
            {
                "pool": high.pool,
                "size_bytes": high.size_bytes,
                "op": high.op,
                "holders": [[h.name, h.size_bytes, h.module] for h in high.holders],
            }
            for high in self.memory
        ]
        return plain


def summarise(profile: Profile) -> Summary:
    """The few numbers of a profile's chosen calls."""
    table, run = profile.table, profile.run
    device = table.is_device
    kernel = table.total("kernel_ns", device)
    busy = kernel / 1e9
    bounds = {
        group.name or "other": group.share for group in group_by(table.select(device), "bound")
    }
    chip = run.chip if run else None
    low, high = _band(run) if run else (kernel, kernel)
    split = _split_of_run(run) if run else _split_of_table(table)
    whole = profile.whole or run
    return Summary(
        name=profile.name,
        chip=chip.name if chip else table.arch,
        basis=table.basis,
        ops=int(table.count[device].sum()),
        host_ops=int(table.count[table.is_host].sum()),
        chosen=profile.calls,
        calls=sum(len(p.calls) for p in run.processes) if run else 0,
        call_ns=split.total / profile.count if profile.count else 0.0,
        processes=len(run.processes) if run else 1,
        split=split,
        low_ns=low,
        high_ns=high,
        wall_ns=_wall(run) if run else 0.0,
        first_call_wall_ns=_first_wall(whole) if whole else 0.0,
        traced_calls=(
            sum(int(call_flags(p.calls, Flag.TRACED).sum()) for p in run.processes) if run else 0
        ),
        transfer_bytes=_transferred(run) if run else 0,
        tflops=table.total("flops", device) / busy / 1e12 if busy else 0.0,
        gbps=table.total("dram_bytes", device) / busy / 1e9 if busy else 0.0,
        bounds=bounds,
        memory=_memory(run) if run else (),
        cost_data=_cost_data(run) if run else "",
        once=one_time_work(whole) if whole else (),
        notes=(*table.notes,),
    )


def _cost_data(run: Run) -> str:
    """The name of the constants that the run was timed with; nothing for the shipped ones."""
    names = {str(p.meta.get("cost_data") or "") for each in run.processes
             for p in each.programs.values()}  # fmt: skip
    return ", ".join(sorted(names - {""}))


def calls_text(summary: Summary) -> str:
    """The calls that the figures are about: ``3 warm calls``."""
    kind = "" if summary.chosen == ALL else f"{summary.chosen} "
    return f"{summary.calls} {kind}call{'s' if summary.calls != 1 else ''}"


def group_by(table: OpTable, key: str) -> list[Group]:
    """Device time by a text column, largest first."""
    column = table.text(GROUPS.get(key, key))
    size = len(column.values)
    if not table.rows:
        return []
    count, kernel = table.count, np.nan_to_num(table.number("kernel_ns"))

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(column.codes, weights=np.nan_to_num(values) * count, minlength=size)

    times = total(kernel)
    counts = np.bincount(column.codes, weights=count, minlength=size)
    low, high = total(_or(table, "low_ns", kernel)), total(_or(table, "high_ns", kernel))
    gaps, flops = total(table.number("gap_ns")), total(table.number("flops"))
    traffic = total(table.number("dram_bytes"))
    # The slowest row speaks for its group.
    order = np.argsort(kernel * count, kind="stable")
    slowest = np.zeros(size, dtype=np.int64)
    slowest[column.codes[order]] = order
    whole = times.sum() or 1.0
    bound, where = table.text("bound"), table.text("location" if key != "line" else "module")
    cores = table.number("cores")
    groups: dict[str, Group] = {}
    for index in np.argsort(-times, kind="stable"):
        if not counts[index]:
            continue
        row = int(slowest[index])
        name = column.values[index]
        groups[name] = Group(
            name, int(counts[index]), float(times[index]), float(times[index] / whole),
            float(low[index]), float(high[index]), float(gaps[index]), bound[row],
            float(cores[row]), where[row], float(flops[index]), float(traffic[index]),
        )  # fmt: skip
    return list(groups.values())


def top_ops(table: OpTable, limit: int) -> list[Group]:
    """Ops by module, kind and shape: the rows that a person would want to see."""
    kept = table.select(table.is_device)
    parts = [kept.text(name) for name in ("module", "code", "shape")]
    codes, first = combined(parts)
    label = [
        f"{module}  {short_code(code)}" + (f"  {shape}" if shape else "")
        for module, code, shape in ([part[row] for part in parts] for row in first.tolist())
    ]
    named = OpTable(
        kept.rows, kept.numbers, {**kept.texts, "label": Text(codes, label)}, kept.basis
    )
    return group_by(named, "label")[:limit]


def short_code(code: str) -> str:
    """An op's name without its suffix."""
    return code.removesuffix("DeviceOperation") or code


def _or(table: OpTable, name: str, instead: np.ndarray) -> np.ndarray:
    values = table.number(name)
    return np.where(np.isnan(values), instead, values)


def _split_of_run(run: Run) -> TimeSplit:
    device = gap = host = transfer = total = 0.0
    for process in run.processes:
        for handle, count in zip(*np.unique(process.calls["ref"], return_counts=True), strict=True):
            record, n = process.programs[int(handle)], int(count)
            device += n * sum(c.kernel_ns for c in record.cost.ops if c.bound != "host")
            host += n * sum(c.kernel_ns for c in record.cost.ops if c.bound == "host")
            gap += n * float(record.schedule.gap_ns.sum())
            transfer += n * (record.cost.transfer_in_ns + record.cost.transfer_out_ns)
            total += n * record.schedule.period_ns
    return TimeSplit(device, gap, host, transfer, max(0.0, total - device - gap - host - transfer))


def _split_of_table(table: OpTable) -> TimeSplit:
    device = table.is_device
    return TimeSplit(
        table.total("kernel_ns", device),
        table.total("gap_ns", device),
        table.total("host_ns", table.is_host),
        0.0,
        0.0,
    )


def _band(run: Run) -> tuple[float, float]:
    """The cost model's own band of each program's device time, kernels only."""
    low = high = 0.0
    for process in run.processes:
        for handle, count in zip(*np.unique(process.calls["ref"], return_counts=True), strict=True):
            cost = process.programs[int(handle)].cost
            kernels = sum(c.kernel_ns for c in cost.ops if c.bound != "host")
            if cost.device_ns:
                low += int(count) * kernels * cost.device_low_ns / cost.device_ns
                high += int(count) * kernels * cost.device_high_ns / cost.device_ns
    return low, high


def _wall(run: Run) -> float:
    return float(sum((p.calls["end_ns"] - p.calls["start_ns"]).sum() for p in run.processes))


def _first_wall(run: Run) -> float:
    total = 0.0
    for process in run.processes:
        first = process.calls[call_flags(process.calls, Flag.FIRST)]
        total += float((first["end_ns"] - first["start_ns"]).sum())
    return total


def _transferred(run: Run) -> int:
    return sum(
        int(p.of_kind(Kind.TRANSFER_IN, Kind.TRANSFER_OUT)["value"].sum()) for p in run.processes
    )


def _memory(run: Run) -> list[HighWater]:
    """The fullest program of the chosen calls, pool by pool."""
    plans = [record.memory for record in run.called]
    return [
        max((plan.high_water(pool) for plan in plans), key=lambda high: high.size_bytes)
        for pool in POOLS
        if plans
    ]
