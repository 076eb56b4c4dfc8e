"""From the columns of an ops CSV to the op table: names of all versions, bounds, traffic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from temper import chips
from temper.chips import FIDELITY_PHASES, Chip
from temper.errors import BadFileError, UsageError
from temper.formats.sizes import TILE, TILE_BYTES
from temper.run.csv_columns import COLUMNS, WANTED
from temper.run.records import MEASURED, MODELLED
from temper.run.table import OpTable, Text, combined

if TYPE_CHECKING:
    from temper.run.card_csv import Columns

_TENSOR = re.compile(
    r"(?:INPUT|OUTPUT)_\d+_(?:W|Z|Y|X|LAYOUT|DATATYPE|MEMORY)(?:_PAD\[LOGICAL\])?$"
)
_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)"(?::(\d+):\d+)?')
_DIMENSION = re.compile(r"\s*(\d{1,12})(?:\.0*)?(?:\[(\d{1,12})\])?\s*$")
# Bytes of an element in DRAM, shared exponents included.
_BYTES = {name.upper(): size / TILE**2 for name, size in TILE_BYTES.items()}
_BYTES["FLOAT16"] = _BYTES["BFLOAT16"]
_TENSORS_COUNTED = 8
_DURATION = "DEVICE KERNEL DURATION [ns]"
# How tools write that there is no value.
_NO_NUMBER = frozenset({"nan", "-nan", "inf", "-inf", "infinity", "-", "none", "null", "n/a"})
# The first run of an op waits for its kernels to be compiled: nothing that a trace would save.
_COMPILE_NS = 1e6
# A kernel is called bound by a resource that it uses to this part of its peak (as tt-perf-report).
_BOUND_AT = 0.65
# Below this many launch floors an op's time is mostly launch.
_LAUNCH_FACTOR = 1.5


def wanted_columns(name: str) -> bool:
    """Whether a column of a card's CSV is read."""
    return name in WANTED or _TENSOR.match(name) is not None


def build_table(columns: Columns, notes: list[str], chip_name: str = "") -> OpTable:
    """The op table of a file; ``chip_name`` is the chip where the file does not say."""
    rows = columns.rows
    if not rows:
        notes.append("the file has no rows below its header")
    _check_durations(columns)
    code = columns.text("OP CODE")
    kind = _types(columns)
    device = kind.equals("device")
    kernel = columns.number("DEVICE KERNEL DURATION [ns]")
    negative = device & (kernel < 0)
    if negative.any():
        notes.append(f"{int(negative.sum())} negative kernel durations ignored")
        kernel = np.where(negative, np.nan, kernel)
    missing = device & np.isnan(kernel)
    if missing.any():
        notes.append(f"{int(missing.sum())} device ops without a kernel duration")
    if "DEVICE KERNEL DURATION [ns]" not in columns:
        notes.append("no DEVICE KERNEL DURATION column: times are unknown")
    chip = _chip(columns, notes, chip_name)
    gap = columns.number("OP TO OP LATENCY [ns]")
    # A device clock that was reset or an op of another queue: nothing is that far in the past.
    gap = np.where(gap < -1e6, np.nan, np.maximum(gap, 0.0))
    flops = _flops(columns, code)
    traffic = _dram_bytes(columns)
    module, location = _locations(columns.text("LOC"))
    numbers = {c.number: columns.number(c.name) for c in COLUMNS if c.number}
    numbers |= {
        "kernel_ns": np.where(device, kernel, np.nan),
        "gap_ns": np.where(device, gap, np.nan),
        "flops": flops,
        "dram_bytes": traffic,
        "row": np.arange(rows, dtype=np.float64),
    }
    texts = {c.text: columns.text(c.name) for c in COLUMNS if c.text}
    texts |= {
        "type": kind,
        "module": module,
        "location": location,
        "bound": _bounds(numbers, columns.text("MATH FIDELITY"), chip, device),
        "shape": _shapes(columns),
        "formats": _join(
            columns, ("INPUT_0_DATATYPE", "INPUT_1_DATATYPE"), " x ", "OUTPUT_0_DATATYPE"
        ),
        "memory": columns.text("INPUT_0_MEMORY"),
        "trace": _traces(columns),
        "in0": columns.text("INPUT_0_DATATYPE"),
        "in1": columns.text("INPUT_1_DATATYPE"),
        "out0": columns.text("OUTPUT_0_DATATYPE"),
    }
    # Temper's own files say that their times are modelled.
    modelled = any('"modelled"' in v for v in columns.text("PROGRAM_METADATA").values)
    basis = MODELLED if modelled else MEASURED
    _leave_compiles_out(numbers, texts, notes)
    name = chip.name if chip_name else chip.arch
    return OpTable(rows, numbers, texts, basis, name, tuple(notes), columns)


