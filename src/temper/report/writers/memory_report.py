"""The memory report that ttnn-visualizer opens: operations, tensors, buffers and graph of a run.

tt-metal's ttnn writes the same tables while it runs (schema 2.1); here they come from the programs
and their memory plans: one call of each program that was called, one operation for each op of it.
"""

from __future__ import annotations

import json
import linecache
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from temper._version import __version__
from temper.chips import Chip
from temper.errors import UsageError
from temper.files import replacing_path, write_text
from temper.program import Program, Source, TensorSpec
from temper.program.circular_buffers import circular_buffers
from temper.program.simulate import Stay, storage
from temper.program.words import BUFFER, SHARDING, datatype, memory_config
from temper.report.writers.buffer_pages import captured_graph, pages_of
from temper.run import describe
from temper.run.calls import WARM, choose_calls
from temper.run.records import ProgramRecord, Run

DATABASE, CONFIG, CLUSTER = "db.sqlite", "config.json", "cluster_descriptor.yaml"
MESH = "physical_chip_mesh_coordinate_mapping.yaml"
_BUFFER_TYPE = {"dram": 0, "sram": 1}
# tt-metal's TensorMemoryLayout; 1 was a single bank once, and the visualizer breaks at it.
_LAYOUT = {"interleaved": 0, "height": 2, "width": 3, "block": 4}
# Weights lie in DRAM during every op: rows for all of them only up to this many.
_MAX_BUFFERS = 1_000_000
# Pages of tensors in SRAM, 60 bytes each in the file; beyond this many, buffers come without.
_MAX_PAGES = 200_000
_MAX_SOURCE = 300_000  # characters of a source file that is shown
_TABLES = """
CREATE TABLE devices (device_id int, num_y_cores int, num_x_cores int, num_y_compute_cores int,
    num_x_compute_cores int, worker_l1_size int, l1_num_banks int, l1_bank_size int,
    address_at_first_l1_bank int, address_at_first_l1_cb_buffer int,
    num_banks_per_storage_core int, num_compute_cores int, num_storage_cores int,
    total_l1_memory int, total_l1_for_tensors int, total_l1_for_interleaved_buffers int,
    total_l1_for_sharded_buffers int, cb_limit int);
CREATE TABLE operations (operation_id int UNIQUE, name text, duration float);
CREATE TABLE operation_arguments (operation_id int, name text, value text);
CREATE TABLE tensors (tensor_id int UNIQUE, shape text, dtype text, layout text,
    memory_config text, device_id int, address int, buffer_type int, size int);
CREATE TABLE device_tensors (tensor_id int, device_id int, address int);
CREATE TABLE buffers (operation_id int, device_id int, address int, max_size_per_bank int,
    buffer_type int, buffer_layout int);
CREATE TABLE captured_graph (operation_id int, captured_graph text);
CREATE TABLE nodes (operation_id int, unique_id int, node_operation_id int, name text);
CREATE TABLE edges (operation_id int, source_unique_id int, sink_unique_id int,
    source_output_index int, sink_input_index int, key int);
CREATE TABLE report_metadata (key text UNIQUE, value text);
CREATE TABLE errors (operation_id int, operation_name text, error_type text, error_message text,
    stack_trace text, timestamp text);
CREATE TABLE source_files (id INTEGER PRIMARY KEY, path text UNIQUE NOT NULL, contents text);
CREATE TABLE stack_traces (operation_id int, stack_trace text,
    source_file_id int REFERENCES source_files(id));
CREATE TABLE input_tensors (operation_id int, input_index int, tensor_id int);
CREATE TABLE output_tensors (operation_id int, output_index int, tensor_id int);
CREATE TABLE local_tensor_comparison_records (tensor_id int, golden_tensor_id int, matches int,
    desired_pcc float, actual_pcc float);
CREATE TABLE global_tensor_comparison_records (tensor_id int, golden_tensor_id int, matches int,
    desired_pcc float, actual_pcc float);
CREATE TABLE buffer_pages (operation_id int, device_id int, address int, core_y int, core_x int,
    bank_id int, page_index int, page_address int, page_size int, buffer_type int);
CREATE INDEX buffers_of_operation ON buffers (operation_id);
"""


