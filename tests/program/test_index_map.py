"""Index maps against torch: any chain of views, its composition, its inverse, its moves."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from temper.program.index_map import IndexMap, identity, joined_maps
from temper.program.index_moves import Move, moves, moves_cut_last

_SIZES = st.sampled_from([1, 2, 3, 4, 6])


def _shapes_of(count: int, draw: st.DrawFn) -> list[int]:
    shape = []
    for _ in range(draw(st.integers(0, 3))):
        part = draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
        shape.append(part)
        count //= part
    return [*shape, count]


@st.composite
def chains(draw: st.DrawFn) -> tuple[IndexMap, torch.Tensor]:
    """A map and the same views done by torch on the numbers 0, 1, 2, ..."""
    shape = draw(st.lists(_SIZES, min_size=1, max_size=4))
    chart: IndexMap = identity(shape)
    value = torch.arange(math.prod(shape)).view(shape)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["reshape", "permute", "slice", "flip", "expand", "repeat"]))
        dim = draw(st.integers(0, value.dim() - 1))
        made: IndexMap | None
        if kind == "reshape":
            wanted = _shapes_of(value.numel(), draw)
            made, after = chart.reshape(wanted), value.reshape(wanted)
        elif kind == "permute":
            dims = draw(st.permutations(range(value.dim())))
            made, after = chart.permute(dims), value.permute(dims)
        elif kind == "slice":
            start = draw(st.integers(0, value.shape[dim] - 1))
            step = draw(st.sampled_from([1, 1, 1, 2, 3]))
            count = draw(st.integers(1, len(range(start, value.shape[dim], step))))
            made = chart.slice(dim, start, count, step)
            after = value.index_select(dim, start + step * torch.arange(count))
        elif kind == "flip":
            made, after = chart.flip([dim]), value.flip(dim)
        elif kind == "expand":
            wanted = [2 if s == 1 else s for s in value.shape]
            made, after = chart.expand(wanted), value.expand(wanted)
        else:
            repeats = [2 if i == dim else 1 for i in range(value.dim())]
            made, after = chart.repeat(repeats), value.repeat(repeats)
        if made is None or after.numel() > 4000:
            break
        chart, value = made, after
    return chart, value


def _done(x: torch.Tensor, step: Move) -> torch.Tensor:
    if step.kind == "reshape":
        return x.reshape(step.shape)
    if step.kind == "slice":
        return x[tuple(slice(b, b + n) for b, n in zip(step.values, step.shape, strict=True))]
    return getattr(x, step.kind)(step.values)  # type: ignore[no-any-return]


@settings(max_examples=200, deadline=None)
@given(chains())
def test_a_chain_of_views_reads_what_torch_reads(chain: tuple[IndexMap, torch.Tensor]) -> None:
    chart, value = chain
    assert chart.shape == tuple(value.shape)
    assert np.array_equal(chart.indices(), value.numpy())


@settings(max_examples=200, deadline=None)
@given(chains())
def test_the_moves_of_a_map_give_its_elements(chain: tuple[IndexMap, torch.Tensor]) -> None:
    chart, value = chain
    for steps in (moves(chart), moves_cut_last(chart)):
        x = torch.arange(math.prod(chart.source)).view(chart.source)
        for step in steps or ():
            x = _done(x, step)
        assert steps is None or torch.equal(x, value)
    steps = moves(chart)
    if steps is None:
        return  # a slice with a step that divides nothing; torch's own ops stay
    assert len(steps) <= (1 if chart.is_reshape else 8)
    assert not (chart.is_identity and steps)


@settings(max_examples=150, deadline=None)
@given(chains(), st.data())
def test_maps_compose_as_torch_composes_views(
    chain: tuple[IndexMap, torch.Tensor], data: st.DataObject
) -> None:
    chart, value = chain
    dims = data.draw(st.permutations(range(value.dim())))
    after = identity(value.shape).permute(dims)
    dim = data.draw(st.integers(0, value.dim() - 1))
    start = data.draw(st.integers(0, after.shape[dim] - 1))
    cut = after.slice(dim, start, after.shape[dim] - start)
    assert cut is not None
    joined = chart.then(cut.flip([dim]))
    if joined is not None:
        expected = value.permute(dims).narrow(dim, start, after.shape[dim] - start).flip(dim)
        assert np.array_equal(joined.indices(), expected.numpy())


@settings(max_examples=150, deadline=None)
@given(chains())
def test_a_bijection_followed_by_its_inverse_is_nothing(
    chain: tuple[IndexMap, torch.Tensor],
) -> None:
    chart, value = chain
    once = sorted(value.flatten().tolist()) == list(range(math.prod(chart.source)))
    back = chart.inverse()
    assert back is None or once
    if back is not None:
        again = value.flatten().numpy()[back.indices()]
        assert np.array_equal(again.ravel(), np.arange(value.numel()))


def test_two_spellings_of_one_split_are_one_map() -> None:
    """timm's and einops' ways to the keys of a projection."""
    whole = identity((8, 197, 1152))
    first = whole.reshape((8, 197, 3, 6, 64))
    second = whole.slice(2, 384, 384)
    assert first is not None
    assert second is not None
    heads = second.reshape((8, 197, 6, 64))
    assert heads is not None
    assert first.permute((2, 0, 3, 1, 4)).select(0, 1) == heads.permute((0, 2, 1, 3))


def test_rows_that_move_whole_let_a_linear_layer_pass() -> None:
    turned = identity((196, 8, 384)).permute((1, 0, 2))
    wide = turned.of_rows(1536)
    assert wide == identity((196, 8, 1536)).permute((1, 0, 2))
    assert identity((196, 8, 384)).permute((0, 2, 1)).of_rows(8) is None


@given(chains(), st.data())
@settings(max_examples=200, deadline=None)
def test_parts_of_a_map_joined_again_read_what_torch_reads(
    chain: tuple[IndexMap, torch.Tensor], data: st.DataObject
) -> None:
    chart, _ = chain
    rank = len(chart.shape)
    if not rank:
        return
    cut, along = (data.draw(st.integers(0, rank - 1)) for _ in range(2))
    parts = data.draw(st.sampled_from([n for n in (1, 2, 3, 4) if chart.shape[cut] % n == 0]))
    size = chart.shape[cut] // parts
    pieces = [chart.slice(cut, i * size, size) for i in range(parts)]
    if any(piece is None for piece in pieces):
        return
    known = [piece for piece in pieces if piece is not None]
    whole = joined_maps(known, along)
    wanted = np.concatenate([piece.indices() for piece in known], along)
    assert whole is None or (whole.indices() == wanted).all()
    if cut == along and len(chart.axes[cut]) == 1:
        assert whole == chart


@given(st.permutations(range(4)), st.sets(st.integers(0, 3)), st.booleans(), st.booleans())
def test_a_sum_changes_places_with_a_map_of_whole_axes(
    order: list[int], dims: set[int], keep: bool, flat: bool
) -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    chart, y = identity(x.shape).permute(order), x.permute(order)
    if flat:
        shape = (y.shape[0] * y.shape[1], *y.shape[2:])
        joined = chart.reshape(shape)
        assert joined is not None
        chart, y, dims = joined, y.reshape(shape), {d for d in dims if d < 3}
    over = chart.without(dims, keep=keep)
    assert over is not None
    axes, rest = over
    summed = x.sum(axes) if axes else x
    wanted = y.sum(sorted(dims), keepdim=keep) if dims else y
    assert tuple(summed.shape) == rest.source
    found = summed.flatten()[torch.from_numpy(rest.indices())]
    torch.testing.assert_close(found.reshape(rest.shape), wanted)


def test_a_sum_over_part_of_an_axis_stays_behind_its_map() -> None:
    halves = identity((4, 6)).reshape((4, 2, 3))
    assert halves is not None
    assert halves.without({1}, keep=False) is None
    assert halves.without({1, 2}, keep=False) is not None
