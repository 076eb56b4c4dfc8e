"""A model argument made ready for tuning: loaded with a seed, cast, and checked for randomness."""

from __future__ import annotations

import contextlib
import copy
import io
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from temper.compiler.pipeline import CompiledPrograms
from temper.errors import UsageError, raised_at
from temper.frontdoor.loaded import LoadedGraph
from temper.frontdoor.loader import Loaded, load

Source = str | Callable[..., Any]
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "keep": None}


def prepared(source: Source, batch: int | None, dtype: str = "bfloat16") -> Loaded:
    """The model in the dtype it shall run in; ``keep`` leaves it as the callable made it.

    What the callable prints goes to standard error, so that it does not mix with JSON.
    """
    torch.manual_seed(0)
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load(source, batch)
    wanted = DTYPES[dtype]
    if wanted is None:
        return loaded
    given = loaded.inputs, loaded.kwargs
    inputs, kwargs = pytree.tree_map(lambda x: _cast(x, wanted), given)
    return Loaded(
        copy.deepcopy(loaded.model).to(wanted),
        inputs,
        kwargs,
        loaded.batch,
        next((p.dtype for p in loaded.model.parameters() if p.is_floating_point()), None),
    )


def reference(source: Source, batch: int | None) -> torch.Tensor:
    """The first floating-point output of the float32 model in eager torch.

    Refuses a model whose two runs differ (an accuracy would mean nothing) or whose inputs it
    changes.
    """
    loaded = prepared(source, batch, "float32")
    tensors = [x for x in pytree.tree_leaves((loaded.inputs, loaded.kwargs)) if _is(x)]
    before = [x.clone() for x in tensors]
    outputs = []
    for _ in range(2):
        try:
            with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
                outputs.append(first_output(loaded.model(*loaded.inputs, **loaded.kwargs)).clone())
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"the model raised {type(error).__name__} on its inputs: {error}",
                at=raised_at(error),
                see="'temper --debug ...' shows the whole traceback",
            ) from error
        if any(not torch.equal(a, b) for a, b in zip(tensors, before, strict=True)):
            raise UsageError(
                "the model changes its inputs: each run computes something else",
                try_=["clone the input inside forward"],
            )
    if not torch.equal(outputs[0], outputs[1]) and not outputs[0].isnan().any():
        raise UsageError(
            "the model is random: two runs on the same inputs differ",
            try_=["model.eval()", "a fixed seed inside forward", "inputs made outside"],
        )
    return outputs[0]


def run_once(loaded: Loaded, compiled: CompiledPrograms) -> torch.Tensor | None:
    """The first output of a compiled model on its inputs; None where it needs several graphs."""
    if len(compiled.graphs) != 1:
        return None
    graph = LoadedGraph(compiled.graphs[0])
    leaves = pytree.tree_leaves((loaded.inputs, loaded.kwargs))
    names = graph.program.inputs
    held = [leaves[a.position] for a in graph.built.captured.inputs if a.node in names]
    return first_output(graph.results(graph.run(held), leaves))


def first_output(outputs: Any) -> torch.Tensor:
    """The first floating-point tensor of a nest of outputs, or its first tensor."""
    leaves: list[torch.Tensor] = [x for x in pytree.tree_leaves(outputs) if _is(x)]
    if not leaves:
        raise UsageError("the model returns no tensor")
    return next((x for x in leaves if x.is_floating_point()), leaves[0])


def _is(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if _is(value) and value.is_floating_point() else value
