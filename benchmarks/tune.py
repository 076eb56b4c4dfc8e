"""Tuning against its bars: costing rate, mixed precision in time and better, batch sweep in time.

python benchmarks/tune.py [--cpu] [costing] [mixed] [models] [decode] [batch]; exits with 1 when a
bar is missed. Bars are of wall time; --cpu judges by this process's CPU seconds instead, for hosts
that others use at the same time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from models import MODELS
from temper.tuning.accuracy import floors
from temper.tuning.batch import tune_batch
from temper.tuning.engine import ACCUMULATIONS, FIDELITIES, Engine, Setting
from temper.tuning.globs import compress
from temper.tuning.mixed import Point
from temper.tuning.variants import FORMATS

SETTINGS_PER_S = 100
MIXED_SECONDS = 180
BATCH_SECONDS = 60
FASTER_ON = 3
DECODE_GAIN = 1.05
DECODE_FLOOR = 0.99
# As tune does: both sides may take either.
DECODE_FIDELITIES = ("default", "LoFi")
FIVE = ("bert", "vit", "autoencoder", "dlrm", "llama")
FLOOR = 0.999


class Timer:
    def __enter__(self) -> Timer:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: Any) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu

    @property
    def judged(self) -> float:
        return self.cpu if "--cpu" in sys.argv else self.wall

    def __str__(self) -> str:
        return f"{self.wall:.1f} s wall, {self.cpu:.1f} s CPU"


def costing() -> bool:
    """Settings of BERT-base costed a second, none run."""
    engine = Engine(MODELS["bert"], "n150", floors(FLOOR))
    for level, traced in product((1, 2), (True, False)):
        engine.built(level, None, traced)
    count = 0
    with Timer() as timer:
        for parts in product((1, 2), (True, False), FIDELITIES, ACCUMULATIONS, FORMATS):
            engine.cost(Setting(*parts[:4], 0, parts[4]))
            count += 1
    rate = count / timer.wall
    print(f"costing BERT-base: {rate:.0f} settings/s ({count} in {timer}), bar {SETTINGS_PER_S}")
    return count / timer.judged >= SETTINGS_PER_S


def mixed(
    name: str = "bert", wanted: float = FLOOR, fidelities: Sequence[str] = ("default",)
) -> tuple[bool, float]:
    """Solve one model's mixed precision; whether it kept the floor in time, and its gain.

    Both sides get the same: the best by the cost model in place are compiled for real, as many
    of one as of the other at each fidelity, and the fastest that keeps the floor is taken. A loss
    shows as one.
    """
    every_uniform, every_mixed, weights = [], [], 0
    with Timer() as timer:
        # PCC of bfloat16 itself bounds what any format can keep.
        engine = Engine(MODELS[name], "n150", floors(-1.0))
        plain = engine.measure(Setting(level=2, trace=True), {})["pcc"]
        floor = min(wanted, plain - (1 - plain) * 0.2)
        engine.floors = floors(floor)
        for fidelity in fidelities:
            setting = Setting(level=2, trace=True, fidelity=fidelity)
            points = engine.solve(setting)
            met = sorted((p for p in points if p.met), key=lambda p: p.time_ns)
            alike = [p for p in met if len(set(p.formats.values())) <= 1]
            unlike = [p for p in met if p not in alike]
            tries = max(1, min(len(alike), len(unlike)))
            weights = len(points[0].formats)
            every_uniform += _compiled(engine, setting, alike[:tries], floor)
            every_mixed += _compiled(engine, setting, unlike[:tries], floor)
    uniform = min(every_uniform, key=lambda p: p.time_ns, default=None)
    solved = min(every_mixed, key=lambda p: p.time_ns, default=None)
    if uniform is None:
        print(f"mixed precision of {name}: no uniform format keeps {floor:.5f}")
        return False, 1.0
    # What tune takes: a mixed choice, or the uniform format where that is as fast.
    taken = min(filter(None, (solved, uniform)), key=lambda p: p.time_ns)
    gain = uniform.time_ns / taken.time_ns
    alone = f"{uniform.time_ns / solved.time_ns - 1:+.2%}" if solved else "none kept the floor"
    print(
        f"mixed precision of {name}: {weights} weights, floor {floor:.5f}, best of "
        f"{len(every_uniform)} and {len(every_mixed)} compiled: taken "
        f"{taken.time_ns / 1e3:.1f} µs modelled at PCC "
        f"{taken.accuracy['pcc']:.5f} measured; uniform {uniform.time_ns / 1e3:.1f} µs, gain "
        f"{gain - 1:+.2%} (mixed alone {alone}); {len(compress(taken.formats))} globs; {timer}",
        flush=True,
    )
    return name != "bert" or timer.judged < MIXED_SECONDS, gain


def _compiled(engine: Engine, setting: Setting, points: list[Point], floor: float) -> list[Point]:
    """These assignments compiled for real, as formats change what fits SRAM, where they keep the
    floor."""
    found = []
    for point in points:
        cost, accuracy = engine.verify(setting, compress(point.formats))
        if accuracy["pcc"] >= floor:
            found.append(replace(point, time_ns=cost.call_ns, accuracy=accuracy))
    return found


def models() -> bool:
    """Five models: on how many is the mixed assignment faster than the best uniform format."""
    results = [mixed(name) for name in FIVE]
    slower = [name for name, (_, gain) in zip(FIVE, results, strict=True) if gain < 1.0]
    faster = sum(gain > 1.0 for _, gain in results)
    print(f"faster than the best uniform format on {faster} of {len(FIVE)}, bar {FASTER_ON}")
    return all(kept for kept, _ in results) and faster >= FASTER_ON and not slower


def decode() -> bool:
    """A decode step, bound by the bytes of its weights: mixed must win where it can win."""
    kept, gain = mixed("decode", DECODE_FLOOR, DECODE_FIDELITIES)
    print(f"decode: mixed over the best uniform format {gain - 1:+.2%}, bar {DECODE_GAIN - 1:+.0%}")
    return kept and gain >= DECODE_GAIN


def batch() -> bool:
    """The MNIST CNN from batch 1 to where memory ends."""
    with Timer() as timer:
        options = {"optimization_level": 2, "enable_trace": True}
        curve = tune_batch(MODELS["mnist"], options, limit=1 << 20, to_the_end=True)
    print(
        f"batch sweep of the MNIST CNN: {len(curve.points)} batches up to "
        f"{curve.points[-1].batch}, best {curve.best}, {timer}, bar {BATCH_SECONDS} s; "
        f"{curve.ended}"
    )
    return timer.judged < BATCH_SECONDS


def main() -> None:
    bars = {
        "costing": costing, "mixed": lambda: mixed()[0], "models": models, "decode": decode,
        "batch": batch,
    }  # fmt: skip
    chosen = [a for a in sys.argv[1:] if a != "--cpu"] or ["costing", "models", "decode", "batch"]
    if not set(chosen) <= set(bars):
        sys.exit(__doc__)
    passed = [bars[name]() for name in chosen]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
