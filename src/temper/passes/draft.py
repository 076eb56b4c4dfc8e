"""A program under rewriting: ops in a list, with producers and readers at hand."""

from __future__ import annotations

import re
from collections import defaultdict

import torch

from temper.formats.arrays import Array
from temper.program import Op, Program, TensorSpec

_NUMBERED = re.compile(r"__\d+$")


class Draft:
    """Mutable view of a program's ops; const-eval ops are kept apart as they are."""

    def __init__(self, program: Program, held: dict[str, torch.Tensor] | None = None) -> None:
        self.base = program
        self.held = held  # weights and constants by path; None where none may be added
        self.weights: dict[str, str] = dict(program.weights)
        self.values: dict[str, TensorSpec] = dict(program.values)
        self.ops: list[Op | None] = list(program.ops)
        self.const_ops: list[Op] = list(program.const_ops)
        self.outputs = list(program.outputs)
        self.reindex()

    def reindex(self) -> None:
        """Find producers and readers again after ``ops`` was changed as a list."""
        self.producer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = defaultdict(list)
        for index, op in enumerate(self.ops):
            if op is None:
                continue
            for name in op.outputs:
                self.producer[name] = index
            for name in dict.fromkeys(op.inputs):
                self.readers[name].append(index)

    def fresh(self, name: str) -> str:
        """A name not used yet, numbered as the lowering numbers later forms of a value."""
        stem = _NUMBERED.sub("", name)
        number = 2
        while f"{stem}__{number}" in self.values:
            number += 1
        return f"{stem}__{number}"

    def places(self, rows: Array) -> str:
        """A constant of row numbers as an embedding reads it."""
        assert self.held is not None
        stem = f"constant.rows{len(self.held)}"
        value, rowed, ready = stem, f"{stem}__2", f"{stem}__3"
        self.held[stem] = torch.from_numpy(rows)
        self.weights[value] = stem
        self.values[value] = TensorSpec(rows.shape, "int32")
        self.values[rowed] = TensorSpec(rows.shape, "int32", "row_major")
        self.values[ready] = TensorSpec(rows.shape, "uint32", "row_major")
        self.const_ops.append(Op("Untilize", (value,), (rowed,), {}))
        self.const_ops.append(Op("Typecast", (rowed,), (ready,), {}))
        return ready

    def maker(self, name: str) -> Op | None:
        """The op that makes a value, None for inputs and weights."""
        index = self.producer.get(name)
        return None if index is None else self.ops[index]

    def sole_reader(self, name: str) -> bool:
        """Whether exactly one op reads the value and the user does not see it."""
        return len(self.readers[name]) == 1 and name not in self.outputs

    def replace(self, index: int, op: Op) -> None:
        """Put another op in that place."""
        self._forget(index)
        self.ops[index] = op
        for name in op.outputs:
            self.producer[name] = index
        for name in dict.fromkeys(op.inputs):
            self.readers[name].append(index)

    def remove(self, index: int) -> None:
        self._forget(index)
        self.ops[index] = None

    def _forget(self, index: int) -> None:
        old = self.ops[index]
        if old is None:
            return
        for name in old.outputs:
            self.producer.pop(name, None)
        for name in dict.fromkeys(old.inputs):
            self.readers[name].remove(index)

    def rename(self, old: str, new: str) -> None:
        """Let everyone read ``new`` where they read ``old``."""
        for index in list(self.readers[old]):
            op = self.ops[index]
            assert op is not None
            inputs = tuple(new if n == old else n for n in op.inputs)
            self.replace(index, Op(op.kind, inputs, op.outputs, op.attrs, op.source))
        self.outputs = [new if n == old else n for n in self.outputs]

    def finish(self) -> Program:
        """The program with the ops that are left, and only the values they touch."""
        ops = tuple(op for op in self.ops if op is not None)
        used = {n for op in (*ops, *self.const_ops) for n in (*op.inputs, *op.outputs)}
        used |= {*self.base.inputs, *self.outputs, *self.base.state}
        return self.base.replace(
            ops=ops,
            const_ops=tuple(self.const_ops),
            outputs=tuple(self.outputs),
            values={n: s for n, s in self.values.items() if n in used},
            weights={n: p for n, p in self.weights.items() if n in used},
        )
