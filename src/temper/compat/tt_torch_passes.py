"""tt-xla's passes over fx graphs that need no compiler: rewrites that keep the numbers.

Temper has passes of its own; these are for scripts and tests that call tt-xla's by name on a graph
of Dynamo's and look at what became of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

from temper.compat import tt_torch_ops as ops

aten = torch.ops.aten
# Attention takes (..., heads, rows, width).
HEADS = 3

_COMPOSITES: dict[Any, Callable[..., Any]] = {
    F.gelu: ops.composite_gelu,
    F.rms_norm: ops.composite_rms_norm,
    torch.rms_norm: ops.composite_rms_norm,
    F.layer_norm: ops.composite_layer_norm,
    F.group_norm: ops.composite_group_norm,
    F.scaled_dot_product_attention: ops.composite_scaled_dot_product_attention,
    torch.argmax: ops.composite_argmax,
}
_METHODS = {"topk": torch.topk, "argmax": torch.argmax}
# Modules: the function, the attributes that are its parameters, those that are plain values.
_MODULES: dict[type[nn.Module], tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]] = {
    nn.GELU: (ops.composite_gelu, (), ("approximate",)),
    nn.LayerNorm: (ops.composite_layer_norm, ("weight", "bias"), ("normalized_shape", "eps")),
    nn.RMSNorm: (ops.composite_rms_norm, ("weight",), ("normalized_shape", "eps")),
    nn.GroupNorm: (ops.composite_group_norm, ("weight", "bias"), ("num_groups", "eps")),
}


def handle_composite_ops(gm: fx.GraphModule) -> None:
    """Put the composite function in the place of each torch op, method or module that has one."""
    for node in list(gm.graph.nodes):
        if node.op == "call_method" and node.target in _METHODS:
            node.op, node.target = "call_function", _METHODS[node.target]
        if node.op == "call_module":
            _composite_module(gm, node)
        elif node.op == "call_function" and node.target is torch.topk:
            replace_multi_output_op(gm, node)
        elif node.op == "call_function" and node.target in _COMPOSITES:
            node.target = _COMPOSITES[node.target]
    gm.graph.lint()
    gm.recompile()


def replace_multi_output_op(gm: fx.GraphModule, node: fx.Node) -> None:
    """Of a top-k only what is read: values, indices or both."""
    items = [user for user in node.users if user.target is operator.getitem]
    read = {item.args[1] for item in items if item.users}
    if len(items) != len(node.users) or len(read) != 1:
        node.target = ops.composite_topk
        return
    node.target = ops.composite_topk_indices if read == {1} else ops.composite_topk_values
    for item in items:
        item.replace_all_uses_with(node)
        gm.graph.erase_node(item)


def _composite_module(gm: fx.GraphModule, node: fx.Node) -> None:
    module = gm.get_submodule(str(node.target))
    if type(module) not in _MODULES:
        return
    function, parameters, plain = _MODULES[type(module)]
    kwargs: dict[str, Any] = {name: getattr(module, name) for name in plain}
    with gm.graph.inserting_before(node):
        for name in parameters:
            held = getattr(module, name)
            kwargs[name] = None if held is None else gm.graph.get_attr(f"{node.target}.{name}")
        made = gm.graph.call_function(function, node.args, kwargs)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    gm.graph.erase_node(node)


def run_fusion_passes(gm: fx.GraphModule) -> fx.GraphModule:
    """Write RMS norms that a model spells out as the one function; the graph, changed in place."""
    for node in list(gm.graph.nodes):
        found = _rms_norm(node)
        if found is None:
            continue
        x, weight, eps, width = found
        with gm.graph.inserting_before(node):
            made = gm.graph.call_function(F.rms_norm, (x, (width,), weight, eps))
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
    gm.graph.eliminate_dead_code(is_impure_node=_impure)
    gm.graph.lint()
    gm.recompile()
    return gm


def _impure(node: fx.Node) -> bool:
    """In-place methods count; fx itself takes them for pure."""
    return node.is_impure() or _in_place(node)


def _rms_norm(node: Any) -> tuple[fx.Node, fx.Node, float, int] | None:
    """weight * cast(x * rsqrt(mean(x ** 2) + eps)), as Llama and its kin write it."""
    if not _is(node, operator.mul, torch.mul, "mul") or len(node.args) != 2:
        return None
    for weight, cast in (node.args, node.args[::-1]):
        scaled = _uncast(cast)
        if not _is(scaled, operator.mul, torch.mul, "mul"):
            continue
        x, root = scaled.args
        if not _is(root, torch.rsqrt, "rsqrt"):
            continue
        total = root.args[0]
        if not _is(total, operator.add, torch.add, "add"):
            continue
        mean, eps = total.args
        if not (_is(mean, torch.mean, "mean") and isinstance(eps, float)):
            continue
        square = mean.args[0]
        if not (_is(square, torch.pow, operator.pow, "pow") and square.args == (x, 2)):
            continue
        dims = mean.args[1] if len(mean.args) > 1 else mean.kwargs.get("dim")
        kept = mean.args[2] if len(mean.args) > 2 else mean.kwargs.get("keepdim")
        shape = fx_node_shape(x)
        if dims in (-1, (-1,), [-1]) and kept and shape and isinstance(weight, fx.Node):
            return _uncast(x), weight, eps, shape[-1]
    return None


def _is(node: Any, *targets: Any) -> bool:
    return isinstance(node, fx.Node) and node.target in targets


def _uncast(node: Any) -> Any:
    while _is(node, "to", "float", "type_as"):
        node = node.args[0]
    return node


def count_inplace_mutations(gm: fx.GraphModule) -> int:
    """How many methods with a trailing underscore the graph calls."""
    return sum(_in_place(node) for node in gm.graph.nodes)


def _in_place(node: fx.Node) -> bool:
    return node.op == "call_method" and str(node.target).endswith("_")


def erase_repeat_kv(gm: fx.GraphModule) -> None:
    """Hand attention its key heads unrepeated, with ``enable_gqa``, where that is the same.

    Nodes that nobody reads any more stay: dead code is not told from writes into a cache here.
    """
    for node in gm.graph.nodes:
        if not _is(node, F.scaled_dot_product_attention):
            continue
        query = fx_node_shape(sdpa_operand(node, 0, "query"))
        found = [_unrepeated(sdpa_operand(node, i, name), query)
                 for i, name in ((1, "key"), (2, "value"))]  # fmt: skip
        shapes = [fx_node_shape(source) for source in found]
        if any(s is None for s in shapes) or shapes[0][-HEADS] != shapes[1][-HEADS]:  # type: ignore[index]
            continue
        args, kwargs = list(node.args), {**node.kwargs, "enable_gqa": True}
        for place, (name, source) in enumerate(zip(("key", "value"), found, strict=True), 1):
            if place < len(args):
                args[place] = source
            else:
                kwargs[name] = source
        node.args, node.kwargs = tuple(args), kwargs
    gm.graph.lint()
    gm.recompile()


def _unrepeated(node: Any, query: tuple[int, ...] | None) -> fx.Node | None:
    """What each head of ``node`` was repeated from, one after another, up to the query's heads."""
    shape = fx_node_shape(node)
    if shape is None or query is None or len(shape) < HEADS or shape[-HEADS] != query[-HEADS]:
        return None
    axis = len(shape) - HEADS
    if _is(node, torch.repeat_interleave, "repeat_interleave"):
        given = dict(zip(("input", "repeats", "dim"), node.args, strict=False)) | dict(node.kwargs)
        if not isinstance(given.get("repeats"), int) or given.get("dim") is None:
            return None
        if normalize_dim(given["dim"], len(shape)) != axis:
            return None
        source = node.args[0]
    elif _is(node, "reshape", "view") and _is(node.args[0], "expand"):
        wide = node.args[0]
        source = _before_new_axis(wide.args[0], axis + 1)
        held = fx_node_shape(wide)
        if source is None or held is None or len(held) != len(shape) + 1:
            return None
        merged = (*held[:axis], held[axis] * held[axis + 1], *held[axis + 2 :])
        if merged != shape:
            return None
    else:
        return None
    before = fx_node_shape(source)
    if before is None or len(before) != len(shape) or before[axis] in (0, shape[axis]):
        return None
    same = before[:axis] + before[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
    return source if same and shape[axis] % before[axis] == 0 else None


def _before_new_axis(node: Any, axis: int) -> fx.Node | None:
    """The source of a node that adds one axis of length 1 at this place and nothing else."""
    if _is(node, operator.getitem) and isinstance(node.args[1], tuple):
        index = node.args[1]
        whole = all(part is None or part == slice(None) for part in index)
        found: Any = node.args[0] if whole and index.count(None) == 1 else None
        return found if found is not None and index.index(None) == axis else None
    if _is(node, "unsqueeze", torch.unsqueeze):
        shape = fx_node_shape(node.args[0])
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if shape is not None and dim is not None and normalize_dim(dim, len(shape) + 1) == axis:
            source: fx.Node = node.args[0]
            return source
    return None


def sdpa_operand(node: fx.Node, place: int, name: str) -> Any:
    """An operand of attention, given by place or by name."""
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)


