"""The kernels behind the device "tt": every op runs on the host bytes of its tensors.

One fallback serves nearly all ops. Explicit kernels exist only where torch needs the device's own
answer: making and sharing memory, copies, and the ops that torch splits by device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from temper.frontend.device_observer import clock_ns, eager_ops, observer
from temper.frontend.device_storage import (
    _CPU_KERNEL,
    DEVICE,
    HostStorage,
    as_host_storage,
    host_of,
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
            host = host_of(value)
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


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the op on the host bytes and hand back tensors on the device."""
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
    watch = observer()
    start_ns = clock_ns()
    result = op(*host_args, **host_kwargs)
    eager_ops.by_name[plan.name] += 1
    for key in plan.writes:
        if isinstance(key, str):
            _adopt_resized(kwargs.get(key), host_kwargs.get(key))
        else:
            _adopt_resized(_at(args, key), _at(host_args, key))
    if watch is not None:
        inputs = [t for t in (*host_args, *host_kwargs.values()) if isinstance(t, torch.Tensor)]
        watch(plan.name, start_ns, clock_ns(), inputs, _tensors_in(result))
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
            if (
                isinstance(storage, HostStorage)
                and storage.host._cdata == value.untyped_storage()._cdata
            ):
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


def _check_index(device: torch.device | None) -> None:
    if device is not None and device.index:
        raise RuntimeError(f"there is one device {DEVICE!r}, {DEVICE}:0; asked for {device}")


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    _check_index(device)
    made = torch.empty(
        size,
        dtype=dtype,
        layout=layout or torch.strided,
        device="cpu",
        memory_format=memory_format or torch.contiguous_format,
    )
    return wrap(made)


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    _check_index(device)
    return wrap(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    watch = observer()
    start_ns = clock_ns()
    host_source = host_of(source) if source.device.type == DEVICE else source
    host_target = host_of(target) if target.device.type == DEVICE else target
    host_target.copy_(host_source)
    name = "aten::_copy_from"
    eager_ops.by_name[name] += 1
    if watch is not None:
        watch(name, start_ns, clock_ns(), [host_source], [host_target])
    return target


def _copy_from_and_resize(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.size() != source.size():
        target.resize_(source.size())
    return _copy_from(source, target)


def _set_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _set_storage(
        tensor, source.untyped_storage(), source.storage_offset(), source.size(), source.stride()
    )


def _set_storage(
    tensor: torch.Tensor,
    storage: Any,
    offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] = (),
) -> torch.Tensor:
    storage = as_host_storage(storage)
    if size is None:
        size = (storage.nbytes() // tensor.element_size(),)
    return rebase(tensor, storage, offset, size, stride)


def _set_nothing(tensor: torch.Tensor) -> torch.Tensor:
    return rebase(tensor, wrap_storage(torch.UntypedStorage(0)), 0, (0,), (1,))


def _resize(
    tensor: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    host = host_of(tensor)
    fits = tensor.untyped_storage().nbytes()
    wanted = torch.empty(size, dtype=tensor.dtype, device="meta")
    if memory_format is not None:
        wanted = wanted.to(memory_format=memory_format)
    needed = (tensor.storage_offset() + wanted.numel()) * tensor.element_size()
    if needed <= fits:
        storage: Any = tensor.untyped_storage()
        return rebase(tensor, storage, tensor.storage_offset(), size, wanted.stride())
    made = torch.empty_strided(size, wanted.stride(), dtype=tensor.dtype)
    flat = host.reshape(-1)
    made.as_strided((made.numel(),), (1,))[: flat.numel()].copy_(flat)
    return rebase(tensor, wrap_storage(made.untyped_storage()), 0, size, wanted.stride())


def _share(op: Any) -> Callable[..., Any]:
    """A view is the same metadata arithmetic on every device: use the CPU's."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return op.redispatch(_CPU_KERNEL, *args, **kwargs)

    return kernel


def _convolution(*args: Any) -> Any:
    return _fallback(aten.convolution.default, *args)


def _convolution_backward(
    grad: torch.Tensor,
    input_: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Any:
    bias_sizes = [weight.size(1) * groups if transposed else weight.size(0)]
    return _fallback(
        aten.convolution_backward.default,
        grad, input_, weight, bias_sizes, stride, padding, dilation, transposed,
        output_padding, groups, mask,
    )  # fmt: skip


_SHARED = (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
)

KERNELS: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "set_.source_Tensor": _set_tensor,
    "set_.source_Storage": _set_storage,
    "set_.source_Storage_storage_offset": _set_storage,
    "set_": _set_nothing,
    "resize_": _resize,
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
    **{op._schema.name.removeprefix("aten::"): _share(op) for op in _SHARED},
}


def register(keep: list[Any]) -> None:
    """Give torch the kernels; ``keep`` holds the libraries for the life of the process."""
    everything: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    everything.fallback(_fallback, "PrivateUse1")
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, "PrivateUse1")
    if torch.version.cuda is None and torch.version.hip is None:
        # DataLoader(pin_memory=True) asks the accelerator for pinned memory: any will do for us.
        library.impl("_pin_memory", lambda tensor, device=None: tensor.clone(), "CPU")
    keep += [everything, library]
