"""The tuner's two judges: modelled time of any setting, measured accuracy of any setting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from temper.compiler.pipeline import Built, CompiledPrograms, compile_model
from temper.cost import ProgramCost, estimate
from temper.errors import OutOfMemoryError, TemperError
from temper.frontdoor.loader import Loaded, find, takes_batch
from temper.program import Program
from temper.tuning import mixed
from temper.tuning.accuracy import CHIP_SUMS, Floor, Probe, judged, loss
from temper.tuning.globs import compress
from temper.tuning.prepared import Source, first_output, prepared, run_once
from temper.tuning.sample import choose
from temper.tuning.variants import FORMATS, Unit, gains_ns, units, variant

FIDELITIES = ("default", "LoFi", "HiFi2", "HiFi3", "HiFi4")
ACCUMULATIONS = ("default", "float32", "bfloat16")

# Mixed choices that are placed anew before one of them is taken.
_PLACED = 4


class OutOfTime(Exception):
    """The budget ended inside a trial; what was measured so far is kept."""


@dataclass(frozen=True)
class Setting:
    """One point of the search. ``formats`` is a uniform format or ``mixed``."""

    level: int = 2
    trace: bool = True
    fidelity: str = "default"
    accumulation: str = "default"
    batch: int = 0  # 0: as the callable gives it
    formats: str = "bf16"

    @property
    def numerics(self) -> tuple[int, str, str]:
        """What decides the numbers: levels 1 and 2 differ in placement alone."""
        return min(self.level, 1), self.fidelity, self.accumulation

    @property
    def arithmetic(self) -> tuple[str | None, bool | None]:
        """Fidelity and float32 accumulation; None where the compiler's own stands."""
        accumulation = None if self.accumulation == "default" else self.accumulation == "float32"
        return None if self.fidelity == "default" else self.fidelity, accumulation

    def options(self, chip: str) -> dict[str, Any]:
        """As compile options, formats apart."""
        made: dict[str, Any] = {
            "chip": chip, "optimization_level": self.level, "enable_trace": self.trace,
        }  # fmt: skip
        fidelity, accumulation = self.arithmetic
        if fidelity is not None:
            made["math_fidelity"] = fidelity
        if accumulation is not None:
            made["fp32_dest_acc_en"] = accumulation
        return made

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @property
    def text(self) -> str:
        """What is not the default, in words."""
        return ", ".join(f"{k} {v}" for k, v in self.__dict__.items() if v not in ("default", 0))


