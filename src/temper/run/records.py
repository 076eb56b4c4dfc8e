"""A run: what every process of it executed, in columns, ready for reports and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from temper import chips
from temper.chips import Chip
from temper.cost.records import OpCost, ProgramCost
from temper.errors import BadFileError
from temper.program import Program, codec
from temper.program.memory_plan import MemoryPlan, plan
from temper.record.events import Flag, Kind
from temper.record.wire import WRONG_SHAPE
from temper.run.opinfo import OpInfo, op_infos
from temper.run.timeline import Schedule, schedule
from temper.units import html_table, time_text

# Host time is time.perf_counter_ns() of the machine that ran. Device time is what the target says
# of its own: the cost model's on the virtual chip, a card's own clock on a card.
MEASURED, MODELLED = "measured", "modelled"
_SHOWN = 12  # rows of the table in a notebook


@dataclass(frozen=True)
class ProgramRecord:
    """One program of one process with its cost; ``meta["basis"]`` says whose times these are."""

    handle: int
    program: Program
    cost: ProgramCost
    meta: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def chip(self) -> Chip:
        return chips.get(self.program.chip)

    @property
    def basis(self) -> str:
        """Whether its device times are modelled or measured, as its target said."""
        return MEASURED if self.meta.get("basis") == MEASURED else MODELLED

    @property
    def call_site(self) -> tuple[str, int]:
        """The user's line that called the model first; its first op's where that is not known."""
        told = self.meta.get("call_site")
        if isinstance(told, (list, tuple)) and len(told) == 2:
            file, line = told
            if isinstance(file, str) and file and isinstance(line, int) and 0 <= line < 1 << 31:
                return file, line
        sources = (op.source for op in self.program.ops if op.source.file)
        return next(((source.file, source.line) for source in sources), ("", 0))

    @cached_property
    def memory(self) -> MemoryPlan:
        """What lies where at every op of a call; as ``temper memory`` says."""
        return plan(self.program, self.chip)

    @cached_property
    def infos(self) -> Sequence[OpInfo]:
        """Every op of the program, also those that launch nothing."""
        return op_infos(self.program, self.chip)

    @cached_property
    def launched(self) -> Sequence[int]:
        """Positions in the program of the ops that run: a reshape that is a view does not, and
        has no row in any file, as on a card."""
        return [
            index
            for index, (info, cost) in enumerate(zip(self.infos, self.cost.ops, strict=True))
            if info.is_host or cost.cores or cost.kernel_ns
        ]

    @cached_property
    def ops(self) -> Sequence[OpInfo]:
        """The ops that run."""
        return [self.infos[index] for index in self.launched]

    @cached_property
    def costs(self) -> Sequence[OpCost]:
        """The cost of each of ``ops``."""
        return [self.cost.ops[index] for index in self.launched]

    @cached_property
    def schedule(self) -> Schedule:
        """When its ops run within one call, on the device's clock."""
        return schedule(self.cost, self.costs)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> ProgramRecord:
        program = codec.from_json(message["program"])
        cost = cost_from_json(message["cost"])
        if len(cost.ops) != len(program.ops):
            raise BadFileError(
                f"program {program.name!r} has {len(program.ops)} ops but {len(cost.ops)} costs"
            )
        return cls(int(message["handle"]), program, cost, dict(message.get("meta") or {}))


def cost_from_json(data: Mapping[str, Any]) -> ProgramCost:
    """Fields that a newer version added are dropped; missing ones are zero."""
    try:
        ops = tuple(
            OpCost(
                kernel_ns=float(op["kernel_ns"]),
                low_ns=float(op.get("low_ns", op["kernel_ns"])),
                high_ns=float(op.get("high_ns", op["kernel_ns"])),
                gap_ns=float(op.get("gap_ns", 0.0)),
                bound=str(op.get("bound", "")),
                cores=int(op.get("cores", 0)),
                utilisation={str(k): float(v) for k, v in (op.get("utilisation") or {}).items()},
                neighbour=str(op.get("neighbour", "")),
                extrapolated=bool(op.get("extrapolated", False)),
            )
            for op in data["ops"]
        )
        numbers = {
            name: float(data.get(name) or 0.0)
            for name in ProgramCost.__dataclass_fields__
            if name != "ops"
        }
    except WRONG_SHAPE as error:
        raise BadFileError(f"a cost record is damaged: {error!r}") from error
    return ProgramCost(ops=ops, **numbers)


