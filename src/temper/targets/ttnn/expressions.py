"""ttnn calls as data: names, objects to make, references to values; and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from temper.program.tensor import Memory, TensorSpec, ceil_div


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the program."""

    name: str


@dataclass(frozen=True, slots=True)
class Name:
    """Something that ttnn calls by name, such as ``ttnn.bfloat16``."""

    path: str


@dataclass(frozen=True, slots=True)
class Make:
    """A function or class of ttnn with its arguments; the call itself and nested objects alike."""

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One call and the values it gives."""

    outputs: tuple[str, ...]
    make: Make


DTYPES = {
    "float32": "ttnn.float32", "bfloat16": "ttnn.bfloat16", "bfloat8_b": "ttnn.bfloat8_b",
    "bfloat4_b": "ttnn.bfloat4_b", "int32": "ttnn.int32", "uint32": "ttnn.uint32",
    "uint16": "ttnn.uint16", "uint8": "ttnn.uint8",
}  # fmt: skip
DEVICE = Name("device")


def to_json(value: Any) -> Any:
    """Plain JSON of an expression; the worker reads it without knowing these classes."""
    if isinstance(value, Ref):
        return {"$ref": value.name}
    if isinstance(value, Name):
        return {"$name": value.path}
    if isinstance(value, Make):
        kwargs = {name: to_json(v) for name, v in value.kwargs.items()}
        return {"$make": value.function, "args": to_json(value.args), "kwargs": kwargs}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def references(value: Any) -> list[str]:
    """The values that an expression reads, in order."""
    if isinstance(value, Ref):
        return [value.name]
    if isinstance(value, Make):
        return references([*value.args, *value.kwargs.values()])
    if isinstance(value, (list, tuple)):
        return [name for v in value for name in references(v)]
    return []


def dtype(fmt: str) -> Name:
    """The number format."""
    return Name(DTYPES[fmt])


def layout(word: str) -> Name:
    """Tiles or rows."""
    return Name("ttnn.TILE_LAYOUT" if word == "tile" else "ttnn.ROW_MAJOR_LAYOUT")


def coordinate(x: int, y: int) -> Make:
    """A core, or the size of a grid."""
    return Make("ttnn.CoreCoord", (x, y))


def shards_of(spec: TensorSpec) -> int:
    """Shards of a sharded tensor: the cores that hold one."""
    memory = spec.memory
    assert memory.shard is not None
    assert memory.grid is not None
    rows, columns = spec.physical_2d
    if memory.sharding == "block":
        return memory.grid[0] * memory.grid[1]
    if memory.sharding == "height":
        return min(memory.cores, ceil_div(rows, memory.shard[0]))
    return min(memory.cores, ceil_div(columns, memory.shard[1]))


def core_ranges(memory: Memory, shards: int) -> Make:
    """The cores of a sharding: a rectangle, or rows of cores of which the last may end early."""
    assert memory.grid is not None
    across = memory.grid[0]
    whole, rest = divmod(shards, across)
    ranges = []
    if whole:
        ranges.append(Make("ttnn.CoreRange", (coordinate(0, 0), coordinate(across - 1, whole - 1))))
    if rest:
        ranges.append(Make("ttnn.CoreRange", (coordinate(0, whole), coordinate(rest - 1, whole))))
    return Make("ttnn.CoreRangeSet", (ranges,))


def memory_config(spec: TensorSpec) -> Name | Make:
    """Where a tensor lies."""
    memory = spec.memory
    if not memory.sharded:
        return Name(f"ttnn.{'DRAM' if memory.buffer == 'dram' else 'L1'}_MEMORY_CONFIG")
    assert memory.shard is not None
    shard = Make(
        "ttnn.ShardSpec",
        (
            core_ranges(memory, shards_of(spec)),
            list(memory.shard),
            Name("ttnn.ShardOrientation.ROW_MAJOR"),
        ),
    )
    kind = Name(f"ttnn.TensorMemoryLayout.{memory.sharding.upper()}_SHARDED")
    buffer = Name("ttnn.BufferType.DRAM" if memory.buffer == "dram" else "ttnn.BufferType.L1")
    return Make("ttnn.MemoryConfig", (kind, buffer, shard))
