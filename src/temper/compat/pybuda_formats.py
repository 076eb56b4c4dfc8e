"""PyBuda's enumerations: formats, fidelities, architectures, back ends and levels."""

from __future__ import annotations

from enum import Enum
from typing import Any

from temper.errors import UsageError


class _Named(Enum):
    """PyBuda writes members by name."""

    @classmethod
    def from_json(cls, name: str) -> Any:
        return as_member(cls, name)

    def to_json(self) -> str:
        return self.name


class BackendType(_Named):
    """PyBuda's back ends; whatever is asked for runs on the virtual chip."""

    Golden = 0
    Model = 1
    Silicon = 2
    NoBackend = 3
    Versim = 4
    Emulation = 5


class BackendDevice(_Named):
    """Boards by PyBuda's names."""

    Grayskull = "grayskull"
    Wormhole_B0 = "wormhole_b0"
    Blackhole = "blackhole"
    Invalid = "invalid"


class DeviceMode(_Named):
    """What a device is for; Temper compiles and runs."""

    CompileAndRun = 0
    CompileOnly = 1
    RunOnly = 2


class MathFidelity(_Named):
    """Math fidelities by PyBuda's names."""

    LoFi = "LoFi"
    HiFi2 = "HiFi2"
    HiFi3 = "HiFi3"
    HiFi4 = "HiFi4"
    Invalid = ""


class DataFormat(_Named):
    """PyBuda's formats; the value is Temper's name, empty where the virtual chip has none."""

    Float32 = "float32"
    Float16_b = "bfloat16"
    Bfp8_b = "bfloat8_b"
    Bfp4_b = "bfloat4_b"
    Bfp2_b = "bfloat2_b"
    Int32 = "int32"
    UInt16 = "uint16"
    RawUInt32 = "uint32"
    RawUInt8 = "uint8"
    # Formats with a five-bit exponent, which no compiler for the newer chips offers.
    Float16 = "float16"
    Bfp8 = "bfp8_a"
    Bfp4 = "bfp4_a"
    Bfp2 = "bfp2_a"
    Lf8 = "lf8"
    Int8 = "int8"
    RawUInt16 = "raw_uint16"
    Invalid = "invalid"


class PerfTraceLevel(_Named):
    """How much PyBuda would trace; accepted."""

    NONE = 0
    LIGHT = 1
    VERBOSE = 2


class CompileDepth(_Named):
    """How far PyBuda would compile; accepted."""

    INIT_COMPILE = 0
    GENERATE_INITIAL_GRAPH = 1
    POST_INITIAL_GRAPH_PASS = 2
    CONSTEVAL_GRAPH = 3
    POST_PATTERN_MATCHER = 4
    OPTIMIZED_GRAPH = 5
    AUTOGRAD = 6
    POST_AUTOGRAD_PASS = 7
    PRE_LOWERING_PASS = 8
    BUDA_GRAPH_PRE_PLACER = 9
    BALANCER_PASS = 10
    PRE_NETLIST_PASS = 11
    GENERATE_NETLIST = 12
    BACKEND_GOLDEN_VERIFY = 13
    FULL = 14


# The board that stands for an architecture when the script or the command line names none.
BOARDS = {
    BackendDevice.Grayskull: "e75",
    BackendDevice.Wormhole_B0: "n150",
    BackendDevice.Blackhole: "p150",
}


def activation(given: Any) -> str:
    """The option value for an activation format, or an error that names those there are."""
    kind = as_member(DataFormat, given)
    allowed = (DataFormat.Float32, DataFormat.Float16_b, DataFormat.Bfp8_b)
    if kind not in allowed:
        raise UsageError(
            f"{given} is no activation format of the virtual chip",
            allowed=[f"DataFormat.{item.name}" for item in allowed],
        )
    return str(kind.value)


def weight(given: Any) -> str | None:
    """The block format that weights are brought to, None for one that is as wide as theirs."""
    return {
        DataFormat.Bfp8_b: "bfp_bf8", DataFormat.Bfp8: "bfp_bf8",
        DataFormat.Bfp4_b: "bfp_bf4", DataFormat.Bfp4: "bfp_bf4",
    }.get(as_member(DataFormat, given))  # fmt: skip


def as_member(kind: type[Enum], given: Any) -> Any:
    """An enumeration member given as such or by name."""
    if given is None or isinstance(given, kind):
        return given
    try:
        return kind[str(given)]
    except KeyError:
        raise UsageError(
            f"no {kind.__name__} {given!r}", allowed=[item.name for item in kind]
        ) from None
