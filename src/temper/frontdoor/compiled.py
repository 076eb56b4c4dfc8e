"""``temper.compile``: a model whose calls run on the virtual chip."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import torch

from temper.compiler.pipeline import own_error
from temper.errors import UsageError
from temper.frontdoor.backend import make_backend
from temper.frontdoor.language.detect import generative
from temper.frontdoor.loaded import Kept, LoadedGraph
from temper.frontdoor.region import Region
from temper.frontdoor.uncompiled import warn_uncompiled
from temper.options import Options, resolve
from temper.program.memory_plan import plan
from temper.units import bytes_text, html_table, time_text


class CompiledModel:
    """Calls like the model it wraps: what eager torch would give, on the virtual chip.

    Dynamo captures the model at a call that no compiled graph holds for, as one graph or, where
    Python control flow forbids that, as several with the Python in between.
    """

    def __init__(self, model: torch.nn.Module, options: Options) -> None:
        self._model = model
        self._graphs = Kept()
        self._region = Region(model, make_backend(options, self._graphs))
        self._run = self._region.run
        self._seen = 0
        self.options = options
        self._generative = generative(
            model, options, self._graphs.add, lambda part: CompiledModel(part, options)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._generative is not None and self._generative.takes(args, kwargs):
            return self._generative.call(args, kwargs)
        try:
            made = self._run(*args, **kwargs)
        except Exception as error:
            told = own_error(error, self._model, args, kwargs)
            if told is error:
                raise
            raise told from error
        if self._region.frames != self._seen:
            self._tell()
        return made

    @property
    def loaded(self) -> list[LoadedGraph]:
        """The graphs that are kept for this model, oldest first."""
        return self._graphs.alive()

    @property
    def compiles(self) -> int:
        """How many graphs are kept."""
        return len(self.loaded)

    def reload_weights(self) -> None:
        """Read every weight again at the next call.

        For values written through ``.data`` or a numpy view: those leave no trace that could be
        watched, beside a sample of the bytes.
        """
        for graph in self.loaded:
            graph.reload_weights()

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModel:
        """A copy of the model, to be compiled at its first call."""
        return CompiledModel(copy.deepcopy(self._model, memo), self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledModel, (self._model, self.options)

    def _tell(self) -> None:
        """After a call that something was compiled for."""
        if self._seen == 0 and not self._graphs.count:
            warn_uncompiled(type(self._model).__name__, stacklevel=3)
        if self._model.training:
            warnings.warn(
                "the model is in training mode: dropout and batch norm act as in training, but a "
                "compiled model gives no gradients; call model.eval() for inference",
                stacklevel=3,
            )
        self._seen = self._region.frames

    def __getattr__(self, name: str) -> Any:
        language = self.__dict__.get("_generative")
        if name == "generate" and language is not None:
            return functools.partial(language.generate, self)
        return getattr(self.__dict__["_model"], name)

    def _repr_html_(self) -> str:
        """Its graphs with their modelled times and memory, as a notebook shows them."""
        rows = []
        for graph in self.loaded:
            program, cost, memory = graph.program, graph.cost(), plan(graph.program)
            host = len(program.host_ops)
            band = f"{time_text(cost.call_low_ns)} to {time_text(cost.call_high_ns)}"
            rows.append((
                program.name, str(len(program.ops) - host), str(host), time_text(cost.call_ns),
                band, bytes_text(memory.dram_high_water), bytes_text(memory.sram_high_water),
            ))  # fmt: skip
        above = f"{self!r}: " + ("times modelled" if rows else "compiled at its first call")
        columns = ("graph", "device ops", "host ops", "a call", "band", "DRAM", "SRAM per core")
        return html_table(above, columns, rows)

    def __repr__(self) -> str:
        return (
            f"CompiledModel({type(self._model).__name__}, chip={self.options['chip']}, "
            f"level={self.options['optimization_level']})"
        )


def compile(
    model: torch.nn.Module, *, chip: str | None = None, level: int | None = None, **options: Any
) -> CompiledModel:
    """Compile a model for a chip: ``temper.compile(model, chip="n150", level=2, ...)``.

    Keyword arguments are compile options (``temper options`` lists them). The model is captured
    at its first call, for the shapes of that call.
    """
    if isinstance(model, CompiledModel):
        model = model._model
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"temper.compile takes a torch.nn.Module, not {type(model).__name__}")
    given = dict(options)
    if chip is not None:
        given["chip"] = chip
    if level is not None:
        given["optimization_level"] = level
    return CompiledModel(model, resolve(given))


def warmup(model: Any, *inputs: Any, iterations: int = 3, **kwargs: Any) -> Any:
    """Call the model a few times, so that compile, program cache and trace are behind you.

    Gradients are as the caller has them: a call under ``torch.no_grad()`` is another one than a
    call without, and is compiled for itself.
    """
    if iterations < 1:
        raise UsageError("warmup needs at least one iteration")
    output = None
    for _ in range(iterations):
        output = model(*inputs, **kwargs)
    return output