def write_memory_report(run: Run, directory: Path) -> None:
    """The database, its config and the description of the one chip."""
    # Of a program that was traced only the traced form: its ops would stand there twice.
    records = list(choose_calls(run, WARM)[0].called)
    chip = run.chip
    if chip is None:
        return
    try:
        with replacing_path(directory / DATABASE) as beside:
            beside.unlink(missing_ok=True)
            with closing(sqlite3.connect(beside)) as database:
                # Written once, beside, and then renamed: nothing to roll back to.
                database.execute("PRAGMA journal_mode = OFF")
                database.executescript(_TABLES)
                _Report(database, chip).write(records, run)
                database.commit()
    except sqlite3.Error as error:
        raise UsageError(f"cannot write {directory / DATABASE}: {error}") from error
    title = str(run.meta.get("command") or "temper profile")
    write_text(directory / CONFIG, json.dumps({"report_name": title, "temper": __version__}))
    write_text(directory / CLUSTER, _cluster(chip))
    write_text(directory / MESH, "chips:\n  0: [0, 0]\n")


class _Report:
    """Rows of the tables, with numbers that go on from program to program."""

    def __init__(self, database: sqlite3.Connection, chip: Chip) -> None:
        self._database, self._chip = database, chip
        self._operation = self._tensor = 0
        self._sources: dict[str, int] = {}
        self._pages_left = _MAX_PAGES

    def write(self, records: Sequence[ProgramRecord], run: Run) -> None:
        self._insert("devices", [_device(self._chip)])
        self._insert(
            "report_metadata",
            [("schema_version", "2.1"), ("writer", f"temper {__version__}"), ("times", run.basis)],
        )
        for record in records:
            self._program(record)
        linecache.clearcache()

    def _insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            holes = ", ".join("?" * len(rows[0]))
            self._database.executemany(f"INSERT INTO {table} VALUES ({holes})", rows)

    def _program(self, record: ProgramRecord) -> None:
        program, owner = record.program, storage(record.program)
        stays = {stay.name: stay for stay in record.memory.timeline.stays}
        numbers = {}
        for name, spec in program.values.items():
            self._tensor += 1
            numbers[name] = self._tensor
            stay = stays.get(owner.get(name, name))
            self._insert("tensors", [_tensor(self._tensor, spec, stay)])
            if stay is not None:
                self._insert("device_tensors", [(self._tensor, 0, stay.address)])
        lives = sorted(stays.values(), key=lambda stay: stay.first)
        everything = len(lives) * len(program.ops) <= _MAX_BUFFERS
        launched = set(record.launched)
        for index, (info, cost) in enumerate(zip(record.infos, record.cost.ops, strict=True)):
            self._operation += 1
            number, op = self._operation, info.op
            self._insert("operations", [(number, info.code, cost.kernel_ns / 1e9)])
            arguments = [
                ("module", info.op.source.module),
                ("attributes", describe.attributes(info)),
            ]
            arguments += [("bound", cost.bound), ("cores", str(cost.cores))]
            self._insert("operation_arguments", [(number, *pair) for pair in arguments if pair[1]])
            for table, names in (("input_tensors", op.inputs), ("output_tensors", op.outputs)):
                rows = [(number, i, numbers[n]) for i, n in enumerate(names) if n in numbers]
                self._insert(table, rows)
            self._insert(
                "buffers",
                [
                    (number, 0, stay.address, stay.bank_bytes, _BUFFER_TYPE[stay.buffer],
                     _LAYOUT[_sharding(program, stay)])
                    for stay in lives
                    if stay.first <= index <= stay.last and (everything or stay.first >= 0)
                ],
            )  # fmt: skip
            circular = (
                circular_buffers(op, info.inputs, info.outputs, self._chip)
                if record.memory.steps[index].circular_bytes
                else {}
            )
            # Rows of the CSV are told apart by the device ops of the graph: a view and an op of
            # the host have none.
            launches = index in launched and not info.is_host
            graph = captured_graph(info.code if launches else "", circular, self._chip, cost.cores)
            self._insert("captured_graph", [(number, json.dumps(graph))])
            held = dict.fromkeys(owner.get(name, name) for name in (*op.inputs, *op.outputs))
            self._pages(number, [stays[name] for name in held if name in stays], program)
            self._stack(number, op.source, record.call_site)

    def _pages(self, number: int, stays: Sequence[Stay], program: Program) -> None:
        """The pages of what an op reads and writes in SRAM."""
        rows: list[tuple[int, ...]] = []
        for stay in stays:
            spec = program.spec(stay.name)
            if stay.buffer == "sram" and self._pages_left >= spec.pages:
                self._pages_left -= spec.pages
                rows += [
                    (number, 0, stay.address, *page, _BUFFER_TYPE["sram"])
                    for page in pages_of(spec, stay, self._chip)
                ]
        self._insert("buffer_pages", rows)

    def _stack(self, number: int, source: Source, call_site: tuple[str, int]) -> None:
        """The line that called the model, then the op's own, as Python prints frames."""
        if not source.file:
            return
        frames = [(*call_site, "<module>")] if call_site[0] and call_site[0] != source.file else []
        frames.append((source.file, source.line, source.module or "forward"))
        lines = []
        for file, line, name in frames:
            lines.append(f'  File "{file}", line {line}, in {name}')
            lines += [f"    {code}"] if (code := linecache.getline(file, line).strip()) else []
        if source.file not in self._sources:
            self._sources[source.file] = len(self._sources) + 1
            text = "".join(linecache.getlines(source.file))
            contents = text if 0 < len(text) <= _MAX_SOURCE else None
            self._insert("source_files", [(self._sources[source.file], source.file, contents)])
        self._insert("stack_traces", [(number, "\n".join(lines), self._sources[source.file])])


