"""Dynamo's settings and gaps: where its guards take less care than a right result needs.

Settings hold for the process from the moment the backend "tt" is looked up; other backends then
guard as carefully.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch._dynamo import config
from torch._dynamo.guards import GuardBuilder

_SETTINGS = {
    # Recurrent layers are captured; by default Dynamo leaves them to eager torch.
    "allow_rnn": True,
    # A hook that is added to or removed from a module counts.
    "skip_nnmodule_hook_guards": False,
    # numpy's random numbers are drawn by numpy, from its own stream.
    "use_numpy_random_stream": True,
}
# Kernels of the device are Python; Dynamo would compile those that run beside its graphs.
_NOT_TRACED = ("device", "fallback", "kernels", "observer", "rnn", "storage", "ties")


@functools.cache
def settle_dynamo() -> None:
    """Make Dynamo guard what eager torch would tell apart; once in a process."""
    for name, value in _SETTINGS.items():
        setattr(config, name, value)
    for name in _NOT_TRACED:
        torch._dynamo.trace_rules.add(f"temper.torch_device.{name}")
    _tell_zeros_apart()


def _tell_zeros_apart() -> None:
    """0.0 == -0.0, so that Dynamo's guard on one accepts the other; 1 / x does not."""
    equals_match = GuardBuilder.EQUALS_MATCH

    @functools.wraps(equals_match)
    def with_sign(self: GuardBuilder, guard: Any, *args: Any, **kwargs: Any) -> None:
        equals_match(self, guard, *args, **kwargs)
        value = self.get(guard)
        if type(value) is float and value == 0.0:
            sign = math.copysign(1.0, value)
            self.get_guard_manager(guard).add_lambda_guard(
                lambda given: math.copysign(1.0, given) == sign,
                [f"math.copysign(1.0, {self.arg_ref(guard)}) == {sign}"],
                guard.user_stack,
            )

    GuardBuilder.EQUALS_MATCH = with_sign  # type: ignore[method-assign]
