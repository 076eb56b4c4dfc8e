"""Baselines: keep a measurement, and gate a later one against it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temper.errors import BadFileError, TemperError, UsageError
from temper.files import write_text
from temper.tuning.bench import MIN_WARMUP, Bench
from temper.tuning.bench_json import FORMAT, VERSION, as_json, host_name
from temper.tuning.statistics import TimesComparison, compare, steady


@dataclass(frozen=True)
class Verdict:
    """A measurement against its baseline, on one clock."""

    clock: str  # modelled | measured
    before_ns: float
    after_ns: float
    change: float  # share by which a call takes longer; negative is faster
    failed: bool
    note: str = ""
    comparison: TimesComparison | None = None

    def as_dict(self) -> dict[str, Any]:
        extra = self.comparison.as_dict() if self.comparison else None
        return {**self.__dict__, "comparison": extra}


def save(result: Bench, path: Path, model: str = "") -> None:
    """Write a baseline, complete or not there at all."""
    write_text(path, json.dumps(as_json(result, model), indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Our part of a stored baseline, checked."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        ours = found["temper"]
        if ours["format"] != FORMAT:
            raise ValueError(f"its format is {ours['format']!r}")
        if ours["version"] > VERSION:
            raise ValueError(f"version {ours['version']}, this Temper reads up to {VERSION}")
        trials = ours["measured"]["trials_ns"]
        if not trials or not all(t and all(v > 0 for v in t) for t in trials):
            raise ValueError("it holds no samples")
        float(ours["measured"]["median"])
        if ours["modelled"] is not None:
            float(ours["modelled"]["call_ns"])
        list(ours["warmup"]["ns"])
    except FileNotFoundError:
        raise UsageError(f"no baseline {path}", try_=[f"--save {path}"]) from None
    except KeyError as error:
        raise BadFileError(f"{path} is no baseline", found=f"no key {error}") from None
    except (OSError, TypeError, ValueError, UnicodeDecodeError, RecursionError) as error:
        raise BadFileError(f"{path} is no baseline", found=str(error)) from None
    return dict(ours)


def against(result: Bench, base: dict[str, Any], share: float) -> list[Verdict]:
    """Verdicts on both clocks; refuses a baseline that was not warmed or is of something else."""
    _comparable(result, base)
    verdicts = []
    if result.modelled and base["modelled"]:
        before, after = float(base["modelled"]["call_ns"]), result.modelled.call_ns
        change = after / before - 1
        verdicts.append(Verdict("modelled", before, after, change, change > share))
    before, after = float(base["measured"]["median"]), result.wall.median
    change = after / before - 1
    if base["measured"].get("host") != host_name():
        note = f"not gated: the baseline is of another host ({base['measured'].get('host')})"
        verdicts.append(Verdict("measured", before, after, change, False, note))
        return verdicts
    old = [v for t in base["measured"]["trials_ns"] for v in t]
    new = [v for t in result.samples_ns for v in t]
    comparison = compare(old, new)
    # Only a slowdown whose whole interval lies beyond the gate fails: hosts are noisy.
    failed = comparison.significant and comparison.high < 1 / (1 + share)
    note = "" if failed or change <= share else "not certain: the interval reaches into the gate"
    verdicts.append(Verdict("measured", before, after, change, failed, note, comparison))
    return verdicts


def _comparable(result: Bench, base: dict[str, Any]) -> None:
    warmup = base["warmup"]["ns"]
    if len(warmup) < MIN_WARMUP or not steady(warmup):
        raise TemperError(
            "the baseline was not warmed: a speed-up over it means nothing",
            found=f"{len(warmup)} warm-up calls, not steady",
            try_=["measure the baseline again with --save"],
        )
    if any(f.get("refuse") for f in base.get("findings", [])):
        texts = [f["text"] for f in base["findings"] if f.get("refuse")]
        raise TemperError("the baseline itself was refused by the lint", found=texts[0])
    if base["batch"] != result.batch or base["name"] != result.name:
        raise UsageError(
            "the baseline is of another run",
            found=f"{base['name']} at batch {base['batch']}",
            given=f"{result.name} at batch {result.batch}",
        )