def _sharding(program: Program, stay: Stay) -> str:
    """How a buffer lies; one of an op's own, such as the map of a reshape, is interleaved."""
    spec = program.values.get(stay.name)
    return spec.memory.sharding if spec is not None else "interleaved"


def _tensor(number: int, spec: TensorSpec, stay: Stay | None) -> tuple[Any, ...]:
    shape = f"Shape([{', '.join(map(str, spec.shape))}])"
    layout = "Layout.TILE" if spec.layout == "tile" else "Layout.ROW_MAJOR"
    on_device = spec.memory.buffer in BUFFER
    return (
        number, shape, f"DataType.{datatype(spec)}", layout, _config(spec) if on_device else None,
        0 if on_device else None, stay.address if stay else None,
        _BUFFER_TYPE.get(spec.memory.buffer), spec.size_bytes,
    )  # fmt: skip


def _config(spec: TensorSpec) -> str:
    """In the form that ttnn prints: commas, and a halo in the shard's description."""
    text = memory_config(spec.memory).replace(";", ",")
    assert SHARDING[spec.memory.sharding] in text
    return text.replace("ShardOrientation::ROW_MAJOR)", "ShardOrientation::ROW_MAJOR,halo=0)")


def _device(chip: Chip) -> tuple[int, ...]:
    x, y = chip.grid
    usable, cores = chip.sram_usable_bytes, chip.compute_cores
    base = chip.sram_reserved_bytes
    return (
        0, y, x, y, x, chip.sram_core_bytes, cores, usable, base, base, 1, cores, 0,
        chip.sram_core_bytes * cores, usable * cores, usable * cores, usable * cores, usable,
    )  # fmt: skip


def _cluster(chip: Chip) -> str:
    """As the driver describes a machine with one card."""
    return (
        f"arch:\n  0: {chip.arch}\nchips:\n  0: [0, 0, 0, 0]\nchip_unique_ids:\n  0: 0\n"
        "ethernet_connections: []\n"
        "chips_with_mmio:\n  - 0: 0\nharvesting:\n  0: {noc_translation: true, harvest_mask: 0}\n"
        f"chip_to_boardtype:\n  0: {chip.name}\nboards: []\n"
    )
