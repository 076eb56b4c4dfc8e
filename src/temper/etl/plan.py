"""From operators to one fused chain a column: what the kernels execute in a single pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temper.errors import UsageError
from temper.etl.operators import (
    Bucketize,
    Clip,
    EmbeddingLookup,
    Hash,
    Hex2Int,
    Logarithm,
    Modulus,
    Neg2Zero,
    OneHot,
    Operator,
    VocabGen,
    VocabMap,
)  # fmt: skip
from temper.etl.schema import Column, Schema

# A larger vocabulary takes a hash table: 2^24 four-byte cells are 64 MiB a column.
DIRECT_TABLE_LIMIT = 1 << 24

# The kernels' codes (kernels/etl_chain.hpp).
KIND_CODES = {"int": 0, "float": 1, "hex": 2, "skip": 3, "text": 4}
OUT_CODES = {"float32": 0, "int32": 1, "int64": 2, "uint64": 2}
_INT64 = (-(2**63), 2**63 - 1)
_UINT64 = (0, 2**64 - 1)  # what hexadecimal text of 16 digits holds
_INT32 = (-(2**31), 2**31 - 1)

# Kinds of columns whose values are text, and the operator that makes 64 unsigned bits of each.
TEXT_KINDS: dict[str, type[Operator]] = {"hex": Hex2Int, "text": Hash}

Step = tuple[int, float | None, float | None, list[float]]


@dataclass(frozen=True)
class ColumnPlan:
    """One column: its fused stateless chain, then at most one vocabulary and one expansion."""

    column: Column
    operators: tuple[Operator, ...]
    steps: tuple[Step, ...]
    chain_type: str  # what the fused chain leaves: float32, int32, int64 or uint64
    key_bound: int = 0  # > 0: keys are below it and address a vocabulary directly
    gen: VocabGen | None = None
    map: VocabMap | None = None
    expand: OneHot | EmbeddingLookup | None = None

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def kernel_spec(self) -> tuple[int, int, float, list[Step]]:
        return (
            KIND_CODES[self.column.kind],
            OUT_CODES[self.chain_type],
            float(self.column.missing),
            list(self.steps),
        )


def plan_columns(operators: Sequence[Operator], schema: Schema) -> tuple[ColumnPlan, ...]:
    """Chains for every column that comes out; text that nothing reads is left out."""
    chosen: dict[str, list[Operator]] = {name: [] for name in schema.names}
    for operator in operators:
        names = schema.role(operator.role) if operator.columns is None else operator.columns
        for name in names:
            if name not in chosen:
                raise UsageError(
                    f"{operator.name} names the column {name!r}, which schema "
                    f"{schema.name!r} lacks",
                    allowed=schema.names,
                )
            chosen[name].append(operator)
    plans = [_chain(column, chosen[column.name]) for column in schema.columns]
    return tuple(plan for plan in plans if plan is not None)


def chosen(plans: tuple[ColumnPlan, ...], columns: Sequence[str] | None) -> tuple[ColumnPlan, ...]:
    """The plans of the columns that are wanted, in the schema's order."""
    if columns is None:
        return plans
    names = [plan.name for plan in plans]
    unknown = [name for name in columns if name not in names]
    if unknown or not columns:
        what = f"no column {unknown[0]!r} comes out" if unknown else "no column is wanted"
        raise UsageError(what, allowed=names)
    return tuple(plan for plan in plans if plan.name in columns)


