"""What attention is handed: no needless mask, the causal flag, its scale, heads as they are."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.graph.views import read, source_of_view, write
from temper.options import Options
from temper.passes.heads import heads_of
from temper.passes.view_analysis import Base, Shown
from temper.program.index_map import IndexMap, identity
from temper.program.index_moves import moves
from temper.program.row_table import Chart

aten = torch.ops.aten

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
# Additive masks write "never" as -inf or as the most negative number of some format; a score that
# far down adds nothing to a softmax in bfloat16 or float32.
_NEVER = -1e4


def simplify_attention(captured: Captured, options: Options) -> int:
    """Rewrite every attention whose operands say more than the op needs."""
    graph = captured.graph
    constant = captured.constants()
    hits = 0
    for node in list(graph.nodes):
        if node.target is not aten.scaled_dot_product_attention.default:
            continue
        given = {**dict(zip(_NAMES, node.args, strict=False)), **node.kwargs}
        changes = (
            _fold_scale(given)
            + _fold_mask(graph, node, given, constant)
            + _share_heads(graph, node, given)
            + _apart(graph, node, given)
        )
        if changes:
            _rewrite(graph, node, given)
            hits += 1
    graph.eliminate_dead_code()
    return hits


def _rewrite(graph: fx.Graph, node: Node, given: dict[str, Any]) -> None:
    operands = (given["query"], given["key"], given["value"], given.get("attn_mask"))
    rest = {
        name: given[name]
        for name in ("dropout_p", "is_causal", "scale", "enable_gqa")
        if given.get(name)
    }
    with graph.inserting_before(node):
        made = graph.call_function(node.target, operands, rest)
        lead = given["query"].meta["val"].shape[:-1]
        value = node.meta["val"].new_empty((*lead, given["value"].meta["val"].shape[-1]))
        inherit(made, node, value)
        last = made
        if tuple(value.shape) != tuple(node.meta["val"].shape):
            last = graph.call_function(
                aten.reshape.default, (made, [int(s) for s in node.meta["val"].shape])
            )
            inherit(last, node, node.meta["val"])
    node.replace_all_uses_with(last)
    graph.erase_node(node)


# --- scale --------------------------------------------------------------------------------------


def _fold_scale(given: dict[str, Any]) -> int:
    """A query or key multiplied by a number, before or behind views: the op's scale."""
    hits = 0
    for name in ("query", "key"):
        product = _behind_views(given[name])
        if product is None or product.target not in (aten.mul.Tensor, aten.div.Tensor):
            continue
        source, number = product.args[:2]
        if is_node(number) or not is_node(source) or not number:
            continue
        if source.meta["val"].dtype != product.meta["val"].dtype:
            continue
        scale = given.get("scale")
        if scale is None:
            scale = 1 / math.sqrt(given["query"].meta["val"].shape[-1])
        by = 1 / number if product.target is aten.div.Tensor else number
        given["scale"] = float(scale) * float(by)
        if product is given[name]:
            given[name] = source
        else:
            product.replace_all_uses_with(source)
        hits += 1
    return hits


def _behind_views(node: Node) -> Node | None:
    """The first op that is no view, where this operand alone reads it."""
    while True:
        if len(node.users) != 1:
            return None
        source = source_of_view(node)
        if source is None:
            return node
        node = source


# --- mask ---------------------------------------------------------------------------------------


def _fold_mask(
    graph: fx.Graph, node: Node, given: dict[str, Any], constant: dict[str, torch.Tensor]
) -> int:
    """A mask that hides nothing goes; one that hides the future becomes the causal flag."""
    mask = given.get("attn_mask")
    if not is_node(mask):
        return 0
    placeholder, value = _known(mask, constant)
    if placeholder is None or value is None:
        return 0
    hidden = ~value if value.dtype is torch.bool else value <= _NEVER
    plain = value.dtype is torch.bool or bool(((value == 0) | hidden).all())
    rows, columns = (int(given[n].meta["val"].shape[-2]) for n in ("query", "key"))
    if plain and not bool(hidden.any()):
        given["attn_mask"] = None
        return 1
    future = torch.ones(rows, columns, dtype=torch.bool).triu(1)
    square = rows == columns and value.shape[-2:] == future.shape
    if plain and square and bool((hidden == future).all()):
        given["attn_mask"] = None
        given["is_causal"] = True
        return 1
    if given.get("is_causal"):
        return 0
    return _one_for_all(graph, node, given, placeholder, value)


