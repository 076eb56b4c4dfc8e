"""A placed program as a list of ttnn calls: what is uploaded, what is prepared, what runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from temper.chips import get
from temper.program import Op, Program, TensorSpec
from temper.program.group_norm_config import as_tile_rows
from temper.program.simulate import resharded_inside, resident_values, storage
from temper.targets.fold import folded_inputs, sent_values
from temper.targets.ttnn import (
    table_data,  # noqa: F401  (each module registers its rows)
    table_decode,  # noqa: F401  (each module registers its rows)
    table_matrix,  # noqa: F401  (each module registers its rows)
)
from temper.targets.ttnn.expressions import (
    DEVICE,
    Call,
    Make,
    Ref,
    dtype,
    layout,
    memory_config,
    shards_of,
    to_json,
)
from temper.targets.ttnn.table import TABLE, OpRow, refused
from temper.targets.ttnn.table_window import prepare_bias, prepare_weight, raw_weight_shape

_WINDOWS = frozenset({"Conv2d", "ConvTranspose2d", "Pool2d"})
_CONVOLUTIONS = frozenset({"Conv2d", "ConvTranspose2d"})
# Kinds whose call runs other ops of the program as well.
_FILLED = frozenset({"Reduce", "Gather", "Sort", "TopK"})
_CALLERS = _WINDOWS | _FILLED | {"Sdpa"}


@dataclass(frozen=True)
class Upload:
    """A tensor that the host gives: a constant, or an input of every call.

    ``value`` names the value of the program whose numbers it holds, ``shape`` how they are laid
    out. One that stays on the host is handed to ttnn's preparation. ``state`` is the name under
    which programs share it, for what they change.
    """

    name: str
    value: str
    shape: tuple[int, ...]
    spec: TensorSpec
    on_host: bool = False
    state: str = ""


@dataclass(frozen=True)
class OpCalls:
    """The calls of one op. ``ops`` are the program's ops that they stand for, by index."""

    ops: tuple[int, ...]
    kind: str
    calls: tuple[Call, ...]
    free: tuple[str, ...] = ()
    checks: tuple[tuple[str, TensorSpec], ...] = ()
    source: str = ""
    label: str = ""
    operands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fold:
    """An input that the host folds into the value that is sent, and how (the FoldImage op)."""

    value: str
    given: str
    op: Op


