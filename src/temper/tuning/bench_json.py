"""A measurement as JSON: the shape tt-xla's benchmarks write, with ours beside it."""

from __future__ import annotations

import os
import platform
from typing import Any

from temper import chips
from temper._version import __version__
from temper.tuning.bench import Bench

FORMAT = "temper-bench"
VERSION = 1


def as_json(result: Bench, model: str = "") -> dict[str, Any]:
    """One document: tt-xla's keys at the top, everything of ours under ``temper``."""
    total_samples = result.batch * result.wall.calls
    total_s = sum(sum(t) for t in result.samples_ns) / 1e9
    power, temperature = _card(result)
    figures = {
        "total_samples": float(total_samples),
        "total_time": total_s,
        "samples_per_sec": total_samples / total_s,
        "mean_time_ms": result.wall.mean / 1e6,
        "median_time_ms": result.wall.median / 1e6,
        "p90_time_ms": result.wall.p90 / 1e6,
        "p99_time_ms": result.wall.p99 / 1e6,
        "first_iteration_time_ms": result.first_call_ns / 1e6,
        "throughput_gb_per_sec": result.gb_per_s,
    }
    if result.modelled:
        figures |= {
            "modelled_device_time_ms": result.modelled.device_ns / 1e6,
            "modelled_call_time_ms": result.modelled.call_ns / 1e6,
            "modelled_samples_per_sec": result.modelled_samples_per_s or 0.0,
            "modelled_first_iteration_time_ms": result.modelled.first_call_ns / 1e6,
        }
    return {
        "project": "temper",
        "model": model or result.name,
        "model_type": "inference",
        "run_type": f"{result.name}_{result.batch}_{result.wall.calls}",
        "config": {"model_size": "", **{k: str(v) for k, v in result.settings.items()}},
        "num_layers": -1,
        "batch_size": result.batch,
        "precision": str(result.settings.get("experimental_weight_dtype") or "bfloat16"),
        "dataset_name": "",
        "profile_name": "",
        "input_sequence_length": -1,
        "output_sequence_length": -1,
        "image_dimension": "",
        "perf_analysis": False,
        "training": False,
        "measurements": [
            {
                "iteration": 1,
                "step_name": result.name,
                "step_warm_up_num_iterations": len(result.warmup_ns),
                "measurement_name": name,
                "value": value,
                "target": -1,
                "device_power": power,
                "device_temperature": temperature,
            }
            for name, value in figures.items()
        ],
        "device_info": _device(result.chip),
        "device_ip": None,
        "temper": ours(result),
    }


def ours(result: Bench) -> dict[str, Any]:
    """Everything that was measured and modelled, samples included."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "temper_version": __version__,
        "name": result.name,
        "settings": {k: _plain(v) for k, v in result.settings.items()},
        "chip": result.chip,
        "batch": result.batch,
        "input_bytes": result.input_bytes,
        "output_bytes": result.output_bytes,
        "measured": {
            "clock": "wall time of this host",
            "host": host_name(),
            "unit": "ns",
            **result.wall.as_dict(),
            "samples_per_s": result.samples_per_s,
            "gb_per_s": result.gb_per_s,
            "first_call_ns": result.first_call_ns,
            "trials_ns": [list(t) for t in result.samples_ns],
        },
        "warmup": {"ns": list(result.warmup_ns), "steady": result.warmed},
        "modelled": {
            "clock": "modelled",
            **result.modelled.as_dict(),
            "samples_per_s": result.modelled_samples_per_s,
            "gb_per_s": result.modelled_gb_per_s,
        }
        if result.modelled
        else None,
        "findings": [f.as_dict() for f in result.findings],
        "expected": [{**e.as_dict(), "judgement": j} for e, j in result.expected],
        "cards": list(result.cards),
    }


def host_name() -> str:
    """What makes wall times comparable: processor, cores, system; not who owns the machine."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    processor = line.partition(":")[2].strip()
                    break
    except OSError:
        pass
    return f"{processor}, {os.cpu_count()} CPUs, {platform.system()}"


def _device(chip: str) -> dict[str, Any]:
    if not chip:
        return {"device_type": "host", "arch": platform.machine(), "chip_count": 0}
    board = chips.get(chip)
    return {
        "device_type": board.name,
        "arch": board.arch,
        "chip_count": 1,
        "virtual": True,
        "host": host_name(),
    }


def _card(result: Bench) -> tuple[float, float]:
    """Mean power and temperature of the first card; -1 where there is none, as tt-xla writes."""
    for card in result.cards:
        power, heat = card.get("power_w") or {}, card.get("temperature_c") or {}
        return float(power.get("mean", -1.0)), float(heat.get("mean", -1.0))
    return -1.0, -1.0


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, dict, list)) else str(value)
