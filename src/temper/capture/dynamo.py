"""Dynamo's settings and gaps: where its guards take less care than a right result needs.

Settings hold for the process from the moment the backend "tt" is looked up; other backends then
guard as carefully.
"""

from __future__ import annotations

import functools
import math
import os
import random
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch._dynamo import config
from torch._dynamo.callback import CompilationCallbackHandler
from torch._dynamo.exc import unimplemented
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.source import GlobalStateSource
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.functions import UserMethodVariable
from torch._guards import TracingContext
from torch.nn.modules import module, transformer

from temper import clock
from temper.capture.dynamo_absent import BUILTINS, guard_what_is_absent
from temper.capture.dynamo_memory import count_living_variants, hold_guards_weakly
from temper.capture.dynamo_threads import tell_threads_apart

_SETTINGS = {
    # Recurrent layers are captured; by default Dynamo leaves them to eager torch.
    "allow_rnn": True,
    # A hook that is added to or removed from a module counts.
    "skip_nnmodule_hook_guards": False,
    # An assertion about a tensor is checked by Python; in a graph it would be an op without result.
    "rewrite_assert_with_torch_assert": False,
    # numpy's random numbers are drawn by numpy, from its own stream.
    "use_numpy_random_stream": True,
}
# Kernels of the device are Python; Dynamo would compile those that run beside its graphs.
_NOT_TRACED = ("device", "fallback", "kernels", "module", "observer", "rnn", "storage", "ties")


# Set while a function is traced with sizes as numbers; floats may still vary.
fixed_sizes: ContextVar[bool] = ContextVar("fixed_sizes", default=False)


@functools.cache
def settle_dynamo() -> None:
    """Make Dynamo guard what eager torch would tell apart; once in a process."""
    for name, value in _SETTINGS.items():
        # A value that is set counts in this thread alone.
        config._config[name].default = value  # type: ignore[attr-defined]
    for name in _NOT_TRACED:
        torch._dynamo.trace_rules.add(f"temper.torch_device.{name}")
    # Dynamo computes it while tracing and guards nothing; it does guard os.environ.
    torch._dynamo.trace_rules._disallowed_callable_ids.add(id(os.getenv))
    hold_guards_weakly()
    count_living_variants()
    tell_threads_apart()
    guard_what_is_absent()
    _tell_zeros_apart()
    _note_methods()
    _watch_hooks_and_methods()
    _read_with_care()
    _let_floats_vary()
    _trust_masks()
    _time_tracing()


def _time_tracing() -> None:
    """Tracing counts as compiling; Dynamo's own callbacks for it are lost at every reset."""
    install = CompilationCallbackHandler.install_callbacks

    @contextmanager
    def timed(self: CompilationCallbackHandler, *args: Any, **kwargs: Any) -> Iterator[None]:
        with clock.compiling, install(self, *args, **kwargs):
            yield

    CompilationCallbackHandler.install_callbacks = timed  # type: ignore[method-assign]


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


_METHODS = "_tt_methods"


def _note_methods() -> None:
    """Remember the methods that a trace went through, with the class that each was found on."""
    made = UserMethodVariable.__init__

    def init(self: Any, fn: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
        made(self, fn, obj, *args, **kwargs)
        context, value = TracingContext.try_get(), getattr(obj, "value", None)
        kind = value if isinstance(value, type) else type(value)
        if _METHODS not in getattr(context, "__dict__", {}) or kind is type(None):
            return
        name = getattr(fn, "__name__", "")
        if getattr(torch.nn.Module, name, None) is fn:
            return  # torch itself patches these while it traces, also in another thread
        if _function(kind, name) is not fn:
            held = (n for base in kind.__mro__ for n, v in vars(base).items() if _bare(v) is fn)
            name = next(held, "")
        if name:
            context.__dict__[_METHODS][kind, name] = fn

    UserMethodVariable.__init__ = init  # type: ignore[method-assign]


def _bare(found: Any) -> Any:
    """The function of a class method."""
    return getattr(found, "__func__", found)


def _function(kind: type, name: str) -> Any:
    return _bare(getattr(kind, name, None))


def _watch_hooks_and_methods() -> None:
    """Hooks on all modules, methods of classes, builtins: Dynamo takes them for constants."""
    held = (module._global_forward_hooks, module._global_forward_pre_hooks)
    ambient = OutputGraph.init_ambient_guards

    def init_ambient_guards(self: OutputGraph) -> None:
        ambient(self)
        noted: dict[tuple[type, str], Any] = {}
        taken: dict[tuple[int, str], Any] = {}
        self.tracing_context.__dict__[_METHODS] = noted
        self.tracing_context.__dict__[BUILTINS] = taken

        def same_hooks_and_methods(builder: GuardBuilder, guard: Any) -> None:
            seen = tuple(map(dict, held))
            methods = [(kind, name, function) for (kind, name), function in noted.items()]
            absent = [(space, name) for (_, name), space in taken.items()]
            builder.guard_manager.root.add_lambda_guard(
                lambda _: (
                    held == seen
                    and all(_function(kind, name) is function for kind, name, function in methods)
                    and not any(name in space for space, name in absent)
                ),
                ["module hooks and methods"],
                guard.user_stack,
            )

        self.guards.add(GlobalStateSource().make_guard(same_hooks_and_methods))

    OutputGraph.init_ambient_guards = init_ambient_guards  # type: ignore[method-assign]


def _read_with_care() -> None:
    """Objects whose state Dynamo reads once and guards in part."""
    wrap = VariableBuilder._wrap

    def wrap_with_care(self: VariableBuilder, value: Any) -> Any:
        if type(value) is OrderedDict and len(value) > 1:
            self.install_guards(_same_order)
        limited = isinstance(value, deque) and value.maxlen is not None
        if limited or isinstance(value, random.Random):
            what = "a deque with maxlen" if limited else "a random.Random"
            unimplemented(
                gb_type="object with hidden state",
                context=what,
                explanation=f"{what} is read in eager Python, where its state counts",
                hints=[],
            )
        return wrap(self, value)

    VariableBuilder._wrap = wrap_with_care  # type: ignore[method-assign]


def _same_order(self: GuardBuilder, guard: Any) -> None:
    """OrderedDict.move_to_end changes the order; Dynamo's guards read that of the dict below."""
    held = weakref.ref(self.get(guard))
    keys = list(self.get(guard))

    def same(_: Any) -> bool:
        value = held()
        return value is not None and list(value) == keys

    self.guard_manager.root.add_lambda_guard(
        same, [f"order of {self.arg_ref(guard)}"], guard.user_stack
    )


def _let_floats_vary() -> None:
    """A float that is another one at the next call becomes an input, not one more program."""
    wrap_float = VariableBuilder.wrap_symfloat

    def wrap_varying(self: VariableBuilder, value: float) -> Any:
        with config.patch(automatic_dynamic_shapes=True) if fixed_sizes.get() else nullcontext():
            return wrap_float(self, value)

    VariableBuilder.wrap_symfloat = wrap_varying  # type: ignore[method-assign]


def _trust_masks() -> None:
    """nn.Transformer looks into its masks for a causal one, a hint for fused kernels that breaks
    the graph; without the hint the mask itself is applied."""
    torch._dynamo.substitute_in_graph(transformer._detect_is_causal_mask)(_detect_is_causal_mask)


def _detect_is_causal_mask(
    mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    return is_causal is True
