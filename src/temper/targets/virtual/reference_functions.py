"""The elementwise functions by name in float64 numpy: what the fast kernels are tested with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[Any]


def _expit(x: Array) -> Array:
    return np.asarray(special.expit(x))


def _integer(x: Array) -> Array:
    return x.astype(np.int64)


def _clamp(x: Array, low: float | None = None, high: float | None = None) -> Array:
    return np.minimum(
        np.maximum(x, -np.inf if low is None else low), np.inf if high is None else high
    )


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _threshold(x: Array, threshold: float, value: float) -> Array:
    return np.where(x > threshold, x, np.float64(value))


def _softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    return np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta)


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772

UNARY: dict[str, Callable[..., Array]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: _clamp(x, 0, 6),
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, x * slope),
    "elu": _elu,
    "celu": _celu,
    "selu": lambda x: _SELU_SCALE * _elu(x, _SELU_ALPHA),
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * _expit(x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "sigmoid": _expit,
    "logsigmoid": lambda x: -np.logaddexp(0, -x),
    "hardsigmoid": lambda x: _clamp(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * _clamp(x + 3, 0, 6) / 6,
    "hardtanh": lambda x, low=-1.0, high=1.0: _clamp(x, low, high),
    "tanh": np.tanh,
    "softplus": _softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
    "abs": np.abs,
    "neg": np.negative,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "frac": lambda x: x - np.trunc(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "lgamma": special.gammaln,
    "logical_not": lambda x: x == 0,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "bitwise_not": lambda x: ~_integer(x),
    "clamp": _clamp,
    "threshold": _threshold,
    "heaviside": np.heaviside,
    "add": lambda x, s: x + s,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "pow": np.power,
    "rpow": lambda x, s: np.power(s, x),
    "fmod": np.fmod,
    "remainder": np.remainder,
    "eq": lambda x, s: x == s,
    "ne": lambda x, s: x != s,
    "lt": lambda x, s: x < s,
    "le": lambda x, s: x <= s,
    "gt": lambda x, s: x > s,
    "ge": lambda x, s: x >= s,
    "maximum": np.maximum,
    "minimum": np.minimum,
}

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "floor_divide": np.floor_divide,
    "trunc_divide": lambda a, b: np.trunc(a / b),
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": lambda a, b: _integer(a) & _integer(b),
    "bitwise_or": lambda a, b: _integer(a) | _integer(b),
    "bitwise_xor": lambda a, b: _integer(a) ^ _integer(b),
    "shift_left": lambda a, b: _integer(a) << _integer(b),
    "shift_right": lambda a, b: _integer(a) >> _integer(b),
    "logaddexp": np.logaddexp,
    "xlogy": special.xlogy,
    "squared_difference": lambda a, b: np.square(a - b),
}


def chain(x: Array, functions: Sequence[Any]) -> Array:
    """A chain of ``[name, *parameters]`` applied to float64 values."""
    for function in functions:
        name, *parameters = [function] if isinstance(function, str) else function
        x = np.asarray(UNARY[name](x, *parameters))
    return x
