"""The tensors of a call that one graph takes, in the order of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from temper.compiler.pipeline import Built


def graph_inputs(
    built: Built, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> list[torch.Tensor]:
    """What a graph of the whole model is given by a call with these arguments."""
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    names = built.program.inputs
    return [leaves[a.position] for a in built.captured.inputs if a.node in names]