def fx_node_shape(node: Any) -> tuple[int, ...] | None:
    """The shape that a node's fake value has; None where there is none or it varies."""
    if not isinstance(node, fx.Node):
        return None
    shape = getattr(node.meta.get("example_value", node.meta.get("val")), "shape", None)
    return tuple(shape) if shape is not None and all(type(d) is int for d in shape) else None


def normalize_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim % rank if -rank <= dim < rank else dim


def insert_argument_type_markers(
    gm: fx.GraphModule,
    graph_signature: ExportGraphSignature,
    flat_name_to_original_fqn: Mapping[str, str] | None = None,
) -> fx.GraphModule:
    """Mark inputs as ``input``, ``parameter`` or ``constant``; buffers that change are inputs."""
    names = flat_name_to_original_fqn or {}
    changed = {
        o.target for o in graph_signature.output_specs if o.kind == OutputKind.BUFFER_MUTATION
    }
    kinds = {InputKind.PARAMETER: "parameter", InputKind.CONSTANT_TENSOR: "constant",
             InputKind.BUFFER: "constant"}  # fmt: skip
    roles = {}
    for spec in graph_signature.input_specs:
        role = "input" if spec.target in changed else kinds.get(spec.kind, "input")
        roles[getattr(spec.arg, "name", "")] = role
        if spec.target is not None:
            roles[spec.target] = role
    for node in [n for n in gm.graph.nodes if n.op in ("placeholder", "get_attr") and n.users]:
        role = roles.get(str(node.target), roles.get(node.name, ""))
        if not role:
            continue
        users = [u for u in node.users
                 if u.target is not aten.copy_.default or u.args[0] is not node]  # fmt: skip
        told = names.get(str(node.target), str(node.target))
        with gm.graph.inserting_after(node):
            mark = gm.graph.call_function(
                torch.ops.tt.mark_argument_attributes, (node,),
                {"argument_type": role, "name": told},
            )  # fmt: skip
        for user in users:
            user.replace_input_with(node, mark)
    gm.recompile()
    return gm


