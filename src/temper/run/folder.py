"""The run folder: which files it holds, its run.json, and reading it back."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from temper._version import __version__
from temper.chips import ARCHITECTURES
from temper.errors import BadFileError, TemperError
from temper.files import replacing, write_text
from temper.record.capture import PREFIX
from temper.record.events import DTYPE, decode
from temper.record.wire import WRONG_SHAPE, program_message
from temper.run.checking import check_record
from temper.run.records import MEASURED, MODELLED, ProcessRun, ProgramRecord, Run, dumps

FORMAT_VERSION = 2
RUN_JSON = "run.json"
EVENTS = "events.bin"
_EVENTS_MAGIC = b"temper events 1\n"
OPS_CSV = "ops_perf_results.csv"
OPS_CSV_NEWER = "ops_perf_results_v2.csv"
DEVICE_LOG = "profile_log_device.csv"
TRACY = ".logs/tracy_profile_log_host.tracy"
PERFETTO = "trace.perfetto-trace"
MEMORY = "memory_report"
CHROME = "trace.json"
FOLDED = "stacks.folded"
REPORT = "report.html"

FILES = {
    RUN_JSON: "versions, options, clocks and programs of this run",
    EVENTS: "every call, span, transfer, mark and memory event, 40 bytes each",
    OPS_CSV: "one row for each op as executed, tt-torch's columns",
    OPS_CSV_NEWER: "the same with current tt-metal's column names, of runs up to 100,000 ops",
    DEVICE_LOG: "zones of cores and RISCs, for ttnn-visualizer",
    TRACY: "for the Tracy GUI",
    PERFETTO: "for ui.perfetto.dev",
    MEMORY: "operations, tensors and buffers, for ttnn-visualizer's other views",
    CHROME: "for chrome://tracing: one warm call of each program",
    FOLDED: "device time by module, for speedscope and flamegraph.pl",
    REPORT: "for people: open it in a browser",
}
# Written beside them by others of this project.
_OTHERS = ("cards.csv", Path(TRACY).name)


def is_ours(name: str) -> bool:
    """Whether a file of a run folder was written by a profile, which the next one replaces."""
    known = {Path(file).parts[0] for file in (*FILES, *_OTHERS)}
    return name in known or name.startswith(PREFIX) or name.endswith(".part")


_DEVICE_CLOCK = {
    MODELLED: f"{MODELLED}: nanoseconds of the cost model, from each process's first call",
    MEASURED: f"{MEASURED}: nanoseconds of the card, from each process's first call",
    f"{MODELLED} and {MEASURED}": "of the cost model or of the card, as each program's meta says",
}
_PACKAGES = ("torch", "numpy", "ttnn", "transformers")


def write_records(run: Run, directory: Path) -> None:
    """run.json and the events."""
    events = [process.events for process in run.processes]
    table = np.concatenate(events) if events else np.zeros(0, dtype=DTYPE)
    with replacing(directory / EVENTS) as file:
        file.write(_EVENTS_MAGIC)
        file.write(table.tobytes())
    write_text(directory / RUN_JSON, dumps(describe_run(run)))


def describe_run(run: Run) -> dict[str, Any]:
    """The run as ``run.json`` tells it."""
    chip = run.chip
    return {
        "format": FORMAT_VERSION,
        "temper": __version__,
        "versions": _versions(),
        "chip": chip.name if chip else None,
        "arch": chip.arch if chip else None,
        "clocks": {
            "device": _DEVICE_CLOCK[run.basis],
            "host": f"{MEASURED}: time.perf_counter_ns of this machine",
        },
        "basis": run.basis,
        "columns": _column_notes(chip.arch if chip else "", run.basis),
        "meta": dict(run.meta),
        "notes": list(run.notes),
        "files": FILES,
        "processes": [_process(process) for process in run.processes],
    }


def _column_notes(arch: str, basis: str) -> dict[str, str]:
    notes = {
        "DEVICE KERNEL DURATION [ns]": f"{basis}; bands stand in the programs below",
        "DEVICE FW, PER CORE AVG, BRISC, NCRISC and TRISC1": "modelled: medians of measured rows "
        "of the op's family, as parts of the kernel duration; other zones are unknown and empty",
        "HOST columns": "measured wall time of the virtual chip, shared out evenly over a call's "
        "ops unless op times were measured",
        "PM columns": "tt-metal's op performance model, recomputed",
        "KERNEL SOURCE": "ttnn's own, of matmuls, sums and products; empty where the choice of "
        "kernels is not known",
        "KERNEL HASH and SIZE": "empty: the virtual chip builds no kernels",
    }
    known = ARCHITECTURES.get(arch)
    if known and not known.reported:
        notes["DEVICE ARCH"] = (
            f"left empty: report tools refuse {known.title}; tt-perf-report takes it as wormhole, "
            "so its percentages of peak do not apply"
        )
    return notes


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _process(process: ProcessRun) -> dict[str, Any]:
    return {
        "hello": dict(process.hello),
        "complete": process.complete,
        "events": len(process.events),
        "names": {str(index): name for index, name in process.names.items()},
        "op_host_ns": {str(index): list(times) for index, times in process.op_host_ns.items()},
        "programs": [
            program_message(record.handle, record.program, record.cost, record.meta)
            for record in process.programs.values()
        ],
    }


def read_run(directory: Path) -> Run:
    """A run from its folder. What is damaged is left out and noted; nothing is executed."""
    path = directory / RUN_JSON
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        version = int(data["format"])
        entries, told = list(data.get("processes") or ()), list(data.get("notes") or ())
    except FileNotFoundError as error:
        raise BadFileError(f"{directory} is no run folder: it has no {RUN_JSON}") from error
    except OSError as error:
        raise BadFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise BadFileError(
            f"{path} is damaged: {error}", try_=f"temper report {directory / OPS_CSV}"
        ) from error
    notes = [note for note in told if isinstance(note, str)]
    if version < FORMAT_VERSION:
        raise BadFileError(
            f"{directory} was written by an older temper ({data.get('temper')})",
            needs=f"format {FORMAT_VERSION}, not {version}",
            try_=["profile it again", f"temper report {directory / OPS_CSV}"],
        )
    if version > FORMAT_VERSION:
        notes.append(
            f"written by a newer temper ({data.get('temper')}, format {version}; this one reads "
            f"{FORMAT_VERSION}); what it added is not shown"
        )
    events, problem = _read_events(directory / EVENTS)
    if problem:
        notes.append(problem)
    processes = []
    first = 0
    for entry in entries:
        try:
            process, missing = _read_process(entry, events[first:])
            first += int(entry["events"])
        except (BadFileError, *WRONG_SHAPE) as error:
            notes.append(f"a process's record is damaged and left out: {error}")
            continue
        notes.extend(missing)
        processes.append(process)
    meta = data.get("meta")
    return Run(processes, meta if isinstance(meta, Mapping) else {}, tuple(notes))


def _read_process(entry: Mapping[str, Any], events: np.ndarray) -> tuple[ProcessRun, list[str]]:
    notes = []
    programs = {}
    for message in entry["programs"]:
        try:
            record = ProgramRecord.from_message(message)
            check_record(record)
            programs[record.handle] = record
        except (TemperError, *WRONG_SHAPE) as error:
            notes.append(f"a program is left out: {error}".splitlines()[0])
    count = int(entry["events"])
    if len(events) < count:
        notes.append(f"events are truncated: {len(events)} of {count} kept")
    own = events[:count]
    # Times count from the machine's start: negative or centuries long is damage.
    sane = (own["start_ns"] >= 0) & (own["end_ns"] >= own["start_ns"]) & (own["end_ns"] < 2**62)
    sane &= np.isfinite(own["modelled"]) & (np.abs(own["modelled"]) < 2.0**62)
    if not sane.all():
        notes.append(f"{int((~sane).sum())} damaged events left out")
    process = ProcessRun(
        dict(entry["hello"]),
        programs,
        own[sane],
        {int(k): str(v) for k, v in entry["names"].items()},
        {int(k): [int(n) for n in v] for k, v in (entry.get("op_host_ns") or {}).items()},
        bool(entry.get("complete", True)),
    )
    return process, notes


def _read_events(path: Path) -> tuple[np.ndarray, str]:
    """The events, or as many whole ones as a truncated file still holds."""
    empty = np.zeros(0, dtype=DTYPE)
    try:
        data = path.read_bytes()
    except OSError as error:
        return empty, f"{path.name} cannot be read: {error.strerror or error}"
    if not data.startswith(_EVENTS_MAGIC):
        return empty, f"{path.name} holds other records than this version's"
    body = data[len(_EVENTS_MAGIC) :]
    return decode(body), f"{path.name} is truncated" if len(body) % DTYPE.itemsize else ""
