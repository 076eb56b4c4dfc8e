"""The executor: a device program compiled into a flat list of closures, replayed under a lock."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from temper.errors import UsageError
from temper.process import keep_heap
from temper.program import Op, Program
from temper.targets.virtual import (
    kernels_cache,  # noqa: F401  (each module registers its kernels)
    kernels_data,  # noqa: F401  (each module registers its kernels)
    kernels_eltwise,  # noqa: F401  (each module registers its kernels)
    kernels_host,  # noqa: F401  (each module registers its kernels)
    kernels_matrix,  # noqa: F401  (each module registers its kernels)
    kernels_norm,  # noqa: F401  (each module registers its kernels)
    kernels_window,  # noqa: F401  (each module registers its kernels)
)
from temper.targets.virtual.builder import Emitter, Step
from temper.targets.virtual.values import (
    RANGES,
    exact_input,
    host_dtype,
    load,
    pairs,
    round_,
)

Tensor = torch.Tensor
# (index of the op, the op, start_ns, end_ns) of the host's clock, time.perf_counter_ns.
Observer = Callable[[int, Op, int, int], None]


class Executor:
    """Runs one program on this host with the numbers the chip's formats allow.

    ``weights`` maps parameter paths (or value names) to tensors. ``state`` holds the tensors that
    the program changes, by name, in their host form; executors that are given the same mapping
    share them, and what is missing in it starts as zeros. Constant ops run in ``prepare``,
    once per version of the weights; ``set_weights`` makes a new version. ``output_dtypes`` are the
    dtypes that ``run`` returns, float32 and int64 when not given. Results are always fresh memory.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, Tensor],
        *,
        state: dict[str, Tensor] | None = None,
        output_dtypes: Sequence[torch.dtype | None] | None = None,
        exact_accumulation: bool = False,
    ) -> None:
        keep_heap()
        self.program = program
        self.state = {} if state is None else state
        self.observer: Observer | None = None
        self._lock = threading.Lock()
        self._prepared = False
        self._weights = weights
        builder = Emitter(program, exact_accumulation)
        with _plain():
            self._build(builder, output_dtypes or [None] * len(program.outputs))

    def _build(self, builder: Emitter, dtypes: Sequence[torch.dtype | None]) -> None:
        program = self.program
        for name in program.weights:
            builder.add_constant(name, load(self._weight(name), builder.spec(name)))
        for op in program.const_ops:
            builder.add_op(op, -1, constant=True)
        for name, path in program.state.items():
            spec = builder.spec(name)
            if path not in self.state:
                self.state[path] = torch.zeros(spec.shape, dtype=host_dtype(spec.format))
            builder.add_state(name, self.state[path])
        self._inputs = [(builder.add_input(name), builder.spec(name)) for name in program.inputs]
        self._op_steps: list[tuple[Op, list[Step]]] = []
        for index, op in enumerate(program.ops):
            first = len(builder.steps)
            builder.add_op(op, index, constant=False)
            self._op_steps.append((op, builder.steps[first:]))
        self._steps = tuple(builder.steps)
        self._prepare_steps = tuple(builder.prepare_steps)
        self._tensors = {name: builder.tensors[name] for name in program.weights}
        self._outputs = [
            _fresh(builder.tensors[name], dtype)
            for name, dtype in zip(program.outputs, dtypes, strict=True)
        ]
        self.pool_bytes = builder.pool_bytes
        self._memory = builder  # native steps hold addresses; this holds the memory

    def _weight(self, name: str) -> Tensor:
        path = self.program.weights[name]
        for key in (path, name):
            if key in self._weights:
                return self._weights[key]
        raise UsageError(
            f"the program {self.program.name} needs the weight {path!r}",
            allowed=sorted(self._weights)[:20],
        )

    def prepare(self) -> None:
        """Run the constant ops; done by the first ``run`` if not before."""
        with self._lock:
            self._prepare()

    def _prepare(self) -> None:
        if self._prepared:
            return
        with _plain():
            for step in self._prepare_steps:
                step()
        self._prepared = True

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take new values for the weights and run the constant ops again."""
        with self._lock, _plain():
            self._weights = weights
            for name, held in self._tensors.items():
                held.copy_(load(self._weight(name), self.program.values[name]))
            self._prepared = False
            self._prepare()

    def read(self, paths: Iterable[str]) -> dict[str, Tensor]:
        """What the chip holds for some weights or state, by path, in the values of its formats."""
        names = {path: name for name, path in self.program.weights.items()}
        with self._lock, _plain():
            return {
                path: (
                    self.state[path] if path in self.state else self._tensors[names[path]]
                ).clone()
                for path in paths
            }

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """One call: inputs rounded to their formats, every op, outputs in fresh memory."""
        if len(inputs) != len(self._inputs):
            raise UsageError(
                f"the program {self.program.name} takes {len(self._inputs)} inputs",
                given=str(len(inputs)),
            )
        if torch.is_autocast_enabled("cpu"):  # the program says what is computed in which format
            with torch.autocast("cpu", enabled=False):
                return self.run(inputs)
        with self._lock, torch.no_grad():
            if not self._prepared:
                self._prepare()
            inputs = [pairs(given) for given in inputs]
            for index, ((held, spec), given) in enumerate(zip(self._inputs, inputs, strict=True)):
                if given.dtype == torch.int64:
                    self._check_range(index, given, spec.format)
                held.copy_(given.reshape(held.shape) if given.shape != held.shape else given)
                if not exact_input(given.dtype, spec.format):
                    round_(held, spec.format)
            if self.observer is None:
                for step in self._steps:
                    step()
            else:
                self._observed(self.observer)
            return [output() for output in self._outputs]

    def _check_range(self, index: int, given: Tensor, format_name: str) -> None:
        """The chip has no 64-bit integers: what its format cannot hold is refused."""
        low, high = RANGES.get(format_name, (-math.inf, math.inf))
        if given.numel() and not (low <= given.min().item() and given.max().item() <= high):
            raise UsageError(
                f"input {self.program.inputs[index]} holds integers beyond {format_name}, the "
                "widest integer format of the chip",
                given=f"{given.min().item()} to {given.max().item()}",
                needs=f"{low} to {high}",
                try_=["a hash or an offset that keeps the values in range"],
            )

    def _observed(self, observer: Observer) -> None:
        for index, (op, steps) in enumerate(self._op_steps):
            start = time.perf_counter_ns()
            for step in steps:
                step()
            observer(index, op, start, time.perf_counter_ns())


@contextmanager
def _plain() -> Iterator[None]:
    """Neither gradients, nor autocast, nor inference tensors, which later calls could not write."""
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        yield


def _fresh(tensor: Tensor, dtype: torch.dtype | None) -> Callable[[], Tensor]:
    """A closure that copies a value out of the executor's memory."""
    if dtype is not None and dtype.is_complex:
        return lambda: torch.view_as_complex(tensor.contiguous()).to(dtype, copy=True)
    if dtype is None or dtype == tensor.dtype:
        return partial(tensor.clone, memory_format=torch.contiguous_format)
    return partial(tensor.to, dtype, memory_format=torch.contiguous_format, copy=True)