def _leave_compiles_out(
    numbers: dict[str, np.ndarray], texts: dict[str, Text], notes: list[str]
) -> None:
    """Long gaps before the first run of an op are its compilation."""
    long = np.nan_to_num(numbers["gap_ns"]) > _COMPILE_NS
    if not long.any():
        return
    names = ("code", "shape", "formats", "attributes")
    _, rows = combined([texts[name] for name in names])
    first = np.zeros(len(long), dtype=bool)
    first[rows] = True
    compiled = first & long
    if compiled.any():
        waited = float(np.nansum(numbers["gap_ns"][compiled])) / 1e9
        notes.append(
            f"{int(compiled.sum())} first runs of an op waited {waited:.3g} s for their kernels; "
            "left out of the gaps"
        )
        numbers["gap_ns"] = np.where(compiled, np.nan, numbers["gap_ns"])


def _types(columns: Columns) -> Text:
    types, codes = columns.text("OP TYPE"), columns.text("OP CODE")
    names = ["device", "host", "signpost"]
    signpost = types.equals("signpost")
    host = types.where([v in ("python_fallback", "tt_dnn_cpu") for v in types.values])
    host |= codes.contains("(torch)")
    found = np.where(signpost, 2, np.where(host, 1, 0)).astype(np.int32)
    return Text(found, names)


def _check_durations(columns: Columns) -> None:
    """A duration that is no number would be counted as no time at all."""
    text = columns.text(_DURATION)
    for value in text.values:
        word = value.strip().lower()
        if word and word not in _NO_NUMBER and np.isnan(_number(word)):
            line = int(np.flatnonzero(text.equals(value))[0]) + 2
            raise BadFileError(f"line {line}: {_DURATION} is {value[:40]!r}, which is no number")


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")


def _chip(columns: Columns, notes: list[str], given: str) -> Chip:
    """The chip whose peaks apply: as given, as named, or by the cores that ops used."""
    if given:
        return chips.get(given)
    for name in columns.text("DEVICE ARCH").values:
        if not name:
            continue
        try:
            return chips.get(name)
        except UsageError:
            notes.append(f"unknown DEVICE ARCH {name!r}; compared with {chips.DEFAULT_CHIP}")
            return chips.get(chips.DEFAULT_CHIP)
    cores = columns.number("CORE COUNT")
    most = np.nanmax(cores) if np.isfinite(cores).any() else 0
    name = "p150" if 108 < most <= 140 else chips.DEFAULT_CHIP
    notes.append(f"no DEVICE ARCH column: compared with the peaks of {name} (--chip)")
    return chips.get(name)


def _dimension(columns: Columns, tensor: str, part: str) -> np.ndarray:
    """The padded size."""
    column = columns.text(f"{tensor}_{part}_PAD[LOGICAL]", f"{tensor}_{part}")

    def parse(value: str) -> float:
        found = _DIMENSION.match(value)
        if not found:
            return float("nan")
        return float(found.group(1))

    return column.numbers([parse(value) for value in column.values])


def _flops(columns: Columns, code: Text) -> np.ndarray:
    """2 M K N of matmuls, from padded shapes as report tools count them."""
    a = {part: _dimension(columns, "INPUT_0", part) for part in "WZYX"}
    b = {part: _dimension(columns, "INPUT_1", part) for part in "WZYX"}
    batch = np.fmax(a["W"], b["W"]) * np.fmax(a["Z"], b["Z"])
    # A weight may be stored transposed; the output's last side is N in any case.
    out = _dimension(columns, "OUTPUT_0", "X")
    n = np.where(np.isnan(out), b["X"], out)
    found: np.ndarray = np.where(code.contains("Matmul"), 2.0 * batch * a["Y"] * a["X"] * n, 0.0)
    known: np.ndarray = np.nan_to_num(found)
    return known


