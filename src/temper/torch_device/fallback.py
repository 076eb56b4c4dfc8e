"""The one kernel behind nearly every op of the device "tt": run it on the host bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from temper.errors import UsageError
from temper.options import get_custom_compile_options
from temper.torch_device.observer import clock_ns, note, observed
from temper.torch_device.storage import (
    DEVICE,
    host_view,
    over,
    rebase,
    wrap,
    wrap_storage,
)

aten = torch.ops.aten

# Index tensors may stay on the CPU, as torch allows on every device.
_INDEXING = frozenset(
    {
        aten.index.Tensor,
        aten.index_put_.default,
        aten.index_put.default,
        aten._index_put_impl_.default,
        aten._unsafe_index.Tensor,
        aten.index.Tensor_out,
        aten._unsafe_index_put.default,
    }
)

# A model that runs these op by op is one that nobody compiled.
_OF_A_MODEL = frozenset(
    f"aten::{name}"
    for name in ("addmm", "mm", "linear", "convolution", "embedding", "native_layer_norm")
)


@dataclass(frozen=True)
class _Plan:
    """What an op's schema says about memory, worked out once for each op."""

    name: str
    # For each return: the name of the argument that is returned, "" for a view of some
    # argument, None for a fresh tensor.
    returns: tuple[str | None, ...]
    # Position or keyword of each argument that is written to.
    writes: tuple[int | str, ...]
    names: tuple[str, ...]


_plans: dict[Any, _Plan] = {}


def _plan(op: Any) -> _Plan:
    plan = _plans.get(op)
    if plan is None:
        plan = _plans[op] = _read_schema(op)
    return plan


def _read_schema(op: Any) -> _Plan:
    schema = op._schema
    owners: dict[str, str] = {}
    writes: list[int | str] = []
    for position, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is None:
            continue
        if alias.is_write:
            writes.append(argument.name if argument.kwarg_only else position)
            for letter in alias.before_set:
                owners[letter] = argument.name
    returns: list[str | None] = []
    for result in schema.returns:
        alias = result.alias_info
        if alias is None:
            returns.append(None)
        else:
            returns.append(next((owners[x] for x in alias.before_set if x in owners), ""))
    names = tuple(argument.name for argument in schema.arguments)
    return _Plan(schema.name, tuple(returns), tuple(writes), names)


def _to_host(value: Any, seen: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device.type == DEVICE:
            host = host_view(value)
            seen.append(value)
            return host
        if value.dim() and value.device.type != "meta":
            seen.append(value)
        return value
    if isinstance(value, (list, tuple)):
        return [_to_host(item, seen) for item in value]
    if isinstance(value, torch.device) and value.type == DEVICE:
        return torch.device("cpu")
    return value


def _same_device_or_raise(op: Any, tensors: list[torch.Tensor]) -> None:
    foreign = next((t for t in tensors if t.device.type != DEVICE), None)
    if foreign is None:
        return
    if op in _INDEXING and tensors[0].device.type == DEVICE:
        return
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{DEVICE}:0 and {foreign.device}! (when running {op})"
    )


def _no_script_of_single_ops() -> None:
    """backend=codegen_py writes the script of a compiled graph: nothing would be written here."""
    asked = get_custom_compile_options()
    if asked.get("backend") == "codegen_py":
        raise UsageError(
            "backend=codegen_py writes the script of a compiled graph; this model runs op by op",
            try_=['model.compile(backend="tt") before the call',
                  "tt_torch.codegen_py(model, *inputs, export_path=DIR)"],
        )  # fmt: skip


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the op on the host bytes and hand back tensors on the device."""
    if op._schema.name in _OF_A_MODEL:
        _no_script_of_single_ops()
    plan = _plan(op)
    tensors: list[torch.Tensor] = []
    host_args = [_to_host(value, tensors) for value in args]
    host_kwargs = {name: _to_host(value, tensors) for name, value in kwargs.items()}
    _same_device_or_raise(op, tensors)
    for key in plan.writes:
        written = kwargs.get(key) if isinstance(key, str) else _at(args, key)
        if isinstance(written, torch.Tensor) and written.device.type != DEVICE:
            raise RuntimeError(
                f"{op} cannot write a result from {DEVICE}:0 into a tensor on {written.device}"
            )
    start_ns = clock_ns()
    result = op(*host_args, **host_kwargs)
    if observed():
        read = [v for name, v in host_kwargs.items() if name not in plan.writes]
        note(plan.name, start_ns, _tensors_in([*host_args, *read]), _tensors_in(result))
    else:
        note(plan.name, start_ns, [], [])
    for key in plan.writes:
        if isinstance(key, str):
            _adopt_resized(kwargs.get(key), host_kwargs.get(key))
        else:
            _adopt_resized(_at(args, key), _at(host_args, key))
    if len(plan.returns) == 1:
        return _to_device(result, plan, 0, args, kwargs, tensors)
    if not isinstance(result, (list, tuple)):
        return result
    return tuple(_to_device(item, plan, i, args, kwargs, tensors) for i, item in enumerate(result))


def _at(values: Sequence[Any], position: int) -> Any:
    return values[position] if position < len(values) else None


def _tensors_in(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in values if isinstance(item, torch.Tensor)]


def _to_device(
    value: Any,
    plan: _Plan,
    index: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
) -> Any:
    owner = plan.returns[index]
    if owner:
        position = plan.names.index(owner)
        return args[position] if position < len(args) else kwargs[owner]
    if isinstance(value, (list, tuple)):
        return [_to_device(item, plan, index, args, kwargs, tensors) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    if owner == "":
        for tensor in tensors:
            storage = tensor.untyped_storage()
            host = getattr(storage, "host", None)
            if host is not None and host._cdata == value.untyped_storage()._cdata:
                return over(
                    storage, value.dtype, value.storage_offset(), value.size(), value.stride()
                )
    return wrap(value)


def _adopt_resized(tensor: Any, host: Any) -> None:
    """Let a tensor follow its host view when a kernel gave that another size (``out=``)."""
    if isinstance(tensor, (list, tuple)):
        for one, its_host in zip(tensor, host, strict=True):
            _adopt_resized(one, its_host)
    elif isinstance(tensor, torch.Tensor) and (
        tensor.size() != host.size() or tensor.stride() != host.stride()
    ):
        storage = wrap_storage(host.untyped_storage())
        rebase(tensor, storage, host.storage_offset(), host.size(), host.stride())
