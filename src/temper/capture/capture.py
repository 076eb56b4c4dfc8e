"""From a torch module or a Dynamo graph to a functional graph of ATen ops.

``torch.export`` without strict mode traces the Python code itself; composite ops that the chip
has (linear, conv2d, layer_norm, scaled_dot_product_attention, ...) are kept whole, the others are
decomposed to core ATen.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from temper.capture.dynamo_threads import exporting
from temper.capture.expert_paths import EXPERT_PATHS
from temper.capture.fast_paths import FAST_PATHS
from temper.errors import CompileError
from temper.graph.captured import Argument, Captured
from temper.graph.host_operators import DTYPES
from temper.graph.kept import KEPT_OPS
from temper.graph.node import Node


@functools.cache
def _decompositions() -> Any:
    """torch's own table, less everything that has a lowering of its own, and the fused layers."""
    table = torch.export.default_decompositions()
    for op in list(table.keys()):  # type: ignore[no-untyped-call]
        if op in KEPT_OPS:
            del table[op]
    for op, parts in {**FAST_PATHS, **EXPERT_PATHS}.items():
        table[op] = parts
    return table


def capture(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: str = "",
) -> Captured:
    """Capture a whole module; CompileError where Python control flow forbids one graph.

    Buffers of the submodule named ``state`` are tensors that stay on the device.
    """
    exported = _export(model, tuple(args), dict(kwargs or {}))
    return _from_exported(exported, type(model).__name__, state and state + ".")


def capture_fx(module: torch.fx.GraphModule, example_inputs: Sequence[Any], name: str) -> Captured:
    """Capture one Dynamo graph; parameters and buffers arrive among its inputs."""
    if any(node.target is torch._assert_async for node in module.graph.nodes):
        raise _several_graphs(module, "it asserts something about a tensor")  # export drops that
    paths = [_lifted_path(node) for node in module.graph.nodes if node.op == "placeholder"]
    exported = _export(_without_modes(module), tuple(_apart(example_inputs)), {})
    captured = _from_exported(exported, name)
    changed = {target for _, role, target in captured.mutations if role == "input"}
    for argument in captured.arguments:
        # A buffer that the graph changes is read at every call.
        if (
            argument.role == "input"
            and paths[argument.position]
            and argument.position not in changed
        ):
            argument.role, argument.path = "weight", paths[argument.position]
            # A tensor of our own on the same memory: the model's may go with the model.
            captured.weights[argument.path] = example_inputs[argument.position].detach()
    return captured


