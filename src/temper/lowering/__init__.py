"""From a graph of ATen ops to a device program; one file an op family."""

from __future__ import annotations

import re
from typing import Any

import torch

from temper import chips
from temper.graph.captured import Captured
from temper.graph.node import Node, is_node
from temper.graph.ranges import PRODUCTS, op_name, wide_nodes
from temper.lowering import (
    cache,  # noqa: F401 - they register themselves
    data,  # noqa: F401 - they register themselves
    elementwise,  # noqa: F401 - they register themselves
    fused,  # noqa: F401 - they register themselves
    index,  # noqa: F401 - they register themselves
    matrix,  # noqa: F401 - they register themselves
    pool,  # noqa: F401 - they register themselves
    reduce,  # noqa: F401 - they register themselves
    resize,  # noqa: F401 - they register themselves
    volumes,  # noqa: F401 - they register themselves
    window,  # noqa: F401 - they register themselves
)
from temper.lowering.builder import Builder
from temper.lowering.cache import declare_state
from temper.lowering.host import (
    DeferredCall,
    called_output,
    complex_argument,
    fall_back,
    is_complex,
)
from temper.lowering.registry import LOWERINGS
from temper.options import Options
from temper.program import Program, Source
from temper.program.tensor import TILE, Layout

__all__ = ["LOWERINGS", "lower"]


def lower(captured: Captured, options: Options) -> Program:
    """The whole graph, in order; results of the graph become outputs of the program."""
    b = Builder(chips.get(options["chip"]), options, captured.weights)
    if captured.ranges is not None:
        b.wide = wide_nodes(captured.graph.nodes, captured.ranges)
    inputs: list[str] = []
    by_node = {a.node: a for a in captured.arguments}
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            argument = by_node[node.name]
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue  # a number or None: already baked into the graph
            if value.is_complex() and (argument.role == "input" or node.users):
                const = argument.role != "input"
                call, pairs = complex_argument(
                    b, argument.path if const else node.name, value.shape, const=const
                )
                b.env[node] = call
                if const:
                    b.weights[pairs.name] = argument.path
                else:
                    inputs.append(pairs.name)
            elif argument.role == "state":
                b.env[node] = declare_state(b, argument.path, value)
            elif argument.role == "input":
                rows = b.lazy_layout and (_is_image(node) or _is_index(node))
                layout: Layout = "row_major" if rows else "tile"
                made = b.declare(node.name, value.shape, value.dtype, const=False, layout=layout)
                if rows and _is_image(node) and _one_reader(node):
                    b.images.add(made.name)
                inputs.append(made.name)
                b.env[node] = made
            elif node.users:
                made = b.declare(
                    argument.path,
                    value.shape,
                    value.dtype,
                    const=True,
                    fmt=_weight_format(b, value),
                )
                b.weights[made.name] = argument.path
                b.env[node] = made
        elif node.op == "call_function":
            b.source = source_of(node, captured.call_site)
            b.env[node] = _lower_node(b, node)
        elif node.op == "output":
            kept = captured.state_outputs
            outputs = [_output(b, a) for i, a in enumerate(node.args[0]) if i not in kept]
    return b.program(captured.name, inputs, [o for o in outputs if o])


# A convolution reads rows as well as tiles; padding a few channels to 32 is what tiles cost.
_IMAGE_READERS = (
    torch.ops.aten.conv2d.default,
    torch.ops.aten.conv2d.padding,
    torch.ops.aten.constant_pad_nd.default,
)


def _is_image(node: Node) -> bool:
    """An input of few channels that only convolutions read."""
    value = node.meta["val"]
    return (
        value.dim() == 4
        and value.shape[1] < TILE
        and value.is_floating_point()
        and bool(node.users)
        and all(user.target in _IMAGE_READERS for user in node.users)
    )


def _is_index(node: Node) -> bool:
    """An input that only lookups read, which want their ids in rows: the host writes them so."""
    embedding = torch.ops.aten.embedding.default
    return bool(node.users) and all(
        user.target is embedding and user.args[0] is not node for user in node.users
    )


def _one_reader(node: Node) -> bool:
    """Whether one op alone reads a value, through a pad or not."""
    reader = next(iter(node.users))
    padded = reader.target is torch.ops.aten.constant_pad_nd.default
    return len(node.users) == 1 and (not padded or len(reader.users) == 1)


def _weight_format(b: Builder, value: torch.Tensor) -> str:
    """Weights keep the precision that the model gave them until an op reads them."""
    dtype = value.dtype
    if dtype is torch.float16:
        return "float32"
    if value.dim() > 2 and dtype is torch.bfloat16:
        return "bfloat16"  # convolutions have a format option of their own
    return {torch.float32: "float32", torch.float64: "float32"}.get(dtype) or b.format_of(dtype)


def _lower_node(b: Builder, node: Node) -> Any:
    function = LOWERINGS.get(node.target)
    val = node.meta.get("val")
    called = any(isinstance(b.env.get(n), DeferredCall) for n in node.all_input_nodes)
    if called or node in b.wide or is_complex(val) or _takes_floats(node):
        return fall_back(b, node)
    if isinstance(val, torch.Tensor) and val.numel() == 0:
        return b.constant(torch.empty(val.shape, dtype=val.dtype), node.name)
    if _reads_nothing(node) and node.target is not torch.ops.aten.cat.default:
        return fall_back(b, node)
    if function is not None:
        made = function(b, node)
        if made is not None:
            return made
    return fall_back(b, node)


# Ops of ttnn beside products that take floating-point numbers alone, by how their names begin.
_FLOATING = ("avg_pool", "max_pool", "adaptive_", "_adaptive", "upsample_", "_upsample")


def _takes_floats(node: Node) -> bool:
    """Whether the device op of a node would misread the integers that it is given."""
    val = node.meta.get("val")
    first = val[0] if isinstance(val, (tuple, list)) else val
    whole = isinstance(first, torch.Tensor) and not first.is_floating_point()
    name = op_name(node)
    return whole and (name in PRODUCTS or name.startswith(_FLOATING))


def _reads_nothing(node: Node) -> bool:
    """Whether an operand has no elements: a sum over it is a number all the same."""
    values = (n.meta.get("val") for n in node.all_input_nodes)
    return any(isinstance(v, torch.Tensor) and v.numel() == 0 for v in values)


def _output(b: Builder, argument: Any) -> str:
    if not is_node(argument):
        return ""
    value = b.env[argument]
    if isinstance(value, DeferredCall):
        return called_output(b, value, argument.meta["val"]).name
    return b.on_device(b.plain(b[argument])).name


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_of(node: Node, call_site: tuple[str, int] = ("", 0)) -> Source:
    """The innermost line of the user's own code and the module path.

    Where a model is made of torch's layers alone (nn.Sequential), the line that called it.
    """
    stack = node.meta.get("nn_module_stack") or {}
    module = ""
    for path, _ in stack.values():
        module = str(path)
    module = re.sub(r"^L\['[^']+'\]\.?|^L__self___?", "", module)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if "/site-packages/torch/" not in f[0]]
    file, line = own[-1] if own else call_site
    return Source(module, file, int(line))
