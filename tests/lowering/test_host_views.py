"""What only host ops read stays on the host, views of it included."""

from __future__ import annotations

import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.targets.virtual.executor import Executor


class Bags(nn.Module):
    """Bags whose offsets come with the call, a row of indices and of offsets for each table."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList(nn.EmbeddingBag(40, 32, mode="sum") for _ in range(3))

    def forward(self, offsets: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return sum(table(ids[i], offsets[i]) for i, table in enumerate(self.tables))  # type: ignore[return-value]


def test_views_of_inputs_that_only_host_ops_read_are_taken_there() -> None:
    model = Bags().eval().bfloat16()
    seed = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 40, (3, 96), generator=seed)
    offsets = torch.stack([torch.arange(32) * 3, torch.arange(32), torch.arange(32) * 2])
    expected = model.float()(offsets, ids).detach()
    for level in (0, 1, 2):
        options = {"optimization_level": level, "compile_cache": False}
        built = compile_model(model.bfloat16(), (offsets, ids), options=options).graphs[0]
        program = built.program
        assert len(program.host_ops) == 3
        assert not any(op.kind in ("Slice", "Reshape", "Untilize") for op in program.ops)
        assert all(program.values[name].memory.buffer == "host" for name in program.inputs)
        ours = Executor(program, built.weights).run([offsets, ids])[0]
        torch.testing.assert_close(ours.float(), expected, rtol=2e-2, atol=2e-2)


class Mixed(nn.Module):
    """A host op and the chip read the same input."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x[:, 1:].transpose(0, 1)
        return torch.linalg.det(y.unsqueeze(0).squeeze(0)[:3]), y * 2


def test_an_input_that_the_chip_reads_too_is_sent() -> None:
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(2))
    options = {"optimization_level": 1, "compile_cache": False}
    built = compile_model(Mixed(), (x,), options=options).graphs[0]
    assert built.program.values[built.program.inputs[0]].memory.buffer == "dram"
    determinant, doubled = Executor(built.program, built.weights).run([x])
    torch.testing.assert_close(determinant, Mixed()(x)[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(doubled, Mixed()(x)[1])
