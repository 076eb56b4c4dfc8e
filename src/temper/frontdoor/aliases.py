"""Memory that inputs and outputs of a graph share, as they would in eager torch.

A program computes new tensors. Where the model returns a view of an input, or of another output,
the view is made anew, so that a later change of one is seen in the other. Inputs that overlap
while the graph changes one of them are left to eager torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from temper.torch_device.device import host_view, is_tt


@dataclass(frozen=True)
class View:
    """An output that lies in the memory of an input or of another output."""

    output: int
    of_input: bool
    base: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # bytes after the first one of the base
    dtype: torch.dtype
    itself: bool  # the very tensor, as where an op in place gives its operand back
    conjugated: bool
    negated: bool

    def of(self, base: torch.Tensor) -> torch.Tensor:
        """This view of the tensor that has the memory now."""
        if self.itself:
            return base
        if self.dtype is base.dtype:
            first = base.storage_offset() + self.offset // base.itemsize
            made = base.as_strided(self.size, self.stride, first)
        else:
            first = (_first_byte(base) + self.offset) // self.dtype.itemsize
            made = torch.empty(0, dtype=self.dtype, device=base.device)
            made = made.set_(base.untyped_storage(), first, self.size, self.stride)
        made = made if made.is_conj() == self.conjugated else made.conj()
        return made if made.is_neg() == self.negated else torch._neg_view(made)


def may_alias(module: torch.fx.GraphModule) -> bool:
    """Whether some output of a Dynamo graph shares memory with an input or another output."""
    nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
    seen = {memory_of(node.meta.get("example_value")) for node in nodes} - {None}
    for node in _outputs(module):
        memory = memory_of(node.meta.get("example_value"))
        if memory in seen:
            return True
        seen.add(memory)
        seen.discard(None)
    return False


def views(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[View]:
    """Which outputs are views, for inputs of these shapes; found by a run without data."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = [mode.from_tensor(t) if isinstance(t, torch.Tensor) else t for t in inputs]
        made = list(module(*fakes))
    bases: dict[int | None, tuple[bool, int, torch.Tensor]] = {}
    for position, fake in enumerate(fakes):
        if memory_of(fake) is not None:
            bases.setdefault(memory_of(fake), (True, position, fake))
    for index, fake in enumerate(made):
        if _whole(fake):
            bases.setdefault(memory_of(fake), (False, index, fake))
    found: list[View] = []
    for index, fake in enumerate(made):
        of_input, place, base = bases.get(memory_of(fake), (False, index, fake))
        if of_input or fake is not base:
            offset = _first_byte(fake) - _first_byte(base)
            found.append(
                View(
                    index,
                    of_input,
                    place,
                    tuple(fake.shape),
                    tuple(fake.stride()),
                    offset,
                    fake.dtype,
                    itself=fake is base,
                    conjugated=fake.is_conj(),
                    negated=fake.is_neg(),
                )
            )
    return found


def overlaps(inputs: Sequence[Any], changed: Iterable[int]) -> bool:
    """Whether an input that the graph changes shares memory with another one."""
    spans = [_span(t) if isinstance(t, torch.Tensor) else (0, 0) for t in inputs]
    for position in changed:
        start, end = spans[position]
        for other, (from_, to) in enumerate(spans):
            if other != position and start < to and from_ < end:
                return True
    return False


def _outputs(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return list(module.graph.output_node().all_input_nodes)


def memory_of(value: Any) -> int | None:
    """What tells the memory of a tensor from that of another."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return int(value.untyped_storage()._cdata)


def _first_byte(value: torch.Tensor) -> int:
    return int(value.storage_offset()) * value.itemsize


def _whole(value: Any) -> bool:
    """Whether a tensor is all of its memory, in order: others can be made as views of it."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_contiguous()
        and value.untyped_storage().nbytes() == value.numel() * value.itemsize
    )


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte, and one more, that a tensor can touch."""
    if tensor.numel() == 0 or tensor.layout is not torch.strided:
        return 0, 0
    start = (host_view(tensor) if is_tt(tensor) else tensor).data_ptr()
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.itemsize
