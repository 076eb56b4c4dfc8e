"""Columns that are joined side by side stay in shards."""

from __future__ import annotations

import torch
from torch import nn

from temper.compiler.pipeline import compile_model


class _Skip(nn.Module):
    """Two convolutions side by side, and one over both."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.both = nn.Conv2d(2 * width, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.both(torch.cat([x, torch.relu(self.second(x))], 1)).mean((2, 3))


def _joins(width: int):
    torch.manual_seed(0)
    program = compile_model(
        _Skip(width).to(torch.bfloat16).eval(),
        (torch.zeros(2, 3, 64, 64, dtype=torch.bfloat16),),
        options={"optimization_level": 2, "chip": "n150", "enable_trace": True,
                 "compile_cache": False},
    ).programs[0]  # fmt: skip
    joins = [op for op in program.ops if op.kind == "Concat"]
    return program, [(program.input_specs(op), program.output_specs(op)[0]) for op in joins]


def test_whole_tiles_of_columns_are_joined_in_height_shards():
    _, joins = _joins(64)
    ((inputs, out),) = joins
    assert out.memory.sharding == "height"
    # ttnn wants the same cores and rows of all, each with its own columns.
    assert {spec.memory.grid for spec in inputs} == {out.memory.grid}
    assert [spec.memory.shard[1] for spec in inputs] == [64, 64]
    assert {spec.memory.shard[0] for spec in inputs} == {out.memory.shard[0]}
    assert out.memory.shard[1] == 128


def test_columns_that_end_inside_a_tile_are_not_joined_in_tiles_of_shards():
    _, joins = _joins(48)
    assert not any(out.layout == "tile" and out.memory.sharded for _, out in joins)
