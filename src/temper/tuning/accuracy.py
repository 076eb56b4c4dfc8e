"""Accuracy: floors to keep, and a probe that tries weight formats without compiling again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from temper.errors import UsageError
from temper.formats import quantize, relative_rms
from temper.formats.measures import Agreement, agreement
from temper.formats.names import canonical_format
from temper.program import Op, Program
from temper.targets.virtual.builder import Emitter, Step
from temper.targets.virtual.executor import Executor
from temper.tuning.sample import FEW
from temper.tuning.variants import Unit

Measure = Callable[[torch.Tensor, torch.Tensor], float]


# A verdict on accuracy sums as the chip does, not by the host's faster rule.
CHIP_SUMS: Mapping[str, Any] = {"exact_accumulation": True}


@dataclass(frozen=True)
class Floor:
    """One accuracy that must be kept: at least ``limit``, or at most for an error."""

    name: str  # pcc | top1 | rms | the user's
    limit: float
    measure: Measure
    at_most: bool = False
    implied: bool = False  # belongs to a floor that was asked for, and is not named beside it

    def met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    @property
    def text(self) -> str:
        return f"{self.name} {'at most' if self.at_most else 'at least'} {self.limit:g}"


def floors(
    min_pcc: float | None = 0.99,
    min_top1: float | None = None,
    max_rms: float | None = None,
    metric: Measure | None = None,
    min_metric: float | None = None,
) -> list[Floor]:
    """The floors that were asked for; PCC is always measured.

    A correlation sees neither scale nor offset, so a floor for it holds both to an error of the
    same size.
    """
    found = [Floor("pcc", -1.0 if min_pcc is None else min_pcc, _pcc)]
    least = found[0].limit
    if not -1 <= least <= 1:
        raise UsageError(f"--min-pcc {min_pcc} is no correlation", needs="a number up to 1")
    if least > -1:
        found.append(Floor("shift", error_of(least), shift, at_most=True, implied=True))
    if min_top1 is not None:
        found.append(Floor("top1", min_top1, top1))
    if max_rms is not None:
        found.append(Floor("rms", max_rms, _rms, at_most=True))
    if (metric is None) != (min_metric is None):
        raise UsageError("a metric of your own needs both --metric and --min-metric")
    if metric is not None and min_metric is not None:
        found.append(Floor("metric", min_metric, _checked(metric)))
    return found


def top1(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of rows whose largest value stands in the same place."""
    return float((actual.argmax(-1) == expected.argmax(-1)).float().mean())


def error_of(pcc: float) -> float:
    """The relative error that goes with a correlation near 1: its energy is about 2 (1 - PCC)."""
    return math.sqrt(2 * (1 - pcc))


def loss(accuracy: Mapping[str, float]) -> float:
    """One minus the correlation, or what an error of this size would take from it."""
    return 1 - accuracy["pcc"] if "pcc" in accuracy else accuracy["rms"] ** 2 / 2


def judged(wanted: Sequence[Floor], expected: torch.Tensor) -> tuple[list[Floor], str]:
    """The floors as this reference can be judged by, and a note where that is another measure.

    Outputs without variance and a handful of values have no correlation worth the name: the
    relative RMS error that goes with the floor takes its place.
    """
    why = agreed(expected, expected).degenerate
    if not why and expected.numel() < FEW:
        why = f"the reference has {expected.numel()} values"
    if not why:
        return list(wanted), ""
    kept = [f for f in wanted if f.name not in ("pcc", "shift", "rms")]
    least = next((f.limit for f in wanted if f.name == "pcc"), -1.0)
    limits = [f.limit for f in wanted if f.name == "rms"]
    limits += [error_of(least)] if least > -1 else []
    limit = min(limits, default=math.inf)
    note = f"{why}, too little for a correlation: judged by relative RMS error"
    note += f", at most {limit:.3g}" if limits else ""
    return [Floor("rms", limit, _rms, at_most=True), *kept], note


def agreed(actual: torch.Tensor, expected: torch.Tensor) -> Agreement:
    """How an output follows its reference, whatever float types both have."""
    return agreement(actual.detach().float(), expected.detach().float())


def shift(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The larger of the errors in scale and in offset, which a correlation does not see."""
    found = agreed(actual, expected)
    if found.scale is None or found.offset is None:
        return found.relative_rms
    return max(abs(found.scale - 1), abs(found.offset))


def _pcc(actual: torch.Tensor, expected: torch.Tensor) -> float:
    found = agreed(actual, expected).pcc
    return -1.0 if found is None else found


def _rms(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float(relative_rms(actual.float(), expected.float()))


def _checked(metric: Callable[..., Any]) -> Measure:
    def measure(actual: torch.Tensor, expected: torch.Tensor) -> float:
        try:
            return float(metric(actual, expected))
        except Exception as error:
            raise UsageError(f"the metric raised {type(error).__name__}: {error}") from error

    return measure


class Probe(Executor):
    """Runs a program with any of its matmul weights in another format, changed in place.

    Each unit gets a buffer of its own behind the value that matmuls read; trying a format copies
    the exact value there, rounds it, and repeats the readers' own preparation.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, torch.Tensor],
        units: Sequence[Unit],
        output_dtypes: Sequence[torch.dtype] | None = None,
    ) -> None:
        self._prepared_by: dict[int, list[Step]] = {}
        self._units = list(units)
        self._now: dict[str, str] = {}
        self.twin = program  # as it was before the buffers
        super().__init__(
            _with_buffers(program, units),
            weights,
            output_dtypes=output_dtypes,
            **CHIP_SUMS,
        )
        self.prepare()
        self.set_formats({})

    def _build(self, builder: Emitter, dtypes: Any) -> None:
        add_op = builder.add_op

        def recording(op: Op, index: int, *, constant: bool) -> None:
            first = len(builder.prepare_steps)
            add_op(op, index, constant=constant)
            if not constant:
                self._prepared_by[index] = builder.prepare_steps[first:]

        builder.add_op = recording  # type: ignore[method-assign]
        super()._build(builder, dtypes)

    def set_formats(self, formats: Mapping[str, str]) -> None:
        """Formats by unit value; what is not named is bfloat16."""
        with torch.no_grad():
            for unit in self._units:
                fmt = formats.get(unit.value, "bf16")
                if self._now.get(unit.value) == fmt:
                    continue
                held = self._memory.tensors[unit.value + _SUFFIX]
                held.copy_(self._memory.tensors[unit.value])
                if fmt != "bf16":
                    quantize(held, canonical_format(fmt), out=held)
                for reader in unit.readers:
                    for step in self._prepared_by[reader]:
                        step()
                self._now[unit.value] = fmt


_SUFFIX = "__probe"


def _with_buffers(program: Program, units: Sequence[Unit]) -> Program:
    values = dict(program.values)
    const_ops = list(program.const_ops)
    ops = list(program.ops)
    for unit in units:
        name = unit.value + _SUFFIX
        # A block format makes the copy real; its own rounding is overwritten by set_formats.
        values[name] = replace(program.spec(unit.value), format="bfloat8_b", layout="tile")
        const_ops.append(Op("Typecast", (unit.value,), (name,)))
        for index in unit.readers:
            op = ops[index]
            ops[index] = replace(op, inputs=(op.inputs[0], name, *op.inputs[2:]))
    return program.replace(values=values, const_ops=tuple(const_ops), ops=tuple(ops))
