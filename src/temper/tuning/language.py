"""Language models by the numbers that people ask for: first token, tokens per second, what fits.

All times are modelled. Two programs are compiled, of one and of two periods of layers; the whole
model is the first and as many differences as it has further periods. So a model of any depth is
costed on a small host, and no weight is ever read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from temper import chips
from temper.cost import ProgramCost, estimate
from temper.errors import UsageError
from temper.frontdoor.language.fitting import with_context
from temper.frontdoor.language.folder import is_folder, period, read_config, shallow
from temper.frontdoor.language.programs import (
    StepKind,
    bucket,
    build_step,
    rounded_capacity,
)
from temper.frontdoor.language.step import layer_shapes, other_layers
from temper.frontdoor.loader import load
from temper.options import Options, resolve
from temper.program import Program
from temper.program.simulate import walk
from temper.program.trace_size import region_for, trace_bytes

Progress = Callable[[str], None]
# Caches of this length and twice it tell what a token takes.
_NEAR = 12288


@dataclass(frozen=True)
class Band:
    """A modelled figure and the range that measured ones are expected in."""

    value: float
    low: float
    high: float

    def per(self, count: float) -> Band:
        """``count`` things in this many nanoseconds, as a rate for each second."""
        return Band(*(count * 1e9 / ns for ns in (self.value, self.high, self.low)))


@dataclass(frozen=True)
class DecodeOp:
    """One op of a layer: what it is, its modelled time, and what bounds it."""

    kind: str
    module: str
    time_ns: float
    bound: str


@dataclass(frozen=True)
class LanguageTimes:
    """One line of the table: a batch at a context."""

    chip: str
    users: int
    context: int
    prompt: int
    first_token_ns: Band
    step_ns: Band
    read_bytes: int  # weights and cache that one step reads from DRAM
    roofline_ns: float  # those bytes at the peak rate of the board's DRAM
    fits: bool  # whether weights and caches of this context fit in the board's DRAM
    extrapolated: bool
    layer: tuple[DecodeOp, ...]  # what each further period of layers adds

    @property
    def tokens_per_user(self) -> Band:
        return self.step_ns.per(1)

    @property
    def tokens(self) -> Band:
        return self.step_ns.per(self.users)

    @property
    def roofline_share(self) -> float:
        """How much of the time nothing but reading DRAM at its peak would take."""
        return self.roofline_ns / self.step_ns.value


class LanguageCosts:
    """A language model as shapes: a folder with config.json, or a callable that makes a model."""

    def __init__(self, argument: str, options: Mapping[str, Any] | Options) -> None:
        given = options if isinstance(options, Options) else resolve(options)
        self.options = given
        self._build: Any = None
        if is_folder(argument):
            self.config = read_config(argument)
        elif ":" not in argument:
            there = Path(argument).is_dir()
            raise UsageError(
                f"{argument} has no config.json" if there else f"there is no folder {argument}",
                needs="a folder with the config.json of a language model, or file.py:callable",
                try_=[str(path.parent) for path in sorted(Path(argument).glob("*/config.json"))][:3]
                or ["a folder as transformers' save_pretrained writes it"],
            )
        else:
            model: Any = load(argument).model
            if not hasattr(model, "config") or not hasattr(model, "generate"):
                raise UsageError(
                    f"{argument} makes no language model of transformers",
                    given=type(model).__name__,
                    try_=["a folder with a config.json"],
                )
            self.config, self._build = model.config, type(model)
        if self.config.is_encoder_decoder:
            raise UsageError("an encoder-decoder has no decode step of its own to cost here")
        if other_layers(self.config):
            kinds = ", ".join(other_layers(self.config))
            raise UsageError(
                f"{argument} has layers of kind {kinds}, which keep no keys and values",
                needs="layers of attention alone: prefill and decode programs share their cache",
            )
        self.chip = chips.get(given["chip"])
        self._programs: dict[tuple[StepKind, int], Program] = {}

    @cached_property
    def _period(self) -> int:
        return period(self.config)

    @property
    def periods(self) -> float:
        """How often the pattern of layers stands in the whole model."""
        return float(self.config.num_hidden_layers) / self._period

    def program(self, kind: StepKind, times: int) -> Program:
        """A step of the model with so many periods of layers."""
        key = (kind, times)
        if key not in self._programs:
            count = min(times * self._period, self.config.num_hidden_layers)
            model = shallow(self.config, count, self._build)
            named = bool(getattr(model, "_supports_attention_backend", False))
            built = build_step(model, layer_shapes(model, named), kind, self.options, named)
            self._programs[key] = built.program
        return self._programs[key]

    def times(
        self,
        users: int,
        context: int,
        prompt: int = 128,
        *,
        room: int = 0,
        progress: Progress = lambda _: None,
    ) -> LanguageTimes:
        """First token of one prompt, and a step of ``users`` users at ``context`` tokens.

        ``room`` makes the cache longer than the context, so that several share their programs.
        """
        capacity = rounded_capacity(max(context + 1, prompt, room + 1))
        progress(f"decode, {users} users, context {context}")
        step = StepKind(users, capacity, choose=True)
        ends = [_at(self.program(step, n), context) for n in (1, 2)]
        costs = [estimate(p, traced=bool(self.options["enable_trace"])) for p in ends]
        progress(f"prompt of {prompt} tokens")
        fill = StepKind(1, capacity, bucket(prompt, capacity), choose=True)
        first = [estimate(self.program(fill, n)) for n in (1, 2)]
        bytes_read = self._whole(*(float(_read_bytes(p, context)) for p in ends))
        added = costs[1].ops[_first_difference(ends) :][: len(ends[1].ops) - len(ends[0].ops)]
        ops = ends[1].ops[_first_difference(ends) :][: len(added)]
        return LanguageTimes(
            self.chip.name, users, context, prompt,
            self._band(first), self._band(costs), int(bytes_read),
            bytes_read / self.chip.dram_peak_gbps,
            context <= self._longest([self.program(step, n) for n in (1, 2)], capacity, context),
            any(c.extrapolated for c in (*costs, *first)),
            tuple(DecodeOp(o.kind, o.source.module, c.kernel_ns, c.bound)
                  for o, c in zip(ops, added, strict=True)),
        )  # fmt: skip

    def _whole(self, one: float, two: float) -> float:
        return one + (self.periods - 1) * (two - one)

    def _band(self, costs: list[ProgramCost]) -> Band:
        return Band(*(
            self._whole(getattr(costs[0], name), getattr(costs[1], name))
            for name in ("call_ns", "call_low_ns", "call_high_ns")
        ))  # fmt: skip

    def longest(self, users: int, most: int = 1 << 20) -> int:
        """Tokens for each user that fit on the board; 0 where weights alone do not."""
        made = [kind for kind, _ in self._programs if kind.decode and kind.users == users]
        kind = made[0] if made else StepKind(users, 512, choose=True)
        return self._longest([self.program(kind, n) for n in (1, 2)], kind.capacity, most)

    def _longest(self, programs: list[Program], now: int, most: int) -> int:
        region = self.options["trace_region_size"] or 0
        if self.options["enable_trace"] and not region:
            whole = self._whole(*(float(trace_bytes(p, self.chip)) for p in programs))
            region = region_for(int(whole), self.chip)
        room = self.chip.dram_bank_bytes - region / self.chip.dram_banks
        at = {
            length: self._whole(*(
                float(walk(with_context(p, now, length), self.chip).dram_high_water_bytes)
                for p in programs
            ))
            for length in (_NEAR, 2 * _NEAR)
        }  # fmt: skip
        per_token = (at[2 * _NEAR] - at[_NEAR]) / _NEAR
        length = _NEAR + int((room - at[_NEAR]) / per_token) if per_token else most
        return max(0, min(most, length))


def _at(program: Program, context: int) -> Program:
    """The program costed for users at this position."""
    ops = tuple(
        op.with_attrs(context=context) if op.kind == "SdpaDecode" else op for op in program.ops
    )
    return program.replace(ops=ops)


def _read_bytes(program: Program, context: int) -> int:
    """Weights of matmuls, and the filled part of the caches, that one step reads."""
    total = 0.0
    for op in program.ops:
        if op.kind == "Matmul":
            total += program.spec(op.inputs[1]).size_bytes
        elif op.kind == "SparseMatmul":
            weight = program.spec(op.inputs[1])
            total += weight.size_bytes * (op.attr("active") or 1) / weight.shape[0]
        elif op.kind == "SdpaDecode":
            for name in op.inputs[1:3]:
                cache = program.spec(name)
                kept = min(context, op.attr("window") or context)
                total += cache.size_bytes * kept / cache.shape[2]
    return int(total)


def _first_difference(programs: list[Program]) -> int:
    """Where the second period of layers begins in the deeper program."""
    one, two = ([(op.kind, op.attrs) for op in p.ops] for p in programs)
    extra = len(two) - len(one)
    for index in range(len(one)):
        if one[index] != two[index] or one[index:] == two[index + extra :]:
            return index
    return len(one)
