"""The device program: an ordered list of operations over named tensor specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from temper.program.op import Op, on_host
from temper.program.tensor import TensorSpec


@dataclass(frozen=True)
class Program:
    """What one compiled graph does on one chip.

    ``weights`` maps value names to parameter paths of the model; their data is kept beside the
    program. ``state`` maps value names to names of tensors that the program changes: they live on
    the device between calls, and programs that name the same one share it. ``const_ops`` run once
    per version of the weights, ``ops`` at every call.
    """

    name: str
    chip: str
    values: Mapping[str, TensorSpec]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)
    const_ops: tuple[Op, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)

    def spec(self, name: str) -> TensorSpec:
        return self.values[name]

    def input_specs(self, op: Op) -> list[TensorSpec]:
        return [self.values[name] for name in op.inputs]

    def output_specs(self, op: Op) -> list[TensorSpec]:
        return [self.values[name] for name in op.outputs]

    def on_host(self, op: Op) -> bool:
        """Whether the host does it, in every count and figure."""
        return on_host(op, self.input_specs(op))

    @property
    def host_ops(self) -> list[Op]:
        """The ops of a call that the host does."""
        return [op for op in self.ops if self.on_host(op)]

    def replace(self, **changes: Any) -> Program:
        return replace(self, **changes)

    @property
    def const_eval_place(self) -> str:
        """Where ``const_ops`` run, once: on the host, whose results are sent up, or the device."""
        return "host" if self.options.get("enable_const_eval_on_cpu", True) else "device"

    def last_use(self) -> dict[str, int]:
        """Index of the last op that reads each value; outputs live to the end."""
        last = {name: index for index, op in enumerate(self.ops) for name in op.inputs}
        last.update(dict.fromkeys(self.outputs, len(self.ops)))
        return last

    def state_results(self) -> dict[str, str]:
        """The last value of each state tensor, by name of the value: what a call leaves behind."""
        latest = {name: name for name in self.state}
        root = {name: name for name in self.state}
        for op in self.ops:
            if op.info.in_place and op.inputs[0] in root:
                root[op.outputs[0]] = root[op.inputs[0]]
                latest[root[op.inputs[0]]] = op.outputs[0]
        return {latest[name]: path for name, path in self.state.items()}