def _known(mask: Node, constant: dict[str, torch.Tensor]) -> tuple[Node | None, Any]:
    """The constant behind a mask, seen as the attention sees it."""
    chain = [mask]
    while chain[-1].target in (aten.expand.default, aten.view.default, aten.unsqueeze.default):
        chain.append(chain[-1].args[0])
    value = constant.get(chain[-1].name) if chain[-1].op == "placeholder" else None
    if value is None:
        return None, None
    for step in reversed(chain[:-1]):
        value = step.target(value, *step.args[1:])
    return chain[-1], value


def _one_for_all(
    graph: fx.Graph, node: Node, given: dict[str, Any], placeholder: Node, value: torch.Tensor
) -> int:
    """A mask that is the same for every sample or head is kept once."""
    mask = given["attn_mask"]
    if mask is not placeholder or value.dim() != 4:
        return 0
    hits = 0
    for dim in (0, 1):
        size = mask.meta["val"].shape[dim]
        if size > 1 and bool((value == value.narrow(dim, 0, 1)).all()):
            with graph.inserting_before(node):
                one = graph.call_function(aten.slice.Tensor, (mask, dim, 0, 1))
            inherit(one, mask, mask.meta["val"].narrow(dim, 0, 1))
            given["attn_mask"] = mask = one
            value = value.narrow(dim, 0, 1)
            hits += 1
    return hits


# --- heads --------------------------------------------------------------------------------------


def _share_heads(graph: fx.Graph, node: Node, given: dict[str, Any]) -> int:
    """Keys and values repeated for a group of queries are read once by the whole group."""
    if source_of_view(given["key"]) is None or source_of_view(given["value"]) is None:
        return 0
    charts = []
    for name in ("key", "value"):
        shown = _shown(given[name])
        ungrouped = _ungrouped(shown.chart)
        if ungrouped is None:
            return 0
        charts.append((name, shown.base.node, ungrouped))
    if charts[0][2].shape[1] != charts[1][2].shape[1]:
        return 0
    for name, base, chart in charts:
        steps = moves(chart)
        if steps is None:
            return 0
        with graph.inserting_before(node):
            given[name] = write(graph, base, steps, given[name])
    given["enable_gqa"] = True
    return 1


def _shown(node: Node) -> Shown:
    """What one node shows, by the views behind it alone."""
    source = source_of_view(node)
    if source is not None:
        behind = _shown(source)
        chart = read(node, behind.chart)
        if chart is not None:
            return Shown(behind.base, chart)
    return Shown(Base(node), identity([int(s) for s in node.meta["val"].shape]))


def _ungrouped(chart: Chart) -> IndexMap | None:
    """(B, heads, S, d) without heads that repeat their neighbour."""
    if (
        not isinstance(chart, IndexMap)
        or len(chart.axes) != 4
        or len(chart.axes[1]) < 2
        or chart.axes[1][-1][1] != 0
    ):
        return None
    axes = (chart.axes[0], chart.axes[1][:-1], *chart.axes[2:])
    return IndexMap(chart.source, axes, chart.offset)


def _apart(graph: fx.Graph, node: Node, given: dict[str, Any]) -> int:
    """Heads that stand in one axis with the batch get an axis of their own."""
    query = given["query"]
    if query.meta["val"].dim() != 3 or given.get("attn_mask") is not None:
        return 0
    operands = [given[name] for name in ("query", "key", "value")]
    sizes = [heads_of(n, _shown(n)) for n in operands]
    if any(s is None or s.sizes[:2] != sizes[0].sizes[:2] for s in sizes):  # type: ignore[union-attr]
        return 0
    batch, heads = sizes[0].sizes[:2]  # type: ignore[union-attr]
    for name, operand in zip(("query", "key", "value"), operands, strict=True):
        shape = [batch, heads, *(int(s) for s in operand.meta["val"].shape[1:])]
        with graph.inserting_before(node):
            given[name] = graph.call_function(aten.reshape.default, (operand, shape))
        inherit(given[name], operand, operand.meta["val"].reshape(shape))
    return 1
