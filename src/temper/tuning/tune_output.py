"""What a tune leaves behind: tuned.toml, overrides.json, a snippet, the Pareto picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from temper._version import __version__
from temper.files import write_text
from temper.tuning.accuracy import loss
from temper.tuning.pictures import figure, save
from temper.tuning.tune import Tuned
from temper.weights.config import write_config


def compile_options(tuned: Tuned) -> dict[str, Any]:
    """The options to compile with, overrides apart."""
    return tuned.setting.options(tuned.chip)


def to_toml(tuned: Tuned) -> str:
    """The result as a file that people read and programs parse."""
    lines = [
        f"# Written by temper {__version__}; times are modelled, accuracy is measured "
        "with sums as on the chip.",
        f"model = {_value(tuned.model)}",
        f"chip = {_value(tuned.chip)}",
        f"dtype = {_value(tuned.dtype)}",
        f"batch = {tuned.batch}",
        f"objective = {_value(tuned.objective)}",
        f"floors = {_value(list(tuned.floors))}",
        f"trial = {tuned.trial}",
        "",
        "[options]",
        *(f"{k} = {_value(v)}" for k, v in compile_options(tuned).items()),
        "",
        "[weight_dtype_overrides]",
        *(f"{_value(k)} = {_value(v)}" for k, v in tuned.overrides.items()),
        "",
        "[modelled]",
        f"samples_per_s = {tuned.samples_per_s:.6g}",
        f"samples_per_s_low = {tuned.low_samples_per_s:.6g}",
        f"samples_per_s_high = {tuned.high_samples_per_s:.6g}",
        f"call_ms = {tuned.call_ns / 1e6:.6g}",
        f"gain_over_level_0 = {tuned.samples_per_s / tuned.start_samples_per_s:.4g}",
        "",
        "[measured]",
        *(f"{k} = {v:.8g}" for k, v in tuned.accuracy.items()),
        "",
        "[reasons]",
        *(f"{i} = {_value(text)}" for i, text in enumerate(tuned.reasons, 1)),
    ]
    return "\n".join(lines) + "\n"


def snippet(tuned: Tuned, overrides: Path) -> str:
    """Python to paste."""
    lines = ["import torch, temper", ""]
    if tuned.dtype == "bfloat16":
        lines.append("model = model.eval().to(torch.bfloat16)")
    if tuned.overrides:
        lines.append(f"temper.apply_weight_dtype_overrides(model, {str(overrides)!r})")
    pairs = ", ".join(f"{k!r}: {v!r}" for k, v in compile_options(tuned).items())
    lines.append(f'compiled = torch.compile(model, backend="tt", options={{{pairs}}})')
    if tuned.setting.batch:
        lines.append(f"# feed batches of {tuned.batch}")
    return "\n".join(lines)


def write(tuned: Tuned, folder: Path) -> tuple[Path, Path]:
    """tuned.toml and overrides.json, each complete or not there."""
    toml, overrides = folder / "tuned.toml", folder / "overrides.json"
    write_text(toml, to_toml(tuned))
    write_config(tuned.overrides, overrides)
    return toml, overrides


def draw_front(tuned: Tuned, path: Path) -> None:
    """Speed against accuracy of every mixed assignment measured, the front joined."""
    picture, axes = figure(7.0)
    points = tuned.found.points
    axes.plot(
        [tuned.batch / p.time_ns * 1e9 for p in points],
        [1 - loss(p.accuracy) for p in points],
        ".", color="#bbbbbb", label="measured",
    )  # fmt: skip
    axes.plot(
        [tuned.batch / p.time_ns * 1e9 for p in tuned.pareto],
        [1 - loss(p.accuracy) for p in tuned.pareto],
        "o-", color="#4c78a8", label="Pareto front",
    )  # fmt: skip
    axes.plot([tuned.samples_per_s], [1 - loss(tuned.accuracy)], "*", ms=14, color="#54a24b",
              label="chosen")  # fmt: skip
    axes.set_xlabel("samples/s, modelled")
    axes.set_ylabel("PCC, measured" if "pcc" in tuned.accuracy else "1 - RMS² / 2, measured")
    axes.set_title(f"{tuned.model} on {tuned.chip}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save(picture, path)


def _value(value: Any) -> str:
    """A TOML value; JSON's strings, numbers, lists and booleans are TOML's too."""
    return json.dumps(value, ensure_ascii=False)
