"""Other users in the place of these, on the device: what beam search does after every token.

Rows of a cache are looked up in the order of the new users and written back. Blocks of a tile's
height are the rows, so that a row fits the buffers of a lookup whatever the context.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from temper.capture.capture import capture
from temper.compiler.pipeline import Built, build
from temper.frontdoor.language.step import STATE
from temper.frontdoor.language.unwritten import unwritten
from temper.graph import cache_ops
from temper.options import Options
from temper.program.tensor import TILE


class ReorderStep(torch.nn.Module):
    """All buffers of a cache with their users in another order; ``rows`` as ``order_rows`` gives
    them, one for each size of buffer."""

    def __init__(self, shapes: Mapping[str, torch.Size], dtype: torch.dtype) -> None:
        super().__init__()
        self.cache = torch.nn.Module()
        for path, shape in shapes.items():
            self.cache.register_buffer(path.removeprefix(f"{STATE}."), unwritten(shape, dtype))
        self._sizes = _sizes(shapes)

    def forward(self, *rows: torch.Tensor) -> torch.Tensor:
        for _, buffer in self.cache.named_buffers():
            users, heads, length, depth = buffer.shape
            height = _height(length)
            index = rows[self._sizes.index((heads, length))]
            blocks = buffer.reshape(users * heads * length // height, height * depth)
            picked = F.embedding(index, blocks).reshape(buffer.shape)
            made = buffer
            for user in range(users):
                made = cache_ops.fill_cache(made, picked[user : user + 1], user)
            buffer.copy_(made)
        return rows[0]


def order_rows(shapes: Mapping[str, torch.Size], order: torch.Tensor) -> list[torch.Tensor]:
    """For each size of buffer: which block of the old cache stands at each place of the new one."""
    counts = [heads * length // _height(length) for heads, length in _sizes(shapes)]
    return [(order[:, None] * count + torch.arange(count)).flatten() for count in counts]


def build_reorder(
    shapes: Mapping[str, torch.Size], dtype: torch.dtype, options: Options, name: str
) -> Built:
    """The program that reorders the users of a cache with these buffers."""
    users = next(iter(shapes.values()))[0]
    example = order_rows(shapes, torch.zeros(users, dtype=torch.long))
    captured = capture(ReorderStep(shapes, dtype), tuple(example), state=STATE)
    captured.name = f"{name}_reorder"
    return build(captured, options, cached=True)


def _sizes(shapes: Mapping[str, torch.Size]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((int(s[1]), int(s[2])) for s in shapes.values()))


def _height(length: int) -> int:
    """Rows of a block: a tile's, or one where an encoder's result has another length."""
    return TILE if length % TILE == 0 else 1
