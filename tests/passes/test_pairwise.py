"""Dot products of embedded features, in the spellings of recommenders."""

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

ROWS = (30, 7, 51, 12)
FEATURES, BATCH = len(ROWS) + 1, 64
LOWER = torch.tril_indices(FEATURES, FEATURES, -1)


def stacked(x: torch.Tensor, rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([x, *rows], 1)


def dense_in_the_middle(x: torch.Tensor, rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([*rows[:2], x, *rows[2:]], 1)


def viewed(x: torch.Tensor, rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([x, *rows], 1).view(x.shape[0], -1, x.shape[1])


def lower_by_place(z: torch.Tensor) -> torch.Tensor:
    return torch.index_select(z.flatten(1), 1, LOWER[0] * FEATURES + LOWER[1])


def lower_by_index(z: torch.Tensor) -> torch.Tensor:
    return z[:, LOWER[0], LOWER[1]]


def lower_from_the_end(z: torch.Tensor) -> torch.Tensor:
    return z[:, LOWER[0] - FEATURES, LOWER[1] - FEATURES]


def everything(z: torch.Tensor) -> torch.Tensor:
    return z.flatten(1)


class Recommender(nn.Module):
    """A dense feature, tables, products of all pairs, a layer."""

    def __init__(self, stack: Callable[..., Any], choose: Callable[..., Any], width: int) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in ROWS)
        pairs = FEATURES**2 if choose is everything else FEATURES * (FEATURES - 1) // 2
        self.bottom, self.top = nn.Linear(13, width), nn.Linear(width + pairs, 48)
        self.stack, self.choose = stack, choose

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bottom(dense))
        t = self.stack(x, [table(ids[:, i]) for i, table in enumerate(self.tables)])
        z = torch.bmm(t, t.transpose(1, 2))
        return torch.relu(self.top(torch.cat((x, self.choose(z)), 1)))


def made(model: nn.Module, **options: Any) -> tuple[Built, tuple[torch.Tensor, torch.Tensor]]:
    seed = torch.Generator().manual_seed(7)
    dense = torch.randn(BATCH, 13, generator=seed)
    ids = torch.stack([torch.randint(0, r, (BATCH,), generator=seed) for r in ROWS], 1)
    ready = (model.eval().bfloat16(), (dense.bfloat16(), ids))
    built = compile_model(*ready, options={"optimization_level": 1, **options}).graphs[0]
    return built, (dense.bfloat16(), ids)


@pytest.mark.parametrize(
    ("stack", "choose", "width"),
    [(stacked, lower_by_place, 16), (viewed, lower_by_index, 32),
     (dense_in_the_middle, lower_by_place, 16), (stacked, everything, 32),
     (stacked, lower_from_the_end, 16)],
)  # fmt: skip
def test_pairs_of_features_are_one_lookup_and_weights(
    stack: Callable[..., Any], choose: Callable[..., Any], width: int
) -> None:
    built, inputs = made(Recommender(stack, choose, width))
    kinds = Counter(op.kind for op in built.program.ops)
    assert kinds["Embeddings"] == 2  # the tables, and the dense feature put in its row
    assert kinds["Gather"] == kinds["Tilize"] == 0
    plain, _ = made(Recommender(stack, choose, width), enable_fusing=False)
    ours, theirs = (
        Executor(b.program, b.weights).run(list(inputs))[0].float() for b in (built, plain)
    )
    with torch.no_grad():
        expected = Recommender(stack, choose, width)(inputs[0].float(), inputs[1])
    assert pcc(expected, ours) > 0.9999
    scale = float(expected.abs().max())
    # Products are rounded as before; a layer of two parts rounds twice.
    assert (ours - expected).abs().max() <= (theirs - expected).abs().max() + scale / 128
    ns = [estimate(b.program, traced=True).device_ns for b in (built, plain)]
    assert ns[0] < ns[1]


def test_an_id_beyond_its_own_table_is_an_error() -> None:
    built, (dense, ids) = made(Recommender(stacked, lower_by_place, 32))
    ids[5, 1] = ROWS[1]  # a row of the next table in the joined one
    with pytest.raises(IndexError, match="out of range"):
        Executor(built.program, built.weights).run([dense, ids])


class ChosenByTheCall(Recommender):
    """The pairs that the layer reads come with every call."""

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = torch.relu(self.bottom(dense))
        t = self.stack(x, [table(ids[:, i]) for i, table in enumerate(self.tables)])
        z = torch.bmm(t, t.transpose(1, 2))
        return torch.relu(self.top(torch.cat((x, z[:, pairs[0], pairs[1]]), 1)))


def test_pairs_that_a_call_chooses_are_not_put_into_the_weight() -> None:
    model = ChosenByTheCall(stacked, lower_by_index, 16)
    _, (dense, ids) = made(Recommender(stacked, lower_by_index, 16))
    upper = LOWER.flip(0).contiguous()
    example = (dense, ids, LOWER)
    ready = model.eval().bfloat16()
    built = compile_model(ready, example, options={"optimization_level": 1}).graphs[0]
    executor = Executor(built.program, built.weights)
    with torch.no_grad():
        for pairs in (LOWER, upper.roll(3, 1)):
            expected = ready.float()(dense.float(), ids, pairs)
            assert pcc(expected, executor.run([dense, ids, pairs])[0].float()) > 0.999
