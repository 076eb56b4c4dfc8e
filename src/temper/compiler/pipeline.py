"""The whole way from a captured graph to a placed program, stage by stage, without running it."""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException, TorchRuntimeError

from temper import chips
from temper._version import __version__
from temper.capture.capture import capture, capture_fx, hushed
from temper.compiler import cache
from temper.cost.constants import constants, use
from temper.errors import CompileError, TemperError, UsageError, raised_at
from temper.graph.captured import Captured
from temper.lowering import lower
from temper.lowering.legalise import legalise
from temper.options import Options, resolve
from temper.passes import GRAPH_PASSES, PROGRAM_PASSES, PassReport, run_passes
from temper.passes.draft import Draft
from temper.placement.exact_products import exact_products
from temper.placement.place import place_with_report
from temper.placement.report import PlacementReport
from temper.program import Program, verify
from temper.program.text import to_text
from temper.weights.report import WeightFormatEntry


@dataclass
class Built:
    """One compiled graph: the placed program, its weights, and what the compiler did."""

    program: Program
    captured: Captured
    options: Options
    passes: list[PassReport]
    stages: dict[str, float]  # seconds by stage
    placement: PlacementReport | None = None  # where tensors lie and why

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return self.captured.weights

    @property
    def weight_report(self) -> list[WeightFormatEntry]:
        return self.captured.weight_report


@dataclass
class CompiledPrograms:
    """All graphs of a model; most models have one."""

    graphs: list[Built] = field(default_factory=list)

    @property
    def programs(self) -> list[Program]:
        return [g.program for g in self.graphs]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return {k: v for g in self.graphs for k, v in g.weights.items()}

    @property
    def passes(self) -> list[PassReport]:
        return [p for g in self.graphs for p in g.passes]

    @property
    def weight_report(self) -> list[WeightFormatEntry]:
        return [e for g in self.graphs for e in g.weight_report]


def compile_model(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    cached: bool = False,
) -> CompiledPrograms:
    """Compile without running; a model that needs several graphs is split by Dynamo.

    ``cached`` is for callers that need no report of the placement: see ``build``.
    """
    resolved = options if isinstance(options, Options) else resolve(options)
    started = time.perf_counter()
    try:
        captured = capture(model, args, kwargs)
    except CompileError:
        return _compile_split(model, args, kwargs or {}, resolved)
    built = build(captured, resolved, cached=cached)
    built.stages = {
        "capture": time.perf_counter() - started - sum(built.stages.values()),
        **built.stages,
    }
    return CompiledPrograms([built])


def build(captured: Captured, options: Options, *, cached: bool = False) -> Built:
    """Graph passes, lowering, program passes, placement.

    ``cached`` looks placement, by far the longest stage, up on disk; a program from there comes
    without the report of why tensors lie where they do.
    """
    if options["cost_data"]:
        use(options["cost_data"])
    stages: dict[str, float] = {}
    clock = _Clock(stages)
    reports = run_passes(GRAPH_PASSES, captured, options)
    clock.lap("graph passes")
    program = lower(captured, options)
    verify(program)
    clock.lap("lower")
    draft = Draft(program, captured.weights)
    reports += run_passes(PROGRAM_PASSES, draft, options)
    program = legalise(draft.finish())
    clock.lap("program passes")
    key = _key(program) if cached and options["compile_cache"] else ""
    placed = cache.get(key) if key else None
    placement = None
    if placed is None:
        level = 2 if options["enable_sram"] else min(1, options["optimization_level"])
        chip = chips.get(options["chip"])
        placed, placement = place_with_report(program, chip, level, options)
        verify(placed)
        if key:
            cache.put(key, placed)
    if placed.state and not options.explicit("math_fidelity"):
        placed = exact_products(placed, chips.get(options["chip"]))
    clock.lap("place")
    return Built(placed, captured, options, reports, stages, placement)


def _key(program: Program) -> str:
    """The name of an unplaced program, its options and everything that placement depends on."""
    digest = hashlib.sha256(to_text(program).encode())
    digest.update(repr(sorted((k, repr(v)) for k, v in program.options.items())).encode())
    digest.update(f"{__version__} {torch.__version__} {constants()!r}".encode())
    digest.update(_sources().encode())
    return digest.hexdigest()


# Rooms whose sources say what a placed program looks like.
_ROOMS = (
    "chips", "formats", "options", "program", "cost", "placement", "weights", "graph", "capture",
    "passes", "lowering", "compiler",
)  # fmt: skip


@functools.cache
def _sources() -> str:
    """The compiler itself: an entry made by other sources is never taken for this one's."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(path for room in _ROOMS for path in (package / room).rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _Clock:
    def __init__(self, stages: dict[str, float]) -> None:
        self.stages = stages
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.stages[name] = now - self.last
        self.last = now


def _compile_split(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options
) -> CompiledPrograms:
    """Let Dynamo cut the model into graphs; each is compiled and then run by eager torch."""

    found = CompiledPrograms()

    def collect(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        name = f"{type(model).__name__}_g{len(found.graphs)}"
        found.graphs.append(build(capture_fx(module, inputs, name), options))
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad(), own_errors(model, args, kwargs):
        torch.compile(model, backend=collect, dynamic=False)(*args, **kwargs)
    torch._dynamo.reset()
    return found


@contextmanager
def own_errors(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """A model that fails on its inputs by itself is told so, not by way of the compiler."""
    try:
        with hushed():
            yield
    except Exception as error:
        raise own_error(error, model, args, kwargs) from error


def own_error(
    error: Exception, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception:
    """What to raise for an error of a compiled call: ours, the model's own, or Dynamo's."""
    inner = error.__cause__ if isinstance(error.__cause__, TemperError) else error
    if isinstance(inner, TemperError) or not isinstance(error, TorchDynamoException):
        return inner
    if isinstance(error, TorchRuntimeError):
        # Dynamo ran the model's Python on tensors without data, and that failed.
        cause, at = _told_by_dynamo(error)
        return UsageError(
            f"{type(model).__name__} fails on these inputs without a compiler too",
            cause=cause,
            at=at,
            given=", ".join(_described(t) for t in (*args, *kwargs.values())),
            see="'temper --debug ...' shows the whole traceback",
        )
    return error


def _told_by_dynamo(error: Exception) -> tuple[str, str]:
    """The model's own error and its place in the user's code, out of Dynamo's long text."""
    text = str(error.__cause__ or error).strip()
    got = re.search(r": got (\w+)\((['\"])(.*?)\2\)", text)
    first = next(iter(text.splitlines()), "")
    cause = f"{got[1]}: {got[3]}" if got else f"{type(error.__cause__ or error).__name__}: {first}"
    frames = re.findall(r'File "(.+?)", line (\d+), in (\w+)', str(error))
    at = "{}:{}, in {}".format(*frames[-1]) if frames else raised_at(error)
    return cause[:300], at


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__