@dataclass
class Engine:
    """One model on one chip, with everything that was compiled and measured for it."""

    source: Source
    chip: str
    floors: Sequence[Floor]
    dtype: str = "bfloat16"
    samples: int | None = None  # batch of the accuracy runs
    options: dict[str, Any] = field(default_factory=dict)  # the user's own, always kept
    progress: Callable[[str], None] = lambda text: None
    energies: dict[str, dict[str, float]] = field(default_factory=dict)
    keep_energies: Callable[[dict[str, dict[str, float]]], None] = lambda table: None
    deadline: float = math.inf  # of time.monotonic()
    _built: dict[Any, Built] = field(default_factory=dict)
    _probes: dict[Any, tuple[Probe, list[Unit]]] = field(default_factory=dict)
    _points: dict[Any, mixed.Point] = field(default_factory=dict)
    _solved: dict[Any, list[mixed.Point]] = field(default_factory=dict)
    _units: dict[Any, list[Unit]] = field(default_factory=dict)
    _placed: dict[Any, Program | None] = field(default_factory=dict)
    _loaded: Loaded | None = None

    def __post_init__(self) -> None:
        function = find(self.source) if isinstance(self.source, str) else self.source
        self.source = function
        self.scalable = takes_batch(function)
        self.progress("float32 reference")
        self.sample = choose(function, self.scalable, self.samples)
        self.samples, self.expected = self.sample.batch, self.sample.expected
        self.floors, self.note = judged(self.floors, self.expected)

    def in_time(self) -> None:
        """Raises when the budget of the search has ended."""
        if time.monotonic() > self.deadline:
            raise OutOfTime

    # --- time ---------------------------------------------------------------------------------

    def built(self, level: int, batch: int | None, traced: bool = True) -> Built:
        """The program of a level and batch, compiled once; raises OutOfMemoryError.

        Level 2 places for calls that are traced or not: launches from the host count without one.
        """
        key = (level, batch, traced and level == 2)
        if key not in self._built:
            self.progress(f"compiling level {level}" + (f", batch {batch}" if batch else ""))
            self._built[key] = self.compile(
                prepared(self.source, batch or None, self.dtype),
                {"optimization_level": level, "enable_trace": key[2]},
            )
        return self._built[key]

    def _program(self, setting: Setting) -> Program:
        return self.built(setting.level, setting.batch or None, setting.trace).program

    def compile(self, loaded: Loaded, options: Mapping[str, Any]) -> Built:
        whole = {**self.options, "chip": self.chip, **options}
        compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, whole, cached=True)
        if len(compiled.graphs) != 1:
            raise TemperError(
                f"Python control flow splits the model into {len(compiled.graphs)} graphs; "
                "tune searches models of one",
                try_=[
                    "take the 'if' or loop on tensor values out of forward",
                    "tune the part that matters with a callable that returns only it",
                    "temper explain and temper tune --batch, which take any number of graphs",
                ],
            )
        return compiled.graphs[0]

    def batch_of(self, setting: Setting) -> int:
        if setting.batch:
            return setting.batch
        shapes = [self.built(setting.level, None).program.spec(n).shape
                  for n in self.built(setting.level, None).program.inputs]  # fmt: skip
        return next((s[0] for s in shapes if len(s) > 1), 1)

    def cost(self, setting: Setting, formats: Mapping[str, str] | None = None) -> ProgramCost:
        """Modelled cost; ``formats`` by parameter path for a mixed setting. Nothing is run.

        Of formats that were placed anew (``place``) the placed program is costed, of others the
        program that was placed for bfloat16 weights.
        """
        fidelity, acc = setting.arithmetic
        placed = self._placed.get(self._place_key(setting, formats))
        if placed is not None:
            return estimate(variant(placed, None, fidelity, acc), traced=setting.trace)
        program = self._program(setting)
        by_value: dict[str, str] = {}
        if setting.formats != "bf16":
            for unit in self.units_of(setting):
                fmt = setting.formats if formats is None else formats.get(unit.paths[0], "bf16")
                by_value[unit.value] = fmt
        return estimate(variant(program, by_value, fidelity, acc), traced=setting.trace)

    def place(self, setting: Setting, formats: Mapping[str, str]) -> ProgramCost:
        """The cost with these formats placed anew: what fits SRAM depends on them."""
        key = self._place_key(setting, formats)
        if key not in self._placed and key[3]:
            self.progress("placing a choice of formats anew")
            loaded = prepared(self.source, setting.batch or None, self.dtype)
            options = {"optimization_level": setting.level, "enable_trace": setting.trace,
                       "weight_dtype_overrides": compress(
                           dict.fromkeys(self.paths(setting), "bf16") | dict(formats))}  # fmt: skip
            try:
                self._placed[key] = self.compile(loaded, options).program
            except OutOfMemoryError:
                self._placed[key] = None  # the plan in place stands; verifying tells
        return self.cost(_mixed(setting), formats)

    def _place_key(
        self, setting: Setting, formats: Mapping[str, str] | None
    ) -> tuple[int, int, bool, frozenset[tuple[str, str]]]:
        if formats is None:
            formats = dict.fromkeys(self.paths(setting), setting.formats)
        kept = frozenset((p, f) for p, f in formats.items() if f != "bf16")
        return setting.level, setting.batch, setting.trace, kept

    def units_of(self, setting: Setting) -> list[Unit]:
        key = (setting.level, setting.batch, setting.trace)
        if key not in self._units:
            self._units[key] = units(self._program(setting))
        return self._units[key]

    # --- accuracy -----------------------------------------------------------------------------

    def probe(self, setting: Setting) -> tuple[Probe, list[Unit]]:
        key = setting.numerics
        if key not in self._probes:
            self.progress(f"preparing accuracy runs, fidelity {setting.fidelity}")
            level = key[0]
            built = self.built(level, self.samples)
            program = variant(built.program, None, *setting.arithmetic)
            found = units(program)
            # The default's probe serves every setting that ends in the same program.
            same = next((p for p in self._probes.values() if p[0].twin.ops == program.ops), None)
            if same is None:
                same = (Probe(program, built.weights, found), found)
            self._probes[key] = same
        return self._probes[key]

    def run(self, setting: Setting) -> torch.Tensor:
        probe, _ = self.probe(setting)
        graph = self.built(setting.numerics[0], self.samples)
        loaded = self._inputs()
        leaves = pytree.tree_leaves((loaded.inputs, loaded.kwargs))
        positions = [a.position for a in graph.captured.inputs if a.node in graph.program.inputs]
        outputs = probe.run([leaves[p] for p in positions])
        made = [outputs[what] for kind, what in graph.captured.outputs if kind == "value"]
        return first_output(made or outputs)

    def _inputs(self) -> Loaded:
        if self._loaded is None:
            self._loaded = prepared(self.source, self.samples, self.dtype)
        return self._loaded

    def was_float32(self) -> bool:
        """Whether the callable made the model in float32."""
        return self._inputs().made_in is torch.float32

    def measure(self, setting: Setting, by_path: Mapping[str, str]) -> dict[str, float]:
        """Every floor's figure with these formats by parameter path."""
        probe, found = self.probe(setting)
        probe.set_formats({u.value: by_path.get(u.paths[0], "bf16") for u in found})
        return self.judge(self.run(setting))

    def judge(self, output: torch.Tensor) -> dict[str, float]:
        expected = self.expected
        actual = output.float().reshape(expected.shape)
        return {floor.name: floor.measure(actual, expected.float()) for floor in self.floors}

    def met(self, accuracy: Mapping[str, float]) -> bool:
        return all(floor.met(accuracy[floor.name]) for floor in self.floors)

    def point(self, setting: Setting, by_path: Mapping[str, str]) -> mixed.Point:
        """Time and accuracy of explicit formats, measured once for each numerics."""
        key = (setting.numerics, tuple(sorted(by_path.items())))
        if key not in self._points:
            accuracy = self.measure(setting, by_path)
            self._points[key] = mixed.Point(dict(by_path), 0.0, accuracy, self.met(accuracy))
        known = self._points[key]
        time_ns = self.cost(_mixed(setting), by_path).call_ns
        return mixed.Point(known.formats, time_ns, known.accuracy, known.met)

    def paths(self, setting: Setting) -> list[str]:
        return [path for unit in self.units_of(setting) for path in unit.paths]

    def solve(self, setting: Setting) -> list[mixed.Point]:
        """Points of mixed assignments for a setting; the sensitivities are measured once."""
        key = (*setting.numerics, setting.batch)
        if key in self._solved:
            return [self.point(setting, p.formats) for p in self._solved[key]]
        base = Setting(level=1)
        probe, found = self.probe(base)

        def measured_one(done: int, total: int) -> None:
            self.progress(f"sensitivity {done} of {total}")
            self.in_time()

        missing = [u for u in found if set(self.energies.get(u.name, {})) < set(FORMATS)]
        if missing:
            self.energies = mixed.sensitivities(
                probe, found, lambda: self.run(base), known=self.energies,
                progress=measured_one,
                keep=self.keep_energies,
            )  # fmt: skip
        here = self.units_of(setting)
        by_paths = {p: row for name, row in self.energies.items() for p in name.split(" + ")}
        known = {u.value: by_paths[u.paths[0]] for u in here if u.paths[0] in by_paths}
        # At the setting's own fidelity: what waits for the matrix engine at one waits for DRAM at
        # another, and there the bytes of a weight count.
        program = variant(self._program(setting), None, *setting.arithmetic)
        gains = gains_ns(program, [u for u in here if u.value in known], setting.trace)
        plain = self.point(setting, {})
        first = self.floors[0]
        target = 2 * (loss({first.name: first.limit}) - loss(plain.accuracy))
        paths = {u.value: u.paths for u in here}

        def measured(chosen: mixed.Assignment) -> mixed.Point:
            self.progress("verifying a mixed assignment")
            return self.point(
                setting, {p: fmt for value, fmt in chosen.items() for p in paths[value]}
            )

        points = mixed.assign(gains, known, measured, target if target > 0 else None)
        self._solved[key] = self._placed_anew(setting, points)
        return self._solved[key]

    def _placed_anew(self, setting: Setting, points: list[mixed.Point]) -> list[mixed.Point]:
        """The same points; the fastest that keep the floor, uniform ones included, placed anew.

        A mixed choice that looks faster in the bfloat16 plan can lose its place in SRAM, so the
        uniform formats are placed as well and what is fastest then is fastest.
        """
        met = sorted((p for p in points if p.met), key=lambda p: p.time_ns)
        uniform = [p for p in met if len(set(p.formats.values())) <= 1]
        others = [p for p in met if p not in uniform]
        for point in (*uniform, *others[:_PLACED]):
            self.in_time()
            self.place(setting, point.formats)
        return [self.point(setting, p.formats) for p in points]

    # --- the real thing -----------------------------------------------------------------------

    def verify(
        self, setting: Setting, overrides: Mapping[str, str]
    ) -> tuple[ProgramCost, dict[str, float]]:
        """Compile with the override rules for real: time at the batch, accuracy on the samples."""
        options = setting.options(self.chip)
        if overrides:
            options["weight_dtype_overrides"] = dict(overrides)
        timed = self.compile(prepared(self.source, setting.batch or None, self.dtype), options)
        cost = estimate(timed.program, traced=setting.trace)
        loaded = prepared(self.source, self.samples, self.dtype)
        graph = self.compile(loaded, {**options, "enable_trace": False, **CHIP_SUMS})
        output = run_once(loaded, CompiledPrograms([graph]))
        assert output is not None
        return cost, self.judge(output)


def _mixed(setting: Setting) -> Setting:
    return Setting(**{**setting.__dict__, "formats": "mixed"})
