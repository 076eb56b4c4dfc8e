"""The programs of a generative model: a prompt of each length bucket, and one for every token."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from temper import chips
from temper.capture.capture import capture
from temper.compiler.pipeline import Built, build
from temper.errors import OutOfMemoryError
from temper.frontdoor.language.fitting import longest_context
from temper.frontdoor.language.rotary import call_angles, tables
from temper.frontdoor.language.step import NET, STATE, LanguageStep, LayerShape
from temper.graph.captured import Captured
from temper.options import Options
from temper.program.allocator import count
from temper.program.tensor import TILE, TensorSpec, round_up

# Prompts are padded to these lengths: one program each (EXPERT 4.7 pads to 128).
_SHORT = (32, 64, 128)


@dataclass(frozen=True)
class StepKind:
    """Which program: a prompt of ``rows`` tokens, or a token (rows 0), for how many users."""

    users: int
    capacity: int
    rows: int = 0
    every_row: bool = False
    choose: bool = False
    apart: bool = False  # the users of a prompt stand at different positions, slot by slot

    @property
    def decode(self) -> bool:
        return self.rows == 0


def bucket(length: int, capacity: int) -> int:
    """The length that a prompt is padded to."""
    for size in _SHORT:
        if length <= size:
            return min(size, capacity)
    return min(1 << (length - 1).bit_length(), capacity)


def rounded_capacity(length: int) -> int:
    """Slots of a cache: whole tiles; beyond 512, whole blocks of the decode attention."""
    return round_up(length, 512 if length > 512 else TILE)


def build_step(
    model: torch.nn.Module,
    layers: list[LayerShape],
    kind: StepKind,
    options: Options,
    named: bool = True,
) -> Built:
    """Capture and compile one step; a cache that does not fit is told with what would."""
    if kind.capacity > _PROBE and _may_not_fit(model, layers, kind, options):
        probe = build_step(model, layers, replace(kind, capacity=_PROBE, rows=0), options, named)
        fits = longest_context(probe.program, options, _PROBE, kind.capacity)
        if fits < kind.capacity:
            raise _too_long(kind, layers, fits, options)
    started = time.perf_counter()
    step = LanguageStep(
        model, layers, users=kind.users, length=kind.capacity, decode=kind.decode,
        named=named, every_row=kind.every_row, choose=kind.choose,
    )  # fmt: skip
    inputs = example_inputs(kind, named)
    angles = call_angles(model, inputs[1])
    with tables(model, kind.capacity):
        captured = capture(step, (*inputs, *angles), state=STATE)
    captured.name = f"{type(model).__name__}_{'decode' if kind.decode else f'prefill{kind.rows}'}"
    named_by_model(captured)
    built = build(captured, options, cached=True)
    rest = time.perf_counter() - started - sum(built.stages.values())
    built.stages = {"capture": rest, **built.stages}
    return built


# A step with a cache this short tells what everything but the cache needs.
_PROBE = 512
# Below this share of the DRAM nobody needs to ask.
_SURELY = 0.8


def cache_bytes(layers: list[LayerShape], kind: StepKind, options: Options) -> int:
    """DRAM of the caches alone, in their format and whole tiles."""
    fmt = options["experimental_kv_cache_dtype"] or "bfloat16"
    specs = (
        TensorSpec((kind.users, layer.heads, kind.capacity, depth), fmt)
        for layer in layers
        for depth in (layer.key_depth, layer.value_depth)
    )
    return sum(spec.size_bytes for spec in specs)


def _may_not_fit(
    model: torch.nn.Module, layers: list[LayerShape], kind: StepKind, options: Options
) -> bool:
    chip = chips.get(options["chip"])
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    room = chip.dram_banks * chip.dram_bank_bytes
    return cache_bytes(layers, kind, options) + weights > _SURELY * room


def example_inputs(kind: StepKind, named: bool = True) -> tuple[torch.Tensor, ...]:
    """Token ids, position ids and slots (or last rows) of a step, all zero."""
    shape = (kind.users, kind.rows)
    if kind.decode:
        shape = (1, kind.users) if named else (kind.users, 1)
    ids = torch.zeros(shape, dtype=torch.long)
    # One row of positions for all users: ttnn turns a prompt's heads by no more than one.
    places = ids if kind.decode or kind.apart else ids[:1]
    return ids, places.clone(), torch.zeros(kind.users, dtype=torch.int32)


def named_by_model(captured: Captured) -> None:
    """Paths and modules as the user's model has them, not as they hang in the step."""
    prefix = NET + "."
    for argument in captured.arguments:
        argument.path = argument.path.removeprefix(prefix)
    captured.weights = {p.removeprefix(prefix): w for p, w in captured.weights.items()}
    for node in captured.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            node.meta["nn_module_stack"] = {
                key: (_without_net(str(path)), kind) for key, (path, kind) in stack.items()
            }


def _without_net(path: str) -> str:
    return path.removeprefix(NET).removeprefix(".") if path.startswith(NET) else path


def _too_long(
    kind: StepKind, layers: list[LayerShape], fits: int, options: Options
) -> OutOfMemoryError:
    chip = chips.get(options["chip"])
    ways = [f"max_context={fits} or a shorter text"] if fits else []
    if not options["experimental_kv_cache_dtype"]:
        ways.append("experimental_kv_cache_dtype=bfp_bf8")
    if kind.users > 1:
        ways.append("fewer users")
    ways.append("experimental_weight_dtype=bfp_bf8")
    return OutOfMemoryError(
        f"a cache of {kind.capacity} tokens for {kind.users} users does not fit on {chip.name}; "
        f"the longest context that fits is {fits or 'none'}.",
        needs=(
            f"{count(cache_bytes(layers, kind, options))} B for the cache beside weights and "
            f"activations; the banks have {count(chip.dram_banks * chip.dram_bank_bytes)} B"
        ),
        try_=ways[:3],
    )