def bypass_assert_tensor_metadata(gm: fx.GraphModule) -> fx.GraphModule:
    """Take out export's checks of dtype, device and layout."""
    for node in gm.graph.find_nodes(
        op="call_function", target=aten._assert_tensor_metadata.default
    ):
        gm.graph.erase_node(node)
    gm.recompile()
    return gm


def bypass_redundant_getitem(gm: fx.GraphModule) -> fx.GraphModule:
    """Read an element of a tuple that stands in the graph without asking the tuple."""
    for node in gm.graph.find_nodes(op="call_function", target=operator.getitem):
        held, index = node.args
        if isinstance(held, (tuple, list)) and isinstance(index, int):
            node.replace_all_uses_with(held[index])
    gm.recompile()
    return gm


def run_shape_prop(gm: fx.GraphModule, example_inputs: Any) -> None:
    """Note shapes and dtypes of all nodes for these inputs."""
    ShapeProp(gm).propagate(*example_inputs)


def bypass_dtype_promotion_and_redundant_cast(
    gm: fx.GraphModule, example_inputs: Any
) -> fx.GraphModule:
    """Take out casts to a node's own type, and promotions to float32 that no user asked for."""
    promoted = False
    for node in gm.graph.find_nodes(
        op="call_function", target=torch.ops.prims.convert_element_type.default
    ):
        source, wanted = node.args[:2]
        asked = getattr(node.meta.get("original_aten"), "_name", "") == "aten::_to_copy"
        known = source.meta.get("tensor_meta", source.meta.get("val"))
        same = known is not None and known.dtype == wanted
        if same or (wanted == torch.float32 and not asked):
            node.replace_all_uses_with(source)
            promoted |= not same
    gm.graph.eliminate_dead_code(is_impure_node=_impure)
    gm.graph.lint()
    gm.recompile()
    if promoted:
        run_shape_prop(gm, example_inputs)
        return bypass_dtype_promotion_and_redundant_cast(gm, example_inputs)
    return gm
