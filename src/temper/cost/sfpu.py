"""Cycles that the vector unit takes for one tile, by function: the start of the fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from temper.chips.architecture import ARCHITECTURES, BLACKHOLE, WORMHOLE

_COLUMNS = {WORMHOLE.name: 0, BLACKHOLE.name: 1}
# Wormhole / Blackhole cycles a 32x32 tile: public kernel measurements of 2025-2026, +-30%.
# 0 marks functions that the matrix engine or the packer does on the way.
_CYCLES: dict[str, tuple[float, float]] = {
    "add": (0, 0), "sub": (0, 0), "subtract": (0, 0), "mul": (0, 0), "multiply": (0, 0),
    "relu": (130, 125), "abs": (150, 146), "neg": (150, 146), "identity": (130, 124),
    "square": (150, 146), "sign": (300, 280), "leaky_relu": (225, 210), "relu6": (300, 280),
    "relu_max": (300, 280), "relu_min": (300, 280), "clamp": (400, 380), "hardtanh": (400, 380),
    "exp": (1344, 672), "exp2": (860, 800), "expm1": (1400, 1000), "sigmoid": (2040, 1820),
    "tanh": (790, 764), "gelu": (3290, 3080), "silu": (1400, 1300), "erf": (2160, 1760),
    "erfc": (2200, 1800), "erfinv": (3610, 3220), "lgamma": (9510, 7580), "sqrt": (880, 800),
    "rsqrt": (1010, 950), "reciprocal": (1060, 640), "recip": (1060, 640), "div": (1475, 1200),
    "divide": (1475, 1200), "rdiv": (1475, 1200), "log": (1344, 1000), "log2": (1400, 1100),
    "log10": (1400, 1100), "log1p": (1500, 1200), "sin": (870, 850), "cos": (1000, 950),
    "tan": (1900, 1700), "asin": (1900, 1700), "acos": (1900, 1700), "atan": (1800, 1672),
    "floor": (540, 476), "ceil": (540, 476), "trunc": (408, 400), "frac": (460, 476),
    "round": (540, 476), "softplus": (1500, 1400), "mish": (3000, 2700), "elu": (1600, 1000),
    "selu": (1600, 1000), "celu": (1600, 1000), "hardsigmoid": (400, 350),
    "hardswish": (500, 450), "softsign": (831, 700), "softshrink": (640, 550),
    "heaviside": (537, 480), "pow": (3000, 2500), "power": (3000, 2500), "where": (350, 300),
    "addcmul": (350, 350), "addcdiv": (1600, 1300), "lerp": (400, 350), "atan2": (3500, 3000),
    "maximum": (350, 300), "minimum": (350, 300), "gt": (350, 300), "lt": (350, 300),
    "ge": (350, 300), "le": (350, 300), "eq": (350, 300), "ne": (350, 300),
    "logical_and": (350, 300), "logical_or": (350, 300), "logical_not": (300, 260),
    "remainder": (1800, 1500), "fmod": (1800, 1500), "digamma": (6000, 5000),
    # Put together from the sequences above: a logarithm of a root, two exponentials, a reciprocal.
    "asinh": (2400, 2100), "acosh": (2300, 2000), "atanh": (2400, 2100), "sinh": (1600, 1300),
    "cosh": (1600, 1300), "rpow": (3000, 2500), "logit": (3000, 2600), "tanhshrink": (950, 900),
    "cbrt": (860, 800), "i0": (1500, 1350), "i1": (3000, 2700), "hardmish": (500, 450),
    "polygamma": (20000, 6000), "multigammaln": (38000, 30000), "glu": (2100, 1900),
    "reglu": (300, 280), "swiglu": (1500, 1400), "geglu": (3300, 3100), "xlogy": (1700, 1400),
    "hypot": (1300, 1200), "logaddexp": (3600, 2300), "logaddexp2": (2900, 2300),
    "xielu": (1900, 1400), "selu_approx": (1600, 1000), "tanh_approx": (222, 222),
}  # fmt: skip
_UNKNOWN = (500.0, 450.0)

# Other names for the same function, in torch, ttnn and profiler files.
_ALIASES = {
    "log_sigmoid": "softplus", "logsigmoid": "softplus", "swish": "silu", "hardshrink": "clamp",
    "clip": "clamp", "rsub": "sub", "bias_gelu": "gelu", "mul_unary_sfpu": "mul",
    "add_unary_sfpu": "add", "sub_unary_sfpu": "sub", "div_unary_sfpu": "mul", "fill": "identity",
    "true_divide": "div", "power_iterative": "pow",
}  # fmt: skip


def plain_name(name: str) -> str:
    """A function's name in lower case, without the profiler's decorations."""
    low = name.lower().rsplit(":", 1)[-1].strip()
    return _ALIASES.get(low, low)


# Kernels of 2025 and earlier: the exponential was several times slower then.
_OLDER = {"exp": (2000.0, 1328.0)}
# SFPU versions of what the matrix engine also does (add, multiply on two tensors).
_TWO_TENSORS = (250.0, 230.0)
# Load and store of a tile through the vector unit without doing anything.
_PASS_CYCLES = 124.0
_FEWEST = 10

# Cycles found by calibration, by (arch, operands, function); they go before the table above.
_measured: dict[tuple[str, int, str], float] = {}


def use_measured(table: Mapping[str, float]) -> None:
    """Take cycles from a calibration: keys are ``arch/operands/function``."""
    _measured.clear()
    for key, value in table.items():
        arch, operands, name = key.split("/", 2)
        _measured[arch, int(operands), name] = float(value)


@contextlib.contextmanager
def measured(table: Mapping[str, float]) -> Iterator[None]:
    """The same for a while."""
    before = dict(_measured)
    try:
        use_measured(table)
        yield
    finally:
        _measured.clear()
        _measured.update(before)


def measure(rows: Iterable[tuple[str, int, str, float, float]]) -> dict[str, float]:
    """Cycles of each function from kernels of one tile on one core.

    Rows are (arch, operands, function, nanoseconds, clock in GHz). The cheapest function of the
    same arch and operands stands for launch, reading and writing; what is above it is the
    function. Fewer than ten functions give no such floor.
    """
    groups: dict[tuple[str, int], dict[str, list[float]]] = {}
    clocks: dict[str, float] = {}
    for arch, operands, name, time_ns, clock_ghz in rows:
        groups.setdefault((arch, operands), {}).setdefault(plain_name(name), []).append(time_ns)
        clocks[arch] = clock_ghz
    found: dict[str, float] = {}
    for (arch, operands), functions in groups.items():
        if len(functions) < _FEWEST:
            continue
        times = {name: sorted(values)[len(values) // 2] for name, values in functions.items()}
        floor = min(times.values())
        for name, time_ns in times.items():
            cycles_ = (time_ns - floor) * clocks[arch] + _PASS_CYCLES
            found[f"{arch}/{operands}/{name}"] = round(cycles_)
    return found


def cycles(name: str, arch: str, operands: int = 1, *, older: bool = False) -> float:
    """Cycles a tile; ``older`` asks for kernels of 2025."""
    plain = plain_name(name)
    column = _COLUMNS[arch if arch in _COLUMNS else ARCHITECTURES[arch].stands_in]
    if older and plain in _OLDER:
        return _OLDER[plain][column]
    known = _measured.get((arch, operands, plain))
    if known is None and ARCHITECTURES[arch].stands_in:
        known = _measured.get((ARCHITECTURES[arch].stands_in, operands, plain))
    if known is not None:
        return known
    return _CYCLES.get(plain, _TWO_TENSORS if operands > 1 else _UNKNOWN)[column]


def chain_cycles(chain: Sequence[Sequence[Any]], arch: str, *, older: bool = False) -> float:
    """Cycles of functions applied one after the other to the same tile."""
    return sum(cycles(str(step[0]), arch, older=older) for step in chain)


# At the end of a matmul or convolution ReLU is done by the packer on its way, and ttnn takes the
# table form of GELU; measured rows with a fused GELU leave no room for the accurate one.
_EPILOGUE = {"relu": 0.0, "gelu": 222.0}


def epilogue_cycles(chain: Sequence[Sequence[Any]], arch: str) -> float:
    """Cycles a tile of activations that a matmul or convolution applies before it packs."""
    names = [plain_name(str(step[0])) for step in chain]
    return sum(_EPILOGUE[n] if n in _EPILOGUE else cycles(n, arch) for n in names)
