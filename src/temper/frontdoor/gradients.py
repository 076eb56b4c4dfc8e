"""Outputs of a compiled graph that eager torch would differentiate: backward says what to do.

A compiled graph computes no gradients. Outputs without a history would drop them in silence, so
they get one, whose backward is an error.
"""

from __future__ import annotations

from typing import Any

import torch

from temper.errors import UsageError


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, made: list[torch.Tensor]) -> Any:
        # The tensors come in a list: as arguments they would come out as views of themselves.
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise UsageError(
            "a compiled model gives no gradients",
            cause="backward() was called on something computed from its output",
            try_=[
                "train the model itself, without torch.compile or temper.compile, and compile it "
                "for inference; the compiled model follows its new weights",
                "call the compiled model under torch.no_grad() where no gradient is meant",
            ],
        )


def differentiable(module: torch.fx.GraphModule) -> list[int]:
    """Places of the outputs of a Dynamo graph that have a gradient in eager torch."""
    returned: Any = module.graph.output_node().args[0]
    values = [getattr(node, "meta", {}).get("example_value") for node in returned]
    return [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.grad_fn]


def refuse_backward(outputs: list[Any], places: list[int]) -> None:
    """Give the outputs at these places a history whose backward says that there is none."""
    anchor = torch.empty((), requires_grad=True)
    made = _Refused.apply(anchor, [outputs[place] for place in places])  # type: ignore[no-untyped-call]
    for place, tensor in zip(places, made, strict=True):
        outputs[place] = tensor
