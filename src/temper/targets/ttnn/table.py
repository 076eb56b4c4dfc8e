"""The frame of the table: what a row is given, how rows are found, and what many rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temper.chips import Chip
from temper.errors import CompileError
from temper.program import Op, Program, TensorSpec
from temper.program.tensor import INTEGER_FORMATS
from temper.targets.ttnn.expressions import Make, Name, Ref, memory_config


@dataclass(frozen=True)
class OpRow:
    """One op in its program, as the table's functions see it."""

    op: Op
    program: Program
    chip: Chip
    names: tuple[str, ...]  # the op's inputs, windows' already without their halo
    renamed: Mapping[str, str] = field(default_factory=dict)  # values in ttnn's prepared form
    inside: frozenset[str] = frozenset()  # kinds of the ops that the call runs, its own included
    last: bool = False  # the first input is read here for the last time and owns its memory

    @property
    def inputs(self) -> list[TensorSpec]:
        return [self.program.spec(name) for name in self.names]

    @property
    def outputs(self) -> list[TensorSpec]:
        return self.program.output_specs(self.op)

    @property
    def out(self) -> TensorSpec:
        return self.outputs[0]

    def ref(self, index: int) -> Ref:
        name = self.names[index]
        return Ref(self.renamed.get(name, name))

    def attr(self, name: str) -> Any:
        return self.op.attr(name)

    @property
    def memory(self) -> Name | Make:
        return memory_config(self.out)

    @property
    def label(self) -> str:
        return self.op.source.module or self.op.outputs[0]


Rule = Callable[[OpRow], Make]
TABLE: dict[str, Rule] = {}


def call(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the call of some op kinds."""

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            TABLE[kind] = rule
        return rule

    return register


def refused(row: OpRow, why: str) -> CompileError:
    """What the table has no call for."""
    return CompileError(
        f"ttnn has no call for {row.op.kind} of {row.label}: {why}",
        try_=["target='virtual'"],
    )


def compute_config(row: OpRow) -> Make:
    """Fidelity and accumulator of an op on the matrix engine; Blackhole takes the same class."""
    return Make(
        "ttnn.WormholeComputeKernelConfig",
        kwargs={
            "math_fidelity": Name(f"ttnn.MathFidelity.{row.attr('fidelity')}"),
            "math_approx_mode": bool(row.attr("approx")),
            "fp32_dest_acc_en": bool(row.attr("fp32_acc")),
            "packer_l1_acc": bool(row.attr("packer_l1_acc")),
        },
    )


# Function of a chain -> (ttnn's UnaryOpType, parameters when none are given). ``None``: the same
# as given.
_UNARY: dict[str, tuple[str, tuple[float, ...]]] = {
    "relu": ("RELU", ()), "relu6": ("RELU6", ()), "leaky_relu": ("LEAKY_RELU", (0.01,)),
    "elu": ("ELU", (1.0,)), "celu": ("CELU", (1.0, 1.0)), "selu": ("SELU", (1.0507, 1.67326)),
    "gelu": ("GELU", (0.0,)), "gelu_tanh": ("GELU_TANH", ()), "silu": ("SILU", ()),
    "mish": ("MISH", ()), "sigmoid": ("SIGMOID", (4.0, 0.0)), "hardsigmoid": ("HARDSIGMOID", ()),
    "hardswish": ("HARDSWISH", ()), "hardtanh": ("HARDTANH", (-1.0, 1.0)), "tanh": ("TANH", (0.0,)),
    "softplus": ("SOFTPLUS", (1.0, 20.0)), "softsign": ("SOFTSIGN", ()), "exp": ("EXP", (0.0,)),
    "exp2": ("EXP2", ()), "expm1": ("EXPM1", ()), "log": ("LOG", (0.0,)), "log2": ("LOG2", (0.0,)),
    "log10": ("LOG10", (0.0,)), "log1p": ("LOG1P", (0.0,)), "sqrt": ("SQRT", (0.0,)),
    "rsqrt": ("RSQRT", (0.0,)), "reciprocal": ("RECIP", ()), "square": ("SQUARE", ()),
    "abs": ("ABS", ()), "neg": ("NEG", ()), "sign": ("SIGN", ()), "floor": ("FLOOR", ()),
    "ceil": ("CEIL", ()), "round": ("ROUND", (0.0,)), "trunc": ("TRUNC", ()), "frac": ("FRAC", ()),
    "sin": ("SIN", ()), "cos": ("COS", ()), "tan": ("TAN", ()), "asin": ("ASIN", ()),
    "acos": ("ACOS", ()), "atan": ("ATAN", ()), "sinh": ("SINH", ()), "cosh": ("COSH", ()),
    "asinh": ("ASINH", ()), "acosh": ("ACOSH", ()), "atanh": ("ATANH", ()), "erf": ("ERF", (0.0,)),
    "erfc": ("ERFC", ()), "erfinv": ("ERFINV", ()), "lgamma": ("LGAMMA", ()),
    "logical_not": ("LOGICAL_NOT_UNARY", ()), "isnan": ("ISNAN", ()), "isinf": ("ISINF", ()),
    "isfinite": ("ISFINITE", ()), "bitwise_not": ("BITWISE_NOT", ()), "identity": ("IDENTITY", ()),
    "threshold": ("THRESHOLD", ()), "heaviside": ("HEAVISIDE", ()), "add": ("ADD_UNARY_SFPU", ()),
    "sub": ("SUB_UNARY_SFPU", ()), "rsub": ("RSUB", ()), "mul": ("MUL_UNARY_SFPU", ()),
    "div": ("DIV_UNARY_SFPU", ()), "rdiv": ("RDIV", (0.0,)), "pow": ("POWER", ()),
    "rpow": ("RPOW", ()), "fmod": ("FMOD", ()), "remainder": ("REMAINDER", ()),
    "eq": ("UNARY_EQ", ()), "ne": ("UNARY_NE", ()), "lt": ("UNARY_LT", ()), "le": ("UNARY_LE", ()),
    "gt": ("UNARY_GT", ()), "ge": ("UNARY_GE", ()), "maximum": ("MAXIMUM", ()),
    "minimum": ("MINIMUM", ()), "logsigmoid": ("LOGSIGMOID", ()),
}  # fmt: skip
# The largest float32: a clamp with one bound.
_WIDEST = 3.4028234663852886e38


def unary(row: OpRow, name: str, parameters: Sequence[Any]) -> Make:
    """One function of a chain."""
    if name == "clamp":
        low, high = (*parameters, None, None)[:2]
        bounds = [-_WIDEST if low is None else float(low), _WIDEST if high is None else float(high)]
        return Make("ttnn.UnaryWithParam", (Name("ttnn.UnaryOpType.CLAMP_TSS"), *bounds))
    if name not in _UNARY:
        raise refused(row, f"no unary function {name!r}")
    if name == "bitwise_not" and row.inputs[0].format not in INTEGER_FORMATS:
        name = "logical_not"  # truth values as 0 and 1
    kind, defaults = _UNARY[name]
    given = [float(p) for p in parameters]
    values = [*given, *defaults[len(given) :]]
    op = Name(f"ttnn.UnaryOpType.{kind}")
    if not values:
        return Make("ttnn.UnaryWithParam", (op,))
    return Make("ttnn.UnaryWithParam", (op, *values))


def chain(row: OpRow, functions: Sequence[Any]) -> list[Make]:
    """A chain of functions in ttnn's form; one that changes nothing is left out."""
    pairs = [(f, ()) if isinstance(f, str) else (f[0], tuple(f[1:])) for f in functions]
    return [unary(row, name, parameters) for name, parameters in pairs if name != "identity"]
