"""Random graphs of views, joins, sums, layers and broadcast operands: the passes change no value.

The passes alone are run and the graph is interpreted by torch in float64, so that hundreds of
graphs take seconds; values are small integers.
"""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
from torch import fx

from temper.graph.captured import Argument, Captured
from temper.options import resolve
from temper.passes.join_columns import join_columns
from temper.passes.views import cancel_views

aten = torch.ops.aten
SIZES = (2, 3, 4, 6)
MOST = 5000  # elements


class Maker:
    """A graph under construction; every node carries its value."""

    def __init__(self, seed: int) -> None:
        self.chance, self.graph = random.Random(seed), fx.Graph()
        self.arguments: list[Argument] = []
        self.given: list[torch.Tensor] = []
        torch.manual_seed(seed)
        shape = [self.chance.choice(SIZES) for _ in range(self.chance.randint(2, 4))]
        self.pool = [self.placeholder(shape, "input")]
        single = [self.chance.choice((1, size)) for size in shape]
        self.small = [self.placeholder(single, "weight"), self.placeholder([1], "input")]
        self.small += [self.placeholder([size], "weight") for size in SIZES]
        self.layers = [self.placeholder([4, size], "weight") for size in SIZES]

    def placeholder(self, shape: list[int], role: Any) -> fx.Node:
        node = self.graph.placeholder(f"given_{len(self.given)}")
        node.meta["val"] = torch.randint(-4, 5, shape).double()
        self.arguments.append(Argument(node.name, role, node.name, len(self.given)))
        self.given.append(node.meta["val"])
        return node

    def call(self, target: Any, *args: Any) -> fx.Node:
        made = target(*fx.node.map_arg(args, lambda n: n.meta["val"]))
        node = self.graph.call_function(target, args)
        node.meta["val"] = made
        return node

    def step(self) -> fx.Node | None:
        x = self.chance.choice([*self.pool, *self.pool[-3:]])
        names = ("reshape", "permute", "cut", "unary", "pair", "spread", "reduced", "joined",
                 "layer", "flipped")  # fmt: skip
        return getattr(self, self.chance.choice(names))(x, x.meta["val"])  # type: ignore[no-any-return]

    def reshape(self, x: fx.Node, value: torch.Tensor) -> fx.Node:
        left, shape = value.numel(), []
        while left > 1 and len(shape) < 4:
            shape.append(self.chance.choice([n for n in range(1, left + 1) if left % n == 0]))
            left //= shape[-1]
        shape.append(left)
        self.chance.shuffle(shape)
        return self.call(aten.reshape.default, x, shape)

    def permute(self, x: fx.Node, value: torch.Tensor) -> fx.Node:
        order = list(range(value.dim()))
        self.chance.shuffle(order)
        return self.call(aten.permute.default, x, order)

    def cut(self, x: fx.Node, value: torch.Tensor) -> fx.Node | None:
        if not value.dim():
            return None
        dim = self.chance.randrange(value.dim())
        first = self.chance.randrange(value.shape[dim])
        if value.dim() > 1 and self.chance.random() < 0.3:
            return self.call(aten.select.int, x, dim, first)
        last = self.chance.randint(first + 1, value.shape[dim])
        return self.call(aten.slice.Tensor, x, dim, first, last, self.chance.choice((1, 1, 2)))

    def unary(self, x: fx.Node, value: torch.Tensor) -> fx.Node:
        return self.call(self.chance.choice((aten.neg.default, aten.relu.default)), x)

    def pair(self, x: fx.Node, value: torch.Tensor) -> fx.Node:
        others = [p for p in self.pool if p.meta["val"].shape == value.shape]
        target = self.chance.choice((aten.add.Tensor, aten.sub.Tensor))
        return self.call(target, x, self.chance.choice(others))

    def spread(self, x: fx.Node, value: torch.Tensor) -> fx.Node | None:
        others = [p for p in (*self.pool, *self.small) if _spreads(p.meta["val"], value)]
        both = [x, self.chance.choice(others)] if others else []
        self.chance.shuffle(both)
        return self.call(aten.sub.Tensor, *both) if both else None

    def reduced(self, x: fx.Node, value: torch.Tensor) -> fx.Node | None:
        if value.dim() < 2:
            return None
        dims = self.chance.sample(range(value.dim()), self.chance.choice((1, 1, 2)))
        target = self.chance.choice((aten.sum.dim_IntList, aten.amax.default, aten.mean.dim))
        return self.call(target, x, [d - value.dim() for d in dims], self.chance.random() < 0.4)

    def joined(self, x: fx.Node, value: torch.Tensor) -> fx.Node | None:
        if not value.dim():
            return None
        dim = self.chance.randrange(value.dim())
        whole = self.call(aten.split.Tensor, x, self.chance.choice((1, 2, 3)), dim)
        if value.dim() > 1 and self.chance.random() < 0.4:
            whole = self.call(aten.unbind.int, x, dim)
        parts = [self.call(operator.getitem, whole, i) for i in range(len(whole.meta["val"]))]
        if self.chance.random() < 0.25:
            self.chance.shuffle(parts)
        shapes = {tuple(p.meta["val"].shape) for p in parts}
        rank = parts[0].meta["val"].dim()
        if len(shapes) == 1 and self.chance.random() < 0.5:
            return self.call(aten.stack.default, parts, self.chance.randint(-rank - 1, rank))
        along = [d for d in range(rank) if len({s[:d] + s[d + 1 :] for s in shapes}) == 1]
        return self.call(aten.cat.default, parts, self.chance.choice(along)) if along else None

    def layer(self, x: fx.Node, value: torch.Tensor) -> fx.Node | None:
        fits = [w for w in self.layers if value.dim() and w.meta["val"].shape[1] == value.shape[-1]]
        return self.call(aten.linear.default, x, fits[0]) if fits else None

    def flipped(self, x: fx.Node, value: torch.Tensor) -> fx.Node | None:
        dims = [self.chance.randrange(value.dim())] if value.dim() else []
        return self.call(aten.flip.default, x, dims) if dims else None

    def made(self) -> Captured:
        for _ in range(self.chance.randint(3, 12)):
            node = self.step()
            if node is not None and 0 < node.meta["val"].numel() <= MOST:
                self.pool.append(node)
        self.graph.output((*self.chance.sample(self.pool, min(2, len(self.pool))), self.pool[-1]))
        weights = {a.path: self.given[a.position] for a in self.arguments if a.role == "weight"}
        return Captured(fx.GraphModule({}, self.graph), self.arguments, weights)


def _spreads(small: torch.Tensor, large: torch.Tensor) -> bool:
    sizes = zip(reversed(small.shape), reversed(large.shape), strict=False)
    return small.dim() <= large.dim() and all(a in (1, b) for a, b in sizes)


def values(captured: Captured, given: dict[str, torch.Tensor]) -> Any:
    known = {a.node: captured.weights.get(a.path) for a in captured.arguments}
    names = [n.name for n in captured.graph.nodes if n.op == "placeholder"]
    captured.module.recompile()
    return fx.Interpreter(captured.module).run(
        *(given[name] if name in given else known[name] for name in names)
    )


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_passes_over_views_change_no_value(first: int) -> None:
    hits = 0
    for seed in range(first, first + 100):
        maker = Maker(seed)
        captured = maker.made()
        given = {a.node: v for a, v in zip(maker.arguments, maker.given, strict=True)}
        expected = values(captured, given)
        hits += cancel_views(captured, resolve({}))
        hits += join_columns(captured, resolve({}))
        for one, other in zip(expected, values(captured, given), strict=True):
            torch.testing.assert_close(other, one, msg=lambda text, s=seed: f"graph {s}: {text}")
    assert hits > 50