def _chain(column: Column, operators: Sequence[Operator]) -> ColumnPlan | None:
    if column.kind in TEXT_KINDS and not operators:
        return None
    reader = TEXT_KINDS.get(column.kind)  # the operator that makes numbers of its text
    text = reader is not None
    floating = column.kind == "float"
    low, high = _INT32 if column.bits == 32 else _INT64
    steps: list[Step] = []
    gen: VocabGen | None = None
    mapped: VocabMap | None = None
    expand: OneHot | EmbeddingLookup | None = None
    for operator in operators:
        where = f"{operator.name} on column {column.name!r}"
        if isinstance(operator, (Hex2Int, Hash)):
            if not text:
                raise UsageError(f"{where}: its values are numbers already")
            if not isinstance(operator, reader or Hex2Int):
                raise UsageError(
                    f"{where}: the column is of kind {column.kind!r}",
                    try_=[f"{reader.__name__}()" if reader else "", "another kind in the schema"],
                )
            text, (low, high) = False, _UINT64
            continue
        if text:
            words = "hexadecimal text" if column.kind == "hex" else "text"
            assert reader is not None
            raise UsageError(f"{where}: its values are {words}", try_=f"{reader.__name__}() before")
        if expand is not None:
            raise UsageError(f"{where}: nothing can follow {expand.name}")
        if (
            isinstance(operator, (VocabGen, VocabMap, Modulus, OneHot, EmbeddingLookup))
            and floating
        ):
            raise UsageError(
                f"{where} needs integers, but gets float32", try_="Bucketize(edges) before"
            )
        if isinstance(operator, VocabGen):
            if gen is not None or mapped is not None:
                raise UsageError(f"{where}: one vocabulary a column")
            gen = operator
        elif isinstance(operator, VocabMap):
            if mapped is not None:
                raise UsageError(f"{where}: one vocabulary a column")
            mapped = operator
        elif isinstance(operator, (OneHot, EmbeddingLookup)):
            expand = operator
        elif gen is not None or mapped is not None:
            raise UsageError(
                f"{where}: stateless operators come before the vocabulary",
                try_=f"{operator.name} before VocabGen",
            )
        else:
            step, floating, (low, high) = _step(operator, floating, (low, high))
            steps.append(step)
    integer = next(
        name
        for name, (least, most) in (("int32", _INT32), ("int64", _INT64), ("uint64", _UINT64))
        if least <= low and high <= most
    )
    return ColumnPlan(
        column,
        tuple(operators),
        tuple(steps),
        "float32" if floating else integer,
        high + 1 if low >= 0 and high < DIRECT_TABLE_LIMIT and not floating else 0,
        gen,
        mapped,
        expand,
    )


def _step(
    operator: Operator, floating: bool, bounds: tuple[int, int]
) -> tuple[Step, bool, tuple[int, int]]:
    """The kernel's step, whether float32 comes out, and the bounds of integers that come out."""
    low, high = bounds
    if isinstance(operator, Neg2Zero):
        return (0, None, None, []), floating, (max(low, 0), max(high, 0))
    if isinstance(operator, Clip):
        given = [edge for edge in (operator.low, operator.high) if edge is not None]
        if not floating and any(edge != int(edge) for edge in given):
            raise UsageError(f"Clip({operator.low}, {operator.high}) on integers needs integers")
        if operator.low is not None and not floating:
            low, high = max(low, int(operator.low)), max(high, int(operator.low))
        if operator.high is not None and not floating:
            low, high = min(low, int(operator.high)), min(high, int(operator.high))
        return (1, operator.low, operator.high, []), floating, (low, high)
    if isinstance(operator, Logarithm):
        code = 2 if operator.mode == "log" else 3
        return (code, operator.epsilon, None, []), True, bounds
    if isinstance(operator, Bucketize):
        return (4, None, None, list(operator.edges)), False, (0, len(operator.edges))
    if isinstance(operator, Modulus):
        return (5, float(operator.divisor), None, []), False, (0, operator.divisor - 1)
    raise UsageError(f"{operator.name} has no kernel")


def stages(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Runs of operators that execute as one pass: stateless neighbours together, others alone."""
    runs: list[list[Operator]] = []
    for operator in operators:
        if runs and not operator.stateful and not runs[-1][0].stateful:
            runs[-1].append(operator)
        else:
            runs.append([operator])
    return runs


def describe(plan: ColumnPlan) -> dict[str, Any]:
    """A column's chain for people and for JSON."""
    return {
        "column": plan.name,
        "fused": [op.name for op in plan.operators if not op.stateful and op is not plan.expand],
        "chain_type": plan.chain_type,
        "vocabulary": ("direct" if plan.key_bound else "hash") if plan.gen or plan.map else None,
        "expand": plan.expand.name if plan.expand else None,
    }
