"""Tuning against its bars: costing rate, mixed precision in time and better, batch sweep in time.

python benchmarks/tune.py [--cpu] [costing] [mixed] [models] [batch]; exits with 1 when a bar is
missed. Bars are of wall time; --cpu judges by this process's CPU seconds instead, for hosts that
others use at the same time.
"""

from __future__ import annotations

import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from models import MODELS
from temper.tuning.accuracy import floors
from temper.tuning.batch import tune_batch
from temper.tuning.engine import ACCUMULATIONS, FIDELITIES, Engine, Setting
from temper.tuning.globs import compress
from temper.tuning.variants import FORMATS

SETTINGS_PER_S = 100
MIXED_SECONDS = 180
BATCH_SECONDS = 60
FASTER_ON = 3
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
    for level in (1, 2):
        engine.built(level, None)
    count = 0
    with Timer() as timer:
        for parts in product((1, 2), (True, False), FIDELITIES, ACCUMULATIONS, FORMATS):
            engine.cost(Setting(*parts[:4], 0, parts[4]))
            count += 1
    rate = count / timer.wall
    print(f"costing BERT-base: {rate:.0f} settings/s ({count} in {timer}), bar {SETTINGS_PER_S}")
    return count / timer.judged >= SETTINGS_PER_S


def mixed(name: str = "bert") -> tuple[bool, float]:
    """Solve one model's mixed precision; no slower than the best uniform format, and the gain."""
    with Timer() as timer:
        # PCC of bfloat16 itself bounds what any format can keep.
        engine = Engine(MODELS[name], "n150", floors(-1.0))
        setting = Setting(level=2, trace=True)
        plain = engine.measure(setting, {})["pcc"]
        floor = min(FLOOR, plain - (1 - plain) * 0.2)
        engine.floors = floors(floor)
        points = engine.solve(setting)
        met = sorted((p for p in points if p.met), key=lambda p: p.time_ns)
        # Both are compiled for real: formats change what fits SRAM.
        alike = min((p for p in met if len(set(p.formats.values())) <= 1), key=lambda p: p.time_ns)
        uniform = engine.verify(setting, compress(alike.formats))[0].call_ns
        tried = [(r, engine.verify(setting, r)) for r in (compress(p.formats) for p in met[:3])]
        rules, (cost, accuracy) = min(
            (t for t in tried if t[1][1]["pcc"] >= floor), key=lambda t: t[1][0].call_ns
        )
    gain = max(1.0, uniform / cost.call_ns)  # the uniform one is a candidate too
    print(
        f"mixed precision of {name}: {len(alike.formats)} weights, floor {floor:.5f}, "
        f"PCC {accuracy['pcc']:.5f} measured, {cost.call_ns / 1e3:.1f} µs modelled; uniform "
        f"{uniform / 1e3:.1f} µs, gain {gain - 1:+.2%}; {len(rules)} globs; {timer}"
    )
    kept = accuracy["pcc"] >= floor and gain >= 1.0
    quick = timer.judged < MIXED_SECONDS
    return kept and (name != "bert" or quick), gain


def models() -> bool:
    """Five models: on how many is the mixed assignment faster than the best uniform format."""
    results = [mixed(name) for name in FIVE]
    faster = sum(gain > 1.0 for _, gain in results)
    print(f"faster than the best uniform format on {faster} of {len(FIVE)}, bar {FASTER_ON}")
    return all(kept for kept, _ in results) and faster >= FASTER_ON


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
    bars = {"costing": costing, "mixed": lambda: mixed()[0], "models": models, "batch": batch}
    chosen = [a for a in sys.argv[1:] if a != "--cpu"] or ["costing", "models", "batch"]
    passed = [bars[name]() for name in chosen]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
