"""Turns device ops into prebound closures over preallocated, liveness-reused buffers.

A kernel is a function ``(builder, op, inputs) -> outputs`` registered for an op kind. It runs once
at build time: it takes output buffers from the builder and emits closures that a replay calls
without arguments, or returns views of its inputs when the op only renames data. Shapes and
addresses are fixed, so a replay does no shape work at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from temper.errors import CompileError
from temper.program import Op, Program, TensorSpec
from temper.program.tensor import BLOCK_FORMATS
from temper.targets.virtual import native
from temper.targets.virtual.values import host_dtype, rounding

Step = Callable[[], Any]
Kernel = Callable[["Emitter", Op, list[torch.Tensor]], Sequence[torch.Tensor]]

KERNELS: dict[str, Kernel] = {}


def kernel(*kinds: str) -> Callable[[Kernel], Kernel]:
    """Register a function as the host kernel of these op kinds."""

    def register(function: Kernel) -> Kernel:
        for kind in kinds:
            KERNELS[kind] = function
        return function

    return register


@dataclass(eq=False)
class HostBlock:
    """One piece of memory and the live values that lie in it."""

    flat: torch.Tensor
    constant: bool = False
    kept: bool = False  # state: neither constant nor ever given to another value
    names: set[str] = field(default_factory=set)


class Emitter:
    """The state of one compilation: where every value lies, and the closures so far."""

    def __init__(self, program: Program, exact_accumulation: bool = False) -> None:
        self.program = program
        self.exact_accumulation = exact_accumulation
        self.prepare_steps: list[Step] = []
        self.steps: list[Step] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.pool_bytes = 0
        self._blocks: dict[str, HostBlock] = {}  # value name -> block
        self._by_address: dict[int, HostBlock] = {}  # storage address -> block
        self._free: list[HostBlock] = []
        self._scratch: list[HostBlock] = []
        self._last_use = program.last_use()
        self._uses: dict[str, int] = {}
        for op in (*program.const_ops, *program.ops):
            for name in op.inputs:
                self._uses[name] = self._uses.get(name, 0) + 1
        self._index = -1
        self._constant = True  # building weights and const_ops

    # -- values ---------------------------------------------------------------------------------

    def spec(self, name: str) -> TensorSpec:
        return self.program.values[name]

    def is_constant(self, name: str) -> bool:
        return self._blocks[name].constant

    def sole_use(self, name: str) -> bool:
        """Whether one op alone reads this constant, so that it may be rewritten for that op."""
        block = self._blocks[name]
        return (
            block.names == {name}
            and self._uses.get(name, 0) == 1
            and name not in self.program.outputs
        )

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        """Say where a value lies: in a block of this builder, or in constant memory of its own."""
        address = tensor.untyped_storage().data_ptr()
        block = self._by_address.get(address)
        if block is None:
            block = HostBlock(tensor, constant=self._constant)
            self._by_address[address] = block
        if tuple(tensor.shape) != self.spec(name).shape:
            tensor = tensor.view(self.spec(name).shape)
        block.names.add(name)
        self._blocks[name] = block
        self.tensors[name] = tensor

    # -- memory ---------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A buffer from the pool; bound to a value or given back when the op ends."""
        block = self._take(math.prod(shape) * dtype.itemsize)
        self._scratch.append(block)
        flat = block.flat.view(dtype) if dtype != torch.float32 else block.flat
        return flat[: math.prod(shape)].view(tuple(shape))

    def output(self, op: Op, index: int = 0) -> torch.Tensor:
        """A fresh contiguous buffer for an output of the op."""
        spec = self.spec(op.outputs[index])
        return self.empty(spec.shape, host_dtype(spec.format))

    def in_place(self, op: Op, position: int) -> torch.Tensor | None:
        """The input's own memory as output buffer, when the input dies here and fits exactly."""
        name, spec = op.inputs[position], self.spec(op.outputs[0])
        tensor, block = self.tensors[name], self._blocks[name]
        dying = all(self._last_use.get(other, -1) <= self._index for other in block.names)
        fits = tensor.dtype == host_dtype(spec.format) and tuple(tensor.shape) == spec.shape
        same = (tensor.data_ptr(), tensor.shape, tensor.stride())
        # Another operand in the same memory must be read at the same index that is written.
        others = [self.tensors[other] for other in op.inputs if self._blocks[other] is block]
        aligned = all((t.data_ptr(), t.shape, t.stride()) == same for t in others)
        if (
            block.constant
            or block.kept
            or not aligned
            or not dying
            or not fits
            or not tensor.is_contiguous()
        ):
            return None
        return tensor

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, or a scratch copy made at every replay when it is not contiguous."""
        if tensor.is_contiguous():
            return tensor
        copy = self.empty(tensor.shape, tensor.dtype)
        self.emit(native.strided_copy(copy, tensor))
        return copy

    def _take(self, size_bytes: int) -> HostBlock:
        count = max(16, -(-size_bytes // 64) * 16)  # whole cache lines of float32
        if self._constant:
            block = HostBlock(torch.empty(count, dtype=torch.float32), constant=True)
        else:
            # Best fit, latest freed first: the block is likely still in the cache. A block more
            # than twice too big is left for a value that needs it.
            best = None
            for candidate in reversed(self._free):
                size = candidate.flat.numel()
                if count <= size <= 2 * count and (best is None or size < best.flat.numel()):
                    best = candidate
            if best is not None:
                self._free.remove(best)
                return best
            block = HostBlock(torch.empty(count, dtype=torch.float32))
            self.pool_bytes += count * 4
        self._by_address[block.flat.untyped_storage().data_ptr()] = block
        return block

    # -- closures -------------------------------------------------------------------------------

    def emit(self, step: Step) -> None:
        """Add a closure to the replay (or to the preparation, for constant ops)."""
        (self.prepare_steps if self._constant else self.steps).append(step)

    def prepare(self, step: Step) -> None:
        """Add a closure that runs once per version of the weights."""
        self.prepare_steps.append(step)

    def finish(self, out: torch.Tensor, format_name: str) -> None:
        """Emit the op's one rounding of a contiguous output buffer."""
        if out.dtype != torch.float32 or format_name == "float32" or out.numel() == 0:
            return
        self.emit(rounding(out, format_name))

    def emit_fused(self, step: Step, out: torch.Tensor, format_name: str) -> None:
        """Emit a native step that has rounded already, unless to a block format."""
        self.emit(step)
        if format_name not in native.FUSED_FORMATS:
            self.finish(out, format_name)

    def compute(
        self,
        op: Op,
        function: Callable[[], torch.Tensor],
        *,
        exact: bool = False,
        index: int = 0,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Emit ``out.copy_(function())`` and the rounding; the path of the rarer ops."""
        spec = self.spec(op.outputs[index])
        target = self.output(op, index) if out is None else out
        shape = target.shape
        self.emit(lambda: target.copy_(function().reshape(shape)))
        if not exact or spec.format in BLOCK_FORMATS:
            self.finish(target, spec.format)
        return target

    # -- the walk -------------------------------------------------------------------------------

    def add_constant(self, name: str, tensor: torch.Tensor) -> None:
        self._constant = True
        self.bind(name, tensor)

    def add_state(self, name: str, tensor: torch.Tensor) -> None:
        """Memory that outlives the call; the ops of state write into it."""
        self._constant = False
        self.bind(name, tensor)
        self._blocks[name].kept = True

    def add_input(self, name: str) -> torch.Tensor:
        self._constant = False
        spec = self.spec(name)
        self.bind(name, self.empty(spec.shape, host_dtype(spec.format)))
        self._scratch.clear()
        return self.tensors[name]

    def add_op(self, op: Op, index: int, *, constant: bool) -> None:
        """Build one op; an op over constants alone runs with the preparation, not at each call."""
        if op.kind not in KERNELS:
            raise CompileError(
                f"no host kernel for the device op {op.kind}", allowed=sorted(KERNELS)
            )
        folded = op.kind != "Host" and all(self._blocks[name].constant for name in op.inputs)
        self._constant = constant or folded
        self._index = index
        inputs = [self.tensors[name] for name in op.inputs]
        for name, tensor in zip(op.outputs, KERNELS[op.kind](self, op, inputs), strict=True):
            self.bind(name, tensor)
        self._release(op, index)

    def _release(self, op: Op, index: int) -> None:
        if not self._constant:
            for name in {*op.inputs, *op.outputs}:
                if self._last_use.get(name, -1) <= index:
                    self._drop(name)
            self._free += [
                block for block in self._scratch if not block.names and block not in self._free
            ]
        self._scratch.clear()

    def _drop(self, name: str) -> None:
        block = self._blocks[name]
        block.names.discard(name)
        held = block.constant or block.kept
        if not block.names and not held and block not in self._free:
            self._free.append(block)