@dataclass(frozen=True)
class ProcessRun:
    """What one process did. ``calls``, ``spans`` and the rest are views of its events."""

    hello: Mapping[str, Any]
    programs: Mapping[int, ProgramRecord]
    events: np.ndarray
    names: Mapping[int, str] = field(default_factory=dict)
    op_host_ns: Mapping[int, Sequence[int]] = field(default_factory=dict)
    complete: bool = True  # False when the process went without saying goodbye

    @property
    def pid(self) -> int:
        return self.said("pid")

    def said(self, name: str) -> int:
        """A number that the process told about itself; 0 when it is missing or damaged."""
        value = self.hello.get(name)
        return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0

    def of_kind(self, *kinds: Kind) -> np.ndarray:
        found: np.ndarray = self.events[np.isin(self.events["kind"], kinds)]
        return found

    @cached_property
    def call_indices(self) -> np.ndarray:
        """Positions in ``events`` of the calls whose program is known, in order of start."""
        known = np.fromiter(self.programs, dtype=np.uint32, count=len(self.programs))
        mask = (self.events["kind"] == Kind.CALL) & np.isin(self.events["ref"], known)
        found = np.flatnonzero(mask)
        order = np.argsort(self.events["start_ns"][found], kind="stable")
        ordered: np.ndarray = found[order]
        return ordered

    @cached_property
    def calls(self) -> np.ndarray:
        found: np.ndarray = self.events[self.call_indices]
        return found

    @cached_property
    def called(self) -> list[ProgramRecord]:
        """The programs that were called, in the order of their first calls."""
        handles, first = np.unique(self.calls["ref"], return_index=True)
        return [self.programs[int(handle)] for handle in handles[np.argsort(first)]]

    @cached_property
    def op_count(self) -> int:
        sizes = {handle: len(record.ops) for handle, record in self.programs.items()}
        handles, counts = np.unique(self.calls["ref"], return_counts=True)
        return int(sum(sizes[int(h)] * int(n) for h, n in zip(handles, counts, strict=True)))

    def name(self, index: int) -> str:
        return self.names.get(int(index), "")


@dataclass(frozen=True)
class Run:
    """One profile: any number of processes, and what is known about the whole."""

    processes: Sequence[ProcessRun]
    meta: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was lost or could not be understood

    @property
    def op_count(self) -> int:
        """Ops executed, host ops included."""
        return sum(process.op_count for process in self.processes)

    @property
    def records(self) -> Iterator[ProgramRecord]:
        for process in self.processes:
            yield from process.programs.values()

    @property
    def chip(self) -> Chip | None:
        return next((record.chip for record in self.records), None)

    @property
    def basis(self) -> str:
        """Whether its device times are modelled or measured; both where its programs differ."""
        bases = {record.basis for record in self.called}
        return " and ".join(sorted(bases, reverse=True)) or MODELLED

    @property
    def called(self) -> Iterator[ProgramRecord]:
        """The programs that were called, in the order of the op table."""
        for process in self.processes:
            yield from process.called

    def top(self, count: int = 5) -> list[OpRecord]:
        """The ops that took the most device time, all calls of this run together."""
        rows = sorted(self.op_records(), key=lambda row: -row.total_ns)
        return rows[:count]

    def _repr_html_(self) -> str:
        """The ops that took the most device time, as a notebook shows them."""
        calls = sum(len(process.calls) for process in self.processes)
        total = sum(op.total_ns for op in self.op_records() if not op.info.is_host)
        chip = f" on {self.chip.title}" if self.chip else ""
        above = f"{self.op_count} ops of {calls} calls{chip}: {time_text(total)}, {self.basis}"
        rows = [
            (op.name, time_text(op.total_ns), str(op.count), op.cost.bound, op.location)
            for op in self.top(_SHOWN)
        ]
        return html_table(above, ("op", "time", "runs", "bound", "where"), rows)

    def op_records(self) -> Iterator[OpRecord]:
        for process in self.processes:
            handles, counts = np.unique(process.calls["ref"], return_counts=True)
            for handle, count in zip(handles, counts, strict=True):
                record = process.programs[int(handle)]
                for index, (info, cost) in enumerate(zip(record.ops, record.costs, strict=True)):
                    yield OpRecord(process.pid, record, index, info, cost, int(count))


@dataclass(frozen=True)
class OpRecord:
    """One op of one program and how often it ran."""

    pid: int
    record: ProgramRecord = field(repr=False)
    index: int
    info: OpInfo = field(repr=False)
    cost: OpCost
    count: int

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def code(self) -> str:
        return self.info.code

    @property
    def location(self) -> str:
        return self.info.location

    @property
    def total_ns(self) -> float:
        """Kernel time of all its executions."""
        return self.cost.kernel_ns * self.count

    def __str__(self) -> str:
        low, high = self.cost.low_ns / 1e3, self.cost.high_ns / 1e3
        return (
            f"{self.name}  {self.count} x {self.cost.kernel_ns / 1e3:.1f} µs "
            f"({low:.1f} to {high:.1f}, {self.record.basis})  "
            f"bound: {self.cost.bound}  {self.location}"
        )


def call_flags(events: np.ndarray, flag: Flag) -> np.ndarray:
    """Which calls carry a flag."""
    marked: np.ndarray = (events["flags"] & flag) != 0
    return marked


def dumps(value: Any) -> str:
    """JSON as every file of the run folder writes it."""
    return json.dumps(value, default=str, ensure_ascii=False)
