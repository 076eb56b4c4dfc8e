"""Wall time of compiled models on this host against eager and inductor, as ratios of one run.

Every contender is warmed up, then all take turns, round after round, so that drift and neighbours
hit them alike; the median of the rounds counts. All figures are measured on this host and say
nothing about a card.

    python benchmarks/host.py                     # all models, without inductor
    python benchmarks/host.py --inductor          # with inductor float32 (compiles for minutes)
    python benchmarks/host.py bert:4 --rounds 20 --json out.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not any(name.startswith(("OMP_", "GOMP_")) for name in os.environ):
    os.environ["GOMP_SPINCOUNT"] = "2000"  # as temper sets it when imported before torch

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import MODELS

DEFAULT = ("mnist:64", "mnist:1", "resnet50:8", "bert:4", "llama:1")
TEMPER = {"optimization_level": 2, "enable_trace": True}
# Ratio of eager float32 to Temper that each model has to reach, and of eager bfloat16.
FLOOR = {"mnist:1": 1 / 1.3}
BF16_FLOOR = {"mnist:64": 10, "resnet50:8": 10, "bert:4": 4, "llama:1": 4}


def contenders(spec: str, inductor: bool) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """The calls to time, and the seconds that each took to its first result."""
    name, _, batch = spec.partition(":")
    model, inputs = MODELS[name](int(batch or 1))
    half, _ = MODELS[name](int(batch or 1))
    half = half.to(torch.bfloat16)
    half_inputs = tuple(t.to(torch.bfloat16) if t.is_floating_point() else t for t in inputs)
    torch._dynamo.reset()
    calls: dict[str, Callable[[], Any]] = {
        "eager fp32": lambda: model(*inputs),
        "eager bf16": lambda: half(*half_inputs),
    }
    levels = {"temper": TEMPER, "temper level 0": {"optimization_level": 0}}
    compiled = {
        key: torch.compile(half, backend="tt", options=options) for key, options in levels.items()
    }
    calls |= {key: (lambda c=c: c(*half_inputs)) for key, c in compiled.items()}
    if inductor:
        fast = torch.compile(model, backend="inductor")
        calls["inductor fp32"] = lambda: fast(*inputs)
    first: dict[str, float] = {}
    for key, call in calls.items():
        started = time.perf_counter()
        call()
        first[key] = time.perf_counter() - started
    return calls, first


def measure(spec: str, rounds: int, inductor: bool) -> dict[str, Any]:
    calls, first = contenders(spec, inductor)
    for key, call in calls.items():
        for _ in range(1 if key == "eager bf16" else 3):
            call()
    times: dict[str, list[float]] = {key: [] for key in calls}
    for index in range(rounds):
        for key, call in calls.items():
            if key == "eager bf16" and index >= max(2, rounds // 5):
                continue  # slow, and needed only for a ratio far above its noise
            started = time.perf_counter()
            call()
            times[key].append((time.perf_counter() - started) * 1e3)
    medians = {key: statistics.median(values) for key, values in times.items()}
    return {
        "model": spec,
        "milliseconds": medians,
        "best_milliseconds": {key: min(values) for key, values in times.items()},
        "first_call_seconds": first,
        "speedup": {key: value / medians["temper"] for key, value in medians.items()},
        "needed": {"eager fp32": FLOOR.get(spec, 0.95), "eager bf16": BF16_FLOOR.get(spec)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(DEFAULT), help="name:batch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    print("measured on this host, median ms of one call; in brackets: time of that / temper")
    with torch.no_grad():
        for spec in arguments.models:
            result = measure(spec, arguments.rounds, arguments.inductor)
            results.append(result)
            cells = [
                f"{key} {ms:.2f} ({result['speedup'][key]:.2f}x)"
                for key, ms in result["milliseconds"].items()
            ]
            print(f"{spec:12s} " + "  ".join(cells), flush=True)
            first = "  ".join(f"{k} {s:.1f}" for k, s in result["first_call_seconds"].items())
            print(f"{'':12s} first call, s: {first}", flush=True)
    if arguments.json:
        beside = arguments.json.with_suffix(".tmp")
        beside.write_text(json.dumps(results, indent=2))
        os.replace(beside, arguments.json)


if __name__ == "__main__":
    main()