@dataclass
class CallPlan:
    """Everything that an interpreter or a printer needs, and nothing that needs torch."""

    name: str
    chip: str
    options: dict[str, Any]
    constants: list[Upload] = field(default_factory=list)
    setup: list[OpCalls] = field(default_factory=list)
    inputs: list[Upload] = field(default_factory=list)
    given: dict[str, tuple[int, ...]] = field(default_factory=dict)  # what a caller gives
    folds: list[Fold] = field(default_factory=list)
    steps: list[OpCalls] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    host_ops: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The plan as the worker takes it."""
        return {
            "name": self.name,
            "chip": self.chip,
            "options": self.options,
            "constants": [upload_json(u) for u in self.constants],
            "setup": [_step_json(s) for s in self.setup],
            "inputs": [upload_json(u) for u in self.inputs],
            "steps": [_step_json(s) for s in self.steps],
            "outputs": self.outputs,
        }


def upload_json(upload: Upload) -> dict[str, Any]:
    """An upload as the worker reads it."""
    spec = upload.spec
    return {
        "name": upload.name,
        "value": upload.value,
        "shape": list(upload.shape),
        "on_host": upload.on_host,
        "state": upload.state,
        "dtype": to_json(dtype(spec.format)),
        "layout": to_json(layout(spec.layout)),
        "memory": to_json(memory_config(spec)),
        "integer": "int" in spec.format,
    }


def _step_json(step: OpCalls) -> dict[str, Any]:
    return {
        "ops": list(step.ops),
        "kind": step.kind,
        "label": step.label,
        "source": step.source,
        "calls": [{"to": list(c.outputs), "make": to_json(c.make)} for c in step.calls],
        "free": list(step.free),
        "operands": list(step.operands),
        "checks": [_check_json(name, spec) for name, spec in step.checks],
        "results": [upload_json(Upload(n, n, s.shape, s)) for n, s in step.checks],
    }


def _check_json(name: str, spec: TensorSpec) -> dict[str, Any]:
    memory = spec.memory
    return {
        "name": name,
        "shape": list(spec.shape),
        "dtype": spec.format,
        "layout": spec.layout,
        "buffer": memory.buffer,
        "sharding": memory.sharding,
        "shard": list(memory.shard) if memory.shard else None,
        "cores": shards_of(spec) if memory.sharded else 0,
    }


def make_plan(program: Program, *, l1_small_bytes: int, trace_region_bytes: int) -> CallPlan:
    """The calls of a placed program in order."""
    return _Planner(program).plan(
        {"l1_small_size": l1_small_bytes, "trace_region_size": trace_region_bytes}
    )


class _Planner:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.chip = get(program.chip)
        self.readers: dict[str, list[int]] = {}
        for index, op in enumerate(program.ops):
            for name in op.inputs:
                self.readers.setdefault(name, []).append(index)
        self.maker = {name: op for op in program.ops for name in op.outputs}
        self.const_maker = {name: op for op in program.const_ops for name in op.outputs}
        self.fixed = {*resident_values(program), *program.inputs}
        self.owner = {n: o for n, o in storage(program).items() if n != o}
        self.prepared: set[str] = set()
        self.biases: dict[tuple[str, str], str] = {}
        # A write in place gives no new tensor: its result is the tensor that it wrote to.
        self.renamed = {
            out: self.owner[out]
            for op in program.ops
            if op.info.in_place
            for out in op.outputs
            if out in self.owner
        }

    def plan(self, options: dict[str, Any]) -> CallPlan:
        program = self.program
        outputs = [self.renamed.get(name, name) for name in program.outputs]
        self.made = CallPlan(program.name, program.chip, options, outputs=outputs)
        # An image that the host folds is uploaded as the device reads it.
        sent = sent_values(program)
        self.made.inputs = [Upload(n, n, program.spec(n).shape, program.spec(n)) for n in sent]
        self.made.given = {name: program.spec(name).shape for name in program.inputs}
        self.made.folds = [
            Fold(value, name, op)
            for name, made in folded_inputs(program).items()
            for value, op in made
        ]
        for name in resident_values(program):
            self._constant(name)
        absorbed: list[int] = []
        for index, op in enumerate(program.ops):
            if op.kind == "FoldImage" or set(op.outputs) <= set(sent):
                continue
            if self._absorbed(op):
                absorbed.append(index)
                continue
            if op.kind == "Host":
                self.made.host_ops.append(index)
            taken = tuple(absorbed) if op.kind in _CALLERS else ()
            absorbed = [] if op.kind in _CALLERS else absorbed
            self._step((*taken, index), op)
        return self.made

    # --- views and last uses ------------------------------------------------------------------

    def _last_read(self, name: str) -> int:
        end = len(self.program.ops) if name in self.program.outputs else -1
        return max([end, *self.readers.get(name, [])])

    def _dies_with(self, name: str, ops: Iterable[int]) -> bool:
        """Whether these ops are the last to read the memory that the value lies in."""
        root = self.owner.get(name, name)
        family = [root, *(n for n, o in self.owner.items() if o == root)]
        if any(n in self.fixed for n in family):
            return False
        return max(map(self._last_read, family)) in set(ops)

    # --- constants ----------------------------------------------------------------------------

    def _constant(self, name: str) -> None:
        program = self.program
        spec = program.spec(name)
        readers = [program.ops[i] for i in self.readers.get(name, [])]
        if name in program.state:
            path = program.state[name]
            self.made.constants.append(Upload(name, name, spec.shape, spec, state=path))
            return
        kinds = {op.kind for op in readers}
        maker = self.const_maker.get(name)
        if maker is not None and maker.kind == "PrepareConvWeight" and kinds & _CONVOLUTIONS:
            return  # with its first convolution
        if kinds == {"PrepareConvWeight"}:
            consumer = self._consumer(readers[0])
            if consumer.kind in _CONVOLUTIONS:
                shape = raw_weight_shape(consumer)
            else:
                return  # a matmul's: uploaded by its step
            self.made.constants.append(Upload(name, name, shape, spec, on_host=True))
            return
        if all(op.kind in _CONVOLUTIONS and op.inputs.index(name) == 2 for op in readers):
            return  # a bias, with its convolution
        if kinds == {"GroupNorm"}:  # rows of a tile's width
            spec = as_tile_rows(spec)
        self.made.constants.append(Upload(name, name, spec.shape, spec))

    def _consumer(self, prepare: Op) -> Op:
        return self.program.ops[self.readers[prepare.outputs[0]][0]]

    def _prepare(self, row: OpRow) -> OpRow:
        """Weight and bias of a convolution, prepared by ttnn once; the row with their names."""
        weight = row.names[1]
        maker = self.const_maker.get(weight)
        if maker is not None and weight not in self.prepared:
            self.prepared.add(weight)
            raw = f"{weight}__raw"
            fmt = row.inputs[1].format
            spec = TensorSpec((1,), "float32" if "bfloat" in fmt else fmt, "row_major")
            self.made.constants.append(
                Upload(raw, maker.inputs[0], raw_weight_shape(row.op), spec, on_host=True)
            )
            self._setup(row, weight, prepare_weight(row, Ref(raw)), raw)
        if len(row.names) < 3:
            return row
        bias = {row.names[2]: self._bias(row, row.names[2])}
        return replace(row, renamed={**row.renamed, **bias})

    def _bias(self, row: OpRow, bias: str) -> str:
        key = (bias, row.names[1])
        if key not in self.biases:
            name = self.biases[key] = f"{bias}__for_{row.names[1]}"
            raw = f"{name}__raw"
            shape = (1, 1, 1, row.op.attr("out_channels"))
            spec = TensorSpec(shape, "float32", "row_major")
            self.made.constants.append(Upload(raw, bias, shape, spec, on_host=True))
            self._setup(row, name, prepare_bias(row, raw), raw)
        return self.biases[key]

    def _setup(self, row: OpRow, name: str, make: Make, raw: str) -> None:
        self.made.setup.append(OpCalls((), "Prepare", (Call((name,), make),), (raw,), (), "", name))

    # --- steps --------------------------------------------------------------------------------

    def _absorbed(self, op: Op) -> bool:
        """What ttnn runs by itself: halos, the moves around them, filled padding."""
        if op.kind in ("Halo", "Move"):
            return True
        readers = [self.program.ops[i].kind for i in self.readers.get(op.outputs[0], [])]
        if op.kind in ("InterleavedToSharded", "Reshard") and readers == ["Halo"]:
            return resharded_inside(self.program, op, self._window_of(op))
        if op.kind == "Reduce":
            return bool(op.attr("inner"))
        readers_that_do = {"FillPad": _FILLED, "ScaleMask": {"Sdpa"}}.get(op.kind, set())
        return bool(readers) and set(readers) <= readers_that_do

    def _halo_of(self, op: Op) -> Op:
        return self.program.ops[self.readers[op.outputs[0]][0]]

    def _window_of(self, op: Op) -> Op:
        """The window that an op makes its result for."""
        op = self._halo_of(op)
        while op.kind in ("Halo", "Move"):
            op = self.program.ops[self.readers[op.outputs[0]][0]]
        return op

    def _given(self, name: str) -> str:
        """The tensor that a call reads: what the ops before it that ttnn runs by itself read."""
        maker = self.maker.get(name)
        while maker is not None and self._absorbed(maker):
            name = maker.inputs[0]
            maker = self.maker.get(name)
        return name

    def _step(self, ops: tuple[int, ...], op: Op) -> None:
        program = self.program
        names = op.inputs
        if op.kind in _CALLERS:
            names = tuple(self._given(name) for name in names)
        last = bool(names) and program.spec(names[0]).memory.buffer == "sram"
        last = last and self._dies_with(names[0], ops)
        inside = frozenset(program.ops[i].kind for i in ops)
        # A convolution that may free what it reshards moves the copy: one device op more.
        last = last and not inside & {"InterleavedToSharded", "Reshard"}
        row = OpRow(op, program, self.chip, names, self.renamed, last=last, inside=inside)
        inner = [name for i in ops for name in (*program.ops[i].inputs, *program.ops[i].outputs)]
        dead = [
            name
            for name in dict.fromkeys((*inner, *op.outputs))
            if name not in self.fixed and self._last_read(name) <= ops[-1]
        ]
        if op.kind in _CONVOLUTIONS:
            row = self._prepare(row)
        calls = self._calls(row)
        self.made.steps.append(
            OpCalls(
                ops,
                op.kind,
                calls,
                tuple(dead),
                () if self._own_form(op) else tuple((n, program.spec(n)) for n in op.outputs),
                f"{op.source.file}:{op.source.line}" if op.source.file else "",
                row.label,
                tuple(dict.fromkeys(names)),
            )
        )

    def _own_form(self, op: Op) -> bool:
        """Results that have no spec of ours: writes in place, and grouped weights, which ttnn
        spreads to a dense matrix."""
        return op.info.in_place or (op.kind == "PrepareConvWeight" and op.attr("groups") > 1)

    def _calls(self, row: OpRow) -> tuple[Call, ...]:
        op = row.op
        if op.kind == "Host":
            return ()
        if op.kind == "PrepareConvWeight":
            return (Call(op.outputs, self._prepared_now(row)),)
        if op.kind not in TABLE:
            raise refused(row, "the table has no row for it")
        return (Call(() if op.info.in_place else op.outputs, TABLE[op.kind](row)),)

    def _prepared_now(self, row: OpRow) -> Make:
        """Level 0 prepares weights at every call."""
        op = row.op
        consumer = self._consumer(op)
        if consumer.kind in _CONVOLUTIONS:
            names = (self._given(consumer.inputs[0]), *consumer.inputs[1:])
            given: Make | Ref = Ref(op.inputs[0])
            if op.inputs[0] in self.maker:  # ttnn prepares what the host gives it
                shaped = Make("ttnn.reshape", (given, list(raw_weight_shape(consumer))))
                rows = Make("ttnn.to_layout", (shaped, layout("row_major")))
                given = Make("ttnn.from_device", (rows,))
            return prepare_weight(OpRow(consumer, self.program, self.chip, names), given)
        spec = row.out
        raw = f"{op.outputs[0]}__host"
        self.made.constants.append(Upload(raw, op.outputs[0], spec.shape, spec, on_host=True))
        return Make("ttnn.to_device", (Ref(raw), DEVICE), {"memory_config": memory_config(spec)})