def _dram_bytes(columns: Columns) -> np.ndarray:
    total = np.zeros(columns.rows)
    names = [f"INPUT_{i}" for i in range(_TENSORS_COUNTED)] + ["OUTPUT_0"]
    for tensor in names:
        if f"{tensor}_MEMORY" not in columns:
            continue
        memory, datatype = columns.text(f"{tensor}_MEMORY"), columns.text(f"{tensor}_DATATYPE")
        size = datatype.numbers([_BYTES.get(v.upper(), 0.0) for v in datatype.values])
        for part in "WZYX":
            size = size * _dimension(columns, tensor, part)
        total += np.where(memory.contains("DRAM"), np.nan_to_num(size), 0.0)
    return total


def _bounds(numbers: dict[str, np.ndarray], fidelity: Text, chip: Chip, device: np.ndarray) -> Text:
    kernel, cores = numbers["kernel_ns"], numbers["cores"]
    phases = fidelity.numbers([FIDELITY_PHASES.get(v, np.nan) for v in fidelity.values])
    with np.errstate(divide="ignore", invalid="ignore"):
        per_ns = chip.flop_per_cycle_lofi * chip.clock_ghz * cores / phases
        math = numbers["flops"] / kernel / per_ns
        dram = numbers["dram_bytes"] / kernel / chip.dram_peak_gbps
        short = kernel < _LAUNCH_FACTOR * chip.launch_floor_ns
    names = ["", "host", "launch", "compute", "dram"]
    found = np.zeros(len(kernel), dtype=np.int32)
    found[short] = 2
    found[np.nan_to_num(math) >= _BOUND_AT] = 3
    found[(np.nan_to_num(dram) >= _BOUND_AT) & (np.nan_to_num(dram) > np.nan_to_num(math))] = 4
    found[~device] = 1
    return Text(found, names)


def _locations(column: Text) -> tuple[Text, Text]:
    """Module path and file:line out of MLIR's ``loc(fused["file":60:0, "name"])``."""
    modules, places = [], []
    for value in column.values:
        found = _LOCATION.findall(value)
        file = next((f"{text}:{line}" for text, line in found if line), "")
        name = next((text for text, line in reversed(found) if not line), "")
        # Ours end in /Kind; other names are kept whole.
        modules.append(name.rsplit("/", 1)[0] if "/" in name else name)
        places.append(file)
    return Text(column.codes, modules), Text(column.codes, places)


def _shapes(columns: Columns) -> Text:
    texts = [
        columns.text(f"{tensor}_{part}_PAD[LOGICAL]", f"{tensor}_{part}")
        for tensor in ("INPUT_0", "INPUT_1")
        for part in "WZYX"
    ]
    codes, rows = combined(texts)
    values = [_shape([_logical(text[row]) for text in texts]) for row in rows.tolist()]
    return Text(codes, values)


def _logical(value: str) -> int:
    found = _DIMENSION.match(value)
    return int(found.group(2) or found.group(1)) if found else 0


def _shape(dims: Sequence[int]) -> str:
    sides = []
    for side in (dims[:4], dims[4:]):
        if any(side):
            shown = list(side)
            while len(shown) > 2 and shown[0] == 1:
                shown = shown[1:]
            sides.append("x".join(map(str, shown)))
    return " x ".join(sides)


def _join(columns: Columns, inputs: Sequence[str], between: str, output: str) -> Text:
    texts = [columns.text(name) for name in (*inputs, output)]
    codes, rows = combined(texts)
    values = []
    for row in rows.tolist():
        words = [text[row] for text in texts]
        joined = between.join(word for word in words[:-1] if word)
        values.append(f"{joined} => {words[-1]}" if words[-1] else joined)
    return Text(codes, values)


def _traces(columns: Columns) -> Text:
    column = columns.text("METAL TRACE ID")
    return Text(column.codes, ["traced" if value else "" for value in column.values])
