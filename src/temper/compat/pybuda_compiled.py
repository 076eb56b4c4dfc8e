"""A module compiled for the virtual chip, as PyBuda's and Forge's scripts call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import temper
from temper.compat.pybuda_module import Tensor
from temper.compat.pybuda_verify import VerifyConfig, verify


class CompiledPipeline:
    """Calls like the module."""

    def __init__(
        self,
        module: torch.nn.Module,
        options: Mapping[str, Any],
        verify_cfg: VerifyConfig | None = None,
    ) -> None:
        self.module = module.eval()
        self.verify_cfg = verify_cfg
        # A verdict on accuracy sums as the chip does, not by the host's faster rule.
        judged = verify_cfg is not None and vars(verify_cfg)["enabled"]
        self.compiled = temper.compile(self.module, **{"exact_accumulation": judged, **options})

    @property
    def options(self) -> Any:
        return self.compiled.options

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        args = [plain(item) for item in inputs]
        named = {name: plain(item) for name, item in kwargs.items()}
        with torch.no_grad():
            found = self.compiled(*args, **named)
            if self.verify_cfg is not None and vars(self.verify_cfg)["enabled"]:
                verify(flat(found), flat(self.module(*args, **named)), self.verify_cfg)
        return found

    forward = __call__


def plain(item: Any) -> Any:
    """A torch tensor without PyBuda's accessors; anything else as it is."""
    return item.as_subclass(torch.Tensor) if isinstance(item, Tensor) else item


def flat(value: Any) -> list[torch.Tensor]:
    """The tensors of an output, in order: of tuples, mappings and transformers' outputs."""
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
