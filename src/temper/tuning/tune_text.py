"""The result of a tune for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temper.tuning.accuracy import loss
from temper.tuning.search import Trial
from temper.tuning.store import shown
from temper.tuning.tune import Tuned
from temper.tuning.tune_output import compile_options, snippet

if TYPE_CHECKING:
    from rich.console import Console


def show(out: Console, tuned: Tuned, toml: Path, overrides: Path, study: str) -> None:
    """The winner, its reasons, the front, the snippet."""
    found = tuned.found
    gain = tuned.samples_per_s / tuned.start_samples_per_s
    measured = sum(t.accuracy is not None for t in found.trials)
    settings = ", ".join(f"{k}={v}" for k, v in compile_options(tuned).items() if k != "chip")
    lines = [
        f"{tuned.model} on a virtual {tuned.chip}: {settings}, batch {tuned.batch}",
        f"  modelled  {tuned.samples_per_s:,.0f} samples/s ({tuned.low_samples_per_s:,.0f} to "
        f"{tuned.high_samples_per_s:,.0f}), {tuned.call_ns / 1e6:.3f} ms per call, "
        f"×{gain:.2f} over level 0 without a trace",
        "  measured  " + ", ".join(f"{k} {v:.6f}" for k, v in tuned.accuracy.items())
        + " against float32 in eager torch, sums as on the chip; asked: "
        + (", ".join(tuned.floors) or "nothing"),
        f"  searched  {len(found.trials)} settings ({found.resumed} from the study), accuracy of "
        f"{measured}, {found.seconds:.0f} s" + (", interrupted" if found.interrupted else ""),
    ]  # fmt: skip
    lines += [f"  note      {text}" for text in tuned.notes]
    lines += [f"  because   {text}" for text in tuned.reasons]
    for line in lines:
        out.print(line, markup=False)
    if tuned.pareto:
        out.print("Pareto front of weight formats (samples/s modelled, PCC measured):")
        for point in tuned.pareto:
            counts: dict[str, int] = {}
            for fmt in point.formats.values():
                counts[fmt] = counts.get(fmt, 0) + 1
            held = ", ".join(f"{n} {f}" for f, n in sorted(counts.items())) or "all bf16"
            rate = tuned.batch / point.time_ns * 1e9
            out.print(f"  {rate:>12,.0f}  {1 - loss(point.accuracy):.6f}  {held}", markup=False)
    out.print(f"overrides ({overrides}): {json.dumps(dict(tuned.overrides))}", soft_wrap=True)
    out.print(f"written: {toml}, {overrides}; trials in {shown(study)}", markup=False)
    out.print("")
    out.print(snippet(tuned, overrides), soft_wrap=True)  # to be pasted


def show_replay(out: Console, trial: Trial, figures: dict[str, Any]) -> None:
    """A stored trial, as stored and as compiled and measured now."""
    stored = f"{trial.samples_per_s:,.0f} samples/s" + (
        f", {trial.accuracy}" if trial.accuracy else ", accuracy not run"
    )
    out.print(f"trial {trial.number}: {trial.setting}", markup=False)
    out.print(f"  stored  {stored}", markup=False)
    out.print(
        f"  now     {figures['samples_per_s']:,.0f} samples/s modelled, "
        f"{figures['accuracy']} measured",
        markup=False,
    )