def _without_modes(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph without its switches of gradients: a program computes none."""
    if not any(node.target is torch._C._set_grad_enabled for node in module.graph.nodes):
        return module
    made = copy.copy(module)
    made.graph = copy.deepcopy(module.graph)
    for node in list(made.graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            made.graph.erase_node(node)
    made.recompile()
    return made


def _apart(inputs: Sequence[Any]) -> list[Any]:
    """The inputs for tracing, with memory of their own for those that share some."""
    seen: set[int] = set()
    made: list[Any] = []
    for given in inputs:
        made.append(given)
        if isinstance(given, torch.Tensor) and given.layout is torch.strided:
            memory = given.untyped_storage()._cdata
            if memory in seen and given.device.type == "cpu":
                like = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype)
                made[-1] = like.requires_grad_(given.requires_grad)
            seen.add(memory)
    return made


def _export(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings(), _quiet(), exporting():
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(model, args, kwargs, strict=False)
            lowered: ExportedProgram = exported.run_decompositions(_decompositions())
        except Exception as error:
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise _several_graphs(model, text[0][:300]) from error
    for node in lowered.graph.nodes:
        value = node.meta.get("val")
        if _depends_on_data(value):
            raise _several_graphs(model, f"the shape or value of {node.name} depends on the data")
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            raise _several_graphs(model, f"{node.name} is a sparse tensor")
        if isinstance(value, torch.Tensor) and value.dtype not in DTYPES.values():
            raise _several_graphs(model, f"{node.name} is {value.dtype}, which no program holds")
        if _calls_graphs(node.target):
            raise _several_graphs(model, f"{node.target} is no single operator")
    return lowered


def _calls_graphs(target: Any) -> bool:
    """Whether a node is control flow, or an operator that changes its operands; effect tokens go
    away later."""
    token = torch.ops.higher_order.with_effects
    return isinstance(target, torch._ops.HigherOrderOperator) and target is not token


def _several_graphs(model: torch.nn.Module, cause: str) -> CompileError:
    return CompileError(
        f"{type(model).__name__} cannot be captured as one graph",
        cause=cause,
        try_=["torch.compile(model, backend='tt'), which splits the graph there"],
    )


def _depends_on_data(value: Any) -> bool:
    """Whether a result is a number, or has a size, that only running the model can tell."""
    if isinstance(value, torch.Tensor):
        return any(not isinstance(size, int) for size in value.shape)
    if isinstance(value, (tuple, list)):
        return any(_depends_on_data(v) for v in value)
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


_LOGS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Without torch's log of a failing capture: the error says what is needed."""
    logs = [logging.getLogger(name) for name in _LOGS]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the graph that torch prints when a capture fails."""
    printed = io.StringIO()
    with hushed(), contextlib.redirect_stderr(printed):
        yield
    sys.stderr.write(printed.getvalue())


def _from_exported(exported: ExportedProgram, name: str, kept: str = "") -> Captured:
    arguments: list[Argument] = []
    weights: dict[str, torch.Tensor] = {}
    position = 0
    state = exported.state_dict
    _drop_tokens(exported.graph)
    _spell_casts(exported.graph)
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.TOKEN:
            continue
        if spec.kind is InputKind.USER_INPUT:
            arguments.append(Argument(getattr(spec.arg, "name", ""), "input", "", position))
            position += 1
            continue
        path = str(spec.target)
        if kept and path.startswith(kept):
            arguments.append(Argument(spec.arg.name, "state", path))
            continue
        if spec.kind is InputKind.CONSTANT_TENSOR or path not in state:
            arguments.append(Argument(spec.arg.name, "constant", path))
            weights[path] = exported.constants[path]
        else:
            arguments.append(Argument(spec.arg.name, "weight", path))
            weights[path] = state[path]
    outputs: list[tuple[str, Any]] = []
    mutations: list[tuple[int, str, Any]] = []
    state_outputs: set[int] = set()
    inputs_by_name = {a.node: a.position for a in arguments if a.role == "input"}
    for index, out in enumerate(exported.graph_signature.output_specs):
        if kept and str(out.target).startswith(kept):
            state_outputs.add(index)
        elif out.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            mutations.append((index, "weight", out.target))
        elif out.kind is OutputKind.USER_INPUT_MUTATION:
            mutations.append((index, "input", inputs_by_name[str(out.target)]))
        elif out.kind is OutputKind.TOKEN:
            continue
        elif isinstance(out.arg, ConstantArgument):
            outputs.append(("const", out.arg.value))
        elif out.arg.name in inputs_by_name:
            outputs.append(("input", inputs_by_name[out.arg.name]))
        else:
            outputs.append(("value", index))
    spec = exported.call_spec.out_spec
    return Captured(
        exported.graph_module,
        arguments,
        weights,
        name,
        outputs,
        mutations,
        frozenset(state_outputs),
        call_site=_call_site(),
        unflatten=lambda values: pytree.tree_unflatten(values, spec),
    )


_OURS = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(torch.__file__))


def _call_site() -> tuple[str, int]:
    """The innermost line on the stack that is neither ours nor torch's."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith((*_OURS, "<")):
        frame = frame.f_back  # type: ignore[assignment]
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _spell_casts(graph: torch.fx.Graph) -> None:
    """Decompositions written in prims cast by an op of theirs; it is aten's cast."""
    for node in list(graph.nodes):
        if node.target is torch.ops.prims.convert_element_type.default:
            node.target = torch.ops.aten._to_copy.default
            node.args, node.kwargs = (node.args[0],), {"dtype": node.args[1]}


def _drop_tokens(graph: torch.fx.Graph) -> None:
    """Effect tokens order checks such as that of a matrix inverse; the graph has its order."""
    for node in reversed(list(graph.nodes)):
        if node.target is torch.ops.higher_order.with_effects:
            _, op, *args = node.args
            with graph.inserting_before(node):
                plain = graph.call_function(op, tuple(args), node.kwargs)
            plain.meta = {
                **node.meta,
                "val": node.meta["val"][1]
                if node.meta.get("val") and len(node.meta["val"]) > 1
                else None,
            }
            for user in list(node.users):
                user.replace_all_uses_with(plain if user.args[1] else None)
                graph.erase_node(user)
            graph.erase_node(node)
            if not plain.users:
                graph.erase_node(plain)
        elif node.op == "placeholder" and node.name.startswith("token") and not node.users:
            graph.erase_node(node)


_PATH_PART = re.compile(
    r"\.?_(?:modules|parameters|buffers)\['([^']+)'\]|\.([A-Za-z_]\w*)|\[(\d+)\]"
)


def _lifted_path(node: Node) -> str:
    """The parameter path of a placeholder that Dynamo lifted from a module, or ''."""
    static = (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type")
    # Dynamo drops node.meta["grapharg"] after its own part; the source on the node stays.
    origin = getattr(node, "_dynamo_source", None)
    if origin is None:
        origin = getattr(node.meta.get("grapharg"), "source", None)
    source = getattr(origin, "name", "")
    source = source() if callable(source) else str(source)
    if static is None and "_parameters[" not in source and "_buffers[" not in source:
        return ""
    parts = [a or b or c for a, b, c in _PATH_PART.findall(source)]
    return ".".join(p for p in parts if p) or node.name
