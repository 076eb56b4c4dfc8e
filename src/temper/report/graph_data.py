"""The graph of each program for the page: who reads whose result, where it lies, what moves it."""

from __future__ import annotations

from typing import Any

from temper.compiler.moving import moves_data
from temper.program import Program, TensorSpec
from temper.run.records import ProgramRecord, Run

# Ends of edges that are no op of the program.
INPUTS, OUTPUTS = -1, -2
# Where the result of an op lies, as the page's colours have it.
_SHARDS = "SRAM, {} shards"
_MAX_PROGRAMS = 12


def place(spec: TensorSpec) -> str:
    """Where a tensor lies: ``DRAM``, ``SRAM``, ``SRAM, height shards`` or ``host``."""
    memory = spec.memory
    if memory.buffer == "host":
        return "host"
    if memory.buffer == "sram" and memory.sharded:
        return _SHARDS.format(memory.sharding)
    return memory.buffer.upper()


def places(run: Run) -> list[str]:
    """Where the first result of each op lies, in the order of the op table's rows."""
    return [
        place(info.outputs[0]) if info.outputs else ""
        for record in run.called
        for info in record.ops
    ]


def program_graphs(run: Run, max_rows: int) -> list[dict[str, Any]]:
    """Each program's edges between rows of the op table; only of programs that are shown whole."""
    graphs: list[dict[str, Any]] = []
    base = 0
    for record in run.called:
        count = len(record.ops)
        if count and base + count <= max_rows and len(graphs) < _MAX_PROGRAMS:
            graphs.append(_graph(record, base))
        base += count
    return graphs


def _graph(record: ProgramRecord, base: int) -> dict[str, Any]:
    """Columns of its edges: from, to, bytes, place and name of the tensor, and whether it moves."""
    program = record.program
    row_of = {index: base + row for row, index in enumerate(record.launched)}
    # State lies on the device between calls: who reads it reads no input of the call.
    made: dict[str, int] = dict.fromkeys(program.inputs, INPUTS)
    edges: dict[str, list[Any]] = {name: [] for name in ("from", "to", "bytes", "place", "name")}
    edges["moves"] = []

    def connect(source: int, sink: int, name: str, moves: bool) -> None:
        spec = program.spec(name)
        values = (source, sink, spec.size_bytes, place(spec), name, int(moves))
        for column, value in zip(edges.values(), values, strict=True):
            column.append(value)

    for index, op in enumerate(program.ops):
        row = row_of.get(index)
        if row is None:  # a view: who reads it reads what it shows
            source = next((made[name] for name in op.inputs if name in made), None)
            made |= dict.fromkeys(op.outputs, source) if source is not None else {}
            continue
        info = record.infos[index]
        moving = moves_data(op, program)
        for name in dict.fromkeys(op.inputs):
            if name in made:
                crosses = made[name] == INPUTS or _on_host(program, name) != info.is_host
                connect(made[name], row, name, moving or crosses)
        made |= dict.fromkeys(op.outputs, row)
    for name in program.outputs:
        if made.get(name, INPUTS) >= 0:
            connect(made[name], OUTPUTS, name, True)
    return {"name": program.name, "base": base, "count": len(record.ops), "edges": edges}


def _on_host(program: Program, name: str) -> bool:
    return program.spec(name).memory.buffer == "host"
