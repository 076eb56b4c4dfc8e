"""Rows of several tables that are joined or summed: one lookup, in any spelling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from temper.compiler.pipeline import Built, compile_model
from temper.cost import estimate
from temper.formats import pcc
from temper.targets.virtual.executor import Executor

SIZES = (30, 7, 51, 12, 9)
Rows = list[torch.Tensor]
Read = Callable[["Tables", torch.Tensor, Rows], torch.Tensor]


class Tables(nn.Module):
    """Tables, and a layer over their rows in some spelling."""

    def __init__(self, read: Read, width: int, beside: int = 0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in SIZES)
        self.layer = nn.Linear(len(SIZES) * width + beside, 48)
        self.one = nn.Embedding(sum(SIZES), width)
        self.register_buffer("firsts", torch.tensor([0, *SIZES[:-1]]).cumsum(0))
        self.read = read

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.read(self, x, [table(ids[:, i]) for i, table in enumerate(self.tables)])


def side_by_side(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    return m.layer(torch.cat(rows, 1))


def before_others(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    return m.layer(torch.cat([*rows, x], -1))


def between_others(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    return m.layer(torch.cat([x[:, :3], torch.cat(rows, 1), x[:, 3:]], 1))


def factorized(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    """A factorization machine: the square of the sum less the sum of squares, and a layer."""
    e = torch.stack(rows, 1)
    pairs = (e.sum(1) ** 2 - (e * e).sum(1)).sum(1, keepdim=True)
    return m.layer(e.flatten(1)) + pairs


def summed(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    return torch.cat(rows, 1).sum(1, keepdim=True)


def multiplied(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Something other than a layer reads the columns."""
    joined = torch.cat([x, *rows], 1)
    return joined * m.layer(joined).sum(1, keepdim=True)


def tokens(m: Tables, x: torch.Tensor, rows: Rows) -> torch.Tensor:
    return torch.softmax(torch.stack([*rows, rows[0] * 2], 1), -1)


class OneTable(Tables):
    """All tables in one, as torchfm writes it."""

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        e = self.one(ids + self.firsts)  # type: ignore[operator]
        return self.layer(e.view(e.shape[0], -1)) + ((e**2).sum(1)).sum(1, keepdim=True)


def made(model: nn.Module, batch: int, **options: Any) -> tuple[Built, list[torch.Tensor]]:
    seed = torch.Generator().manual_seed(7)
    x = torch.randn(batch, 7, generator=seed).bfloat16()
    ids = torch.stack([torch.randint(0, r, (batch,), generator=seed) for r in SIZES], 1)
    wanted = {"optimization_level": 1, "compile_cache": False, **options}
    built = compile_model(model.eval().bfloat16(), (x, ids), options=wanted).graphs[0]
    return built, [x, ids]


CASES: list[tuple[type[Tables], Read, int, int, int]] = [
    (Tables, side_by_side, 16, 0, 64), (Tables, side_by_side, 32, 0, 5),
    (Tables, before_others, 16, 7, 64), (Tables, between_others, 32, 7, 64),
    (Tables, factorized, 16, 0, 64), (Tables, summed, 1, 0, 64), (Tables, multiplied, 16, 7, 64),
    (OneTable, side_by_side, 16, 0, 64),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "read", "width", "beside", "batch"), CASES)
def test_rows_of_several_tables_are_one_lookup(
    kind: type[Tables], read: Read, width: int, beside: int, batch: int
) -> None:
    built, inputs = made(kind(read, width, beside), batch)
    assert Counter(op.kind for op in built.program.ops)["Embeddings"] == 1
    plain, _ = made(kind(read, width, beside), batch, enable_fusing=False)
    ours, theirs = (
        Executor(b.program, b.weights).run(list(inputs))[0].float() for b in (built, plain)
    )
    with torch.no_grad():
        expected = kind(read, width, beside).bfloat16().float()(inputs[0].float(), inputs[1])
    assert pcc(expected, ours) > 0.999
    scale = float(expected.abs().max())  # a layer of two parts rounds once more
    assert (ours - expected).abs().max() <= (theirs - expected).abs().max() + scale / 128
    ns = [estimate(b.program, traced=True).device_ns for b in (built, plain)]
    assert ns[0] < ns[1]


def test_rows_that_something_else_reads_as_well_are_looked_up_by_themselves() -> None:
    built, inputs = made(Tables(tokens, 32), 64)
    kinds = Counter(op.kind for op in built.program.ops)
    assert kinds["Embeddings"] == 2  # the first, read twice, and all others
    with torch.no_grad():
        expected = Tables(tokens, 32).bfloat16().float()(inputs[0].float(), inputs[1])
    ours = Executor(built.program, built.weights).run(list(inputs))[0].float()
    assert pcc(expected, ours) > 0.9999


@pytest.mark.parametrize("read", [side_by_side, multiplied])
def test_an_id_beyond_its_own_table_is_an_error(read: Read) -> None:
    built, (x, ids) = made(Tables(read, 32, 7 if read is multiplied else 0), 64)
    ids[5, 1] = SIZES[1]  # a row of the next table in the joined one
    with pytest.raises(IndexError, match="out of range"):
        Executor(built.program, built.weights).run([x, ids])


@pytest.mark.parametrize(("kind", "read"), [(Tables, factorized), (OneTable, side_by_side)])
def test_tables_whose_zeros_would_fill_the_dram_are_not_widened(
    kind: type[Tables], read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("temper.passes.join_lookups._SHARE", 1 << 60)  # room for no zeros
    built, inputs = made(kind(read, 16), 64)
    tables = [built.program.values[op.inputs[1]] for op in built.program.ops
              if op.kind == "Embeddings"]  # fmt: skip
    assert {spec.shape[-1] for spec in tables} == {16}
    with torch.no_grad():
        expected = kind(read, 16).bfloat16().float()(inputs[0].float(), inputs[1])
    ours = Executor(built.program, built.weights).run(list(inputs))[0].float()
    assert pcc(expected, ours) > 0.999
