"""The elementwise functions by name, in torch: what chains and binary ops compute in float32.

The names and parameters are the contract with lowering; a chain is a list of ``[name, *params]``.
Comparisons and logical functions give zeros and ones. Functions that torch does not define on
floats (the bitwise ones) work on the integer values of their operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from temper.errors import CompileError

Tensor = torch.Tensor
Chain = list[tuple[str, tuple[Any, ...]]]


def _integers(x: Tensor) -> Tensor:
    return x.to(torch.int64) if x.dtype.is_floating_point else x


def _threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    return torch.where(x > threshold, x, torch.full_like(x, value))


UNARY: dict[str, Callable[..., Tensor]] = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x, slope=0.01: F.leaky_relu(x, slope),
    "elu": lambda x, alpha=1.0: F.elu(x, alpha),
    "celu": lambda x, alpha=1.0: F.celu(x, alpha),
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "logsigmoid": F.logsigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x, low=-1.0, high=1.0: x.clamp(low, high),
    "tanh": torch.tanh,
    "softplus": lambda x, beta=1.0, threshold=20.0: F.softplus(x, beta, threshold),
    "softsign": F.softsign,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "abs": torch.abs,
    "neg": torch.neg,
    "sign": torch.sgn,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "logical_not": torch.logical_not,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "bitwise_not": lambda x: ~_integers(x),
    "clamp": lambda x, low=None, high=None: x if low is high is None else x.clamp(low, high),
    "threshold": _threshold,
    "heaviside": lambda x, v: torch.where(x == 0, torch.full_like(x, v), (x > 0).to(x.dtype)),
    "add": lambda x, s: x + s,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "pow": torch.pow,
    "rpow": lambda x, s: torch.pow(torch.tensor(s, dtype=x.dtype), x),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "eq": lambda x, s: x == s,
    "ne": lambda x, s: x != s,
    "lt": lambda x, s: x < s,
    "le": lambda x, s: x <= s,
    "gt": lambda x, s: x > s,
    "ge": lambda x, s: x >= s,
    # NaN of the tensor stays NaN, as on torch's clamp.
    "maximum": lambda x, s: x.clamp(min=s),
    "minimum": lambda x, s: x.clamp(max=s),
}


def _trunc_divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_divide": torch.floor_divide,
    "trunc_divide": _trunc_divide,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_and": lambda a, b: _integers(a) & _integers(b),
    "bitwise_or": lambda a, b: _integers(a) | _integers(b),
    "bitwise_xor": lambda a, b: _integers(a) ^ _integers(b),
    "shift_left": lambda a, b: _integers(a) << _integers(b),
    "shift_right": lambda a, b: _integers(a) >> _integers(b),
    "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "squared_difference": lambda a, b: torch.square(a - b),
}


def stages(chain: Sequence[Any]) -> Chain:
    """An op's chain as (name, parameters) pairs, checked against the table."""
    pairs = [(s, ()) if isinstance(s, str) else (str(s[0]), tuple(s[1:])) for s in chain]
    for name, _ in pairs:
        if name not in UNARY:
            raise CompileError(f"no host kernel for the function {name!r}", allowed=sorted(UNARY))
    return [(name, tuple(float(p) if isinstance(p, str) else p for p in ps)) for name, ps in pairs]


def apply(x: Tensor, chain: Chain) -> Tensor:
    """The chain's functions one after the other, without rounding between them."""
    for name, parameters in chain:
        x = UNARY[name](x, *parameters)
        if x.dtype == torch.bool:
            x = x.to(torch.float32)
    return x


def parameters_of(name: str, given: Sequence[Any]) -> tuple[float, float]:
    """The two numbers that the native kernels take for a function; absent bounds are infinite."""
    if name == "clamp":
        low, high = (*given, None, None)[:2]
        return (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    defaults = {
        "leaky_relu": (0.01, 0.0),
        "elu": (1.0, 0.0),
        "celu": (1.0, 0.0),
        "hardtanh": (-1.0, 1.0),
        "softplus": (1.0, 20.0),
    }.get(name, (0.0, 0.0))
    first, second = (*map(float, given), *defaults[len(given) :])[:2]
    return first, second
