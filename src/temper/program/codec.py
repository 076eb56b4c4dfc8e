"""Programs as plain JSON and back; what is read is checked field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from temper.errors import BadFileError, TemperError
from temper.program.op import Op, Source
from temper.program.program import Program
from temper.program.tensor import Memory, TensorSpec

# JSON has no infinities and no NaN: they are written as {"$float": "-inf"}.
_FLOAT = "$float"
_LAYOUTS = ("tile", "row_major")
_BUFFERS = ("dram", "sram", "host")
_SHARDINGS = ("interleaved", "height", "width", "block")


def to_json(program: Program) -> dict[str, Any]:
    """The program in lists, mappings, strings and numbers."""
    return {
        "name": program.name,
        "chip": program.chip,
        "options": _plain(program.options),
        "values": {name: _spec_to_json(spec) for name, spec in program.values.items()},
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
        "weights": dict(program.weights),
        **({"state": dict(program.state)} if program.state else {}),
        "const_ops": [_op_to_json(op) for op in program.const_ops],
        "ops": [_op_to_json(op) for op in program.ops],
    }


def from_json(data: object) -> Program:
    """The program of `to_json`; BadFileError names the field that is wrong."""
    fields = _mapping(data, "program")
    return Program(
        name=_string(fields, "name"),
        chip=_string(fields, "chip"),
        values={
            name: _spec_from_json(spec, f"values.{name}")
            for name, spec in _mapping(fields.get("values"), "values").items()
        },
        ops=_ops(fields, "ops"),
        inputs=_strings(fields.get("inputs"), "inputs"),
        outputs=_strings(fields.get("outputs"), "outputs"),
        weights=_paths(fields.get("weights"), "weights"),
        state=_paths(fields.get("state", {}), "state"),
        const_ops=_ops(fields, "const_ops"),
        options=_mapping(_restored(fields.get("options")), "options"),
    )


def _paths(data: object, where: str) -> dict[str, str]:
    return {
        name: path if isinstance(path, str) else _fail(f"{where}.{name} is no path")
        for name, path in _mapping(data, where).items()
    }


def _op_to_json(op: Op) -> dict[str, Any]:
    source = op.source
    return {
        "kind": op.kind,
        "inputs": list(op.inputs),
        "outputs": list(op.outputs),
        "attrs": _plain(op.attrs),
        "source": [source.module, source.file, source.line],
    }


def _ops(fields: Mapping[str, Any], name: str) -> tuple[Op, ...]:
    items = fields.get(name)
    if not isinstance(items, list):
        _fail(f"{name} is no list")
    return tuple(_op_from_json(item, f"{name}[{i}]") for i, item in enumerate(items))


def _op_from_json(data: object, where: str) -> Op:
    fields = _mapping(data, where)
    source = fields.get("source")
    if not (
        isinstance(source, list)
        and [type(part) for part in source] == [str, str, int]
        and source[2] >= 0
    ):
        _fail(f"{where}.source is no module, file and line")
    return Op(
        _string(fields, "kind"),
        _strings(fields.get("inputs"), f"{where}.inputs"),
        _strings(fields.get("outputs"), f"{where}.outputs"),
        _mapping(_restored(fields.get("attrs")), f"{where}.attrs"),
        Source(*source),
    )


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    data: dict[str, Any] = {
        "shape": list(spec.shape),
        "format": spec.format,
        "layout": spec.layout,
        "buffer": spec.memory.buffer,
    }
    if spec.memory.grid is not None and spec.memory.shard is not None:
        data["sharding"] = spec.memory.sharding
        data["grid"], data["shard"] = list(spec.memory.grid), list(spec.memory.shard)
    return data


def _spec_from_json(data: object, where: str) -> TensorSpec:
    fields = _mapping(data, where)
    layout = _one_of(fields.get("layout"), _LAYOUTS, where)
    buffer = _one_of(fields.get("buffer"), _BUFFERS, where)
    sharding = _one_of(fields.get("sharding", "interleaved"), _SHARDINGS, where)
    grid = _sizes(fields["grid"], where, 2) if "grid" in fields else None
    shard = _sizes(fields["shard"], where, 2) if "shard" in fields else None
    try:
        memory = Memory(buffer, sharding, grid, shard)  # type: ignore[arg-type]
        shape = _sizes(fields.get("shape"), where)
        return TensorSpec(shape, _string(fields, "format"), layout, memory)  # type: ignore[arg-type]
    except BadFileError:
        raise
    except TemperError as error:
        _fail(f"{where}: {error.what}")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TemperError(f"a value of type {type(value).__name__} cannot be saved: {value!r}")


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {_FLOAT}:
            if value[_FLOAT] not in ("inf", "-inf", "nan"):
                _fail(f"{value[_FLOAT]!r} is no special number")
            return float(value[_FLOAT])
        return {key: _restored(item) for key, item in value.items()}
    return value


def _fail(what: str) -> NoReturn:
    raise BadFileError(f"the program is damaged: {what}")


def _mapping(data: object, where: str) -> dict[str, Any]:
    return data if isinstance(data, dict) else _fail(f"{where} is no mapping")


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else _fail(f"{name} is no text")


def _strings(data: object, where: str) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        _fail(f"{where} is no list of names")
    return tuple(data)


def _sizes(data: object, where: str, count: int | None = None) -> Any:
    sound = isinstance(data, list) and all(type(n) is int and 0 <= n < 2**63 for n in data)
    if not isinstance(data, list) or not sound or (count is not None and len(data) != count):
        _fail(f"{where} has a wrong shape, grid or shard")
    return tuple(data)


def _one_of(value: object, allowed: tuple[str, ...], where: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        _fail(f"{where}: {value!r} is none of {' '.join(allowed)}")
    return value
