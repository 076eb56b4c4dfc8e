"""What is known of one op before it runs: its work, and the columns that never change."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from temper.chips import FIDELITY_PHASES, Chip
from temper.program import Op, Program, TensorSpec, work
from temper.program.op import on_host


@dataclass(frozen=True, slots=True)
class PerformanceModel:
    """The PM columns of tt-metal: not this project's cost model, but the vendor's ideal."""

    ideal_ns: int = 1
    compute_ns: int = 1
    bandwidth_ns: int = 1
    in_gbps: tuple[float, ...] = ()
    out_gbps: tuple[float, ...] = ()


@dataclass(frozen=True)
class OpInfo:
    """One op of one program with its tensors and chip."""

    op: Op
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    chip: Chip
    weights: frozenset[int] = frozenset()  # which inputs are parameters of the model

    @property
    def code(self) -> str:
        if self.is_host:
            name = "host" if self.op.kind == "Host" else self.op.kind
            return f"{self.op.attrs.get('target') or name} (torch)"
        return self.op.info.code

    @property
    def is_host(self) -> bool:
        """Whether the host does it: an op without a lowering, or one on the way to the chip."""
        return on_host(self.op, self.inputs)

    @property
    def family(self) -> str:
        return self.op.info.family

    @property
    def fidelity(self) -> str:
        return str(self.op.attr("fidelity")) if "fidelity" in self.op.info.attrs else ""

    @property
    def name(self) -> str:
        """Module path and kind: how people find the op in their model."""
        module = self.op.source.module
        return f"{module}/{self.op.kind}" if module else self.op.kind

    @property
    def location(self) -> str:
        source = self.op.source
        return f"{source.file}:{source.line}" if source.file else ""

    @cached_property
    def flops(self) -> float:
        """Useful operations of the logical shapes; 0 for ops that do no arithmetic to speak of."""
        return work.flops(self.op, self.inputs, self.outputs)

    @cached_property
    def padded_flops(self) -> float:
        return work.flops(self.op, self.inputs, self.outputs, padded=True)

    @cached_property
    def dram_bytes(self) -> float:
        return work.bytes_in("dram", self.inputs, self.outputs)

    @cached_property
    def sram_bytes(self) -> float:
        return work.bytes_in("sram", self.inputs, self.outputs)

    @cached_property
    def padding_waste(self) -> float:
        """Part of the op's tile work spent on padding, 0 to 1."""
        if self.padded_flops:
            return 1.0 - self.flops / self.padded_flops
        logical = sum(math.prod(t.shape) for t in self.outputs)
        padded = sum(math.prod(t.padded_shape) for t in self.outputs)
        return 1.0 - logical / padded if padded else 0.0

    @cached_property
    def digest(self) -> int:
        """A stable number for the op's kind, attributes and tensors: the program cache's key."""
        tensors = [(t.shape, t.format, t.layout, t.memory.buffer) for t in self.inputs]
        text = json.dumps([self.op.kind, dict(self.op.attrs), tensors], default=str, sort_keys=True)
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")

    @cached_property
    def performance_model(self) -> PerformanceModel:
        """FACTS 8.3: full grid, padded shapes, slowest single tensor."""
        if not self.op.info.vendor_model or not self.outputs:
            return PerformanceModel()
        compute = 1
        if self.padded_flops:
            phases = FIDELITY_PHASES.get(self.fidelity, 1)
            per_cycle = self.chip.compute_cores * self.chip.flop_per_cycle_lofi
            cycles = math.ceil(self.padded_flops / per_cycle * phases)
            compute = math.ceil(cycles / self.chip.clock_ghz)
        peak = self.chip.architecture.vendor_peak_gib * 2**30 / 1e9
        bandwidth = max(1, *(_pm_tensor_ns(t, peak) for t in (*self.inputs, *self.outputs)))
        ideal = max(compute, bandwidth)
        return PerformanceModel(
            ideal,
            compute,
            bandwidth,
            tuple(_pm_bytes(t) / ideal for t in self.inputs),
            tuple(_pm_bytes(t) / ideal for t in self.outputs),
        )


def _pm_bytes(spec: TensorSpec) -> int:
    """The vendor's model counts one byte an element for every block format."""
    element = 1 if spec.format.endswith("_b") else int(spec.element_bytes)
    return int(math.prod(spec.padded_shape)) * element


def _pm_tensor_ns(spec: TensorSpec, peak_gbps: float) -> int:
    return math.ceil(_pm_bytes(spec) / peak_gbps) if spec.memory.buffer == "dram" else 1


def op_infos(program: Program, chip: Chip) -> Sequence[OpInfo]:
    """Every op of a program with its tensors."""
    return [
        OpInfo(
            op,
            tuple(program.input_specs(op)),
            tuple(program.output_specs(op)),
            chip,
            frozenset(i for i, name in enumerate(op.inputs) if name in program.weights),
        )
        for op in program.ops
    ]
