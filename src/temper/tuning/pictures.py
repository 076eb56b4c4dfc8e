"""Pictures of the ladder and of sweeps, drawn by matplotlib without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temper.files import replacing
from temper.tuning.rung import Rung


def figure(width: float = 9.0, height: float = 4.5) -> tuple[Any, Any]:
    """A figure and its axes on the file backend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made: tuple[Any, Any] = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def save(picture: Any, path: Path) -> None:
    """Write beside, then rename; the file's ending names the format."""
    with replacing(path) as file:
        picture.savefig(file, dpi=130, format=path.suffix[1:].lower() or "png")


def waterfall(rungs: Sequence[Rung], title: str, path: Path) -> None:
    """Samples a second by rung, the gain of each rung on top of the last that was kept."""
    picture, axes = figure(max(7.0, 1.15 * len(rungs)))
    draw_waterfall(axes, rungs, title)
    save(picture, path)


def draw_waterfall(axes: Any, rungs: Sequence[Rung], title: str) -> None:
    """The waterfall into axes that are there."""
    # Rungs differ by orders of magnitude: equal heights are equal factors.
    axes.set_yscale("log")
    before = min(r.low_samples_per_s for r in rungs) / 2
    for index, rung in enumerate(rungs):
        gained = rung.samples_per_s - before
        colour = "#4c78a8" if index == 0 else "#54a24b" if gained >= 0 else "#e45756"
        axes.bar(index, gained, bottom=before, color=colour, width=0.6)
        axes.errorbar(
            index,
            rung.samples_per_s,
            yerr=[
                [rung.samples_per_s - rung.low_samples_per_s],
                [rung.high_samples_per_s - rung.samples_per_s],
            ],
            color="#333333",
            capsize=3,
            linewidth=1,
        )
        label = f"{rung.samples_per_s:,.0f}" + (f"\n×{rung.gain:.2f}" if index else "")
        axes.annotate(
            label,
            (index, rung.high_samples_per_s),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
        )
        before = rung.samples_per_s if rung.kept else before
    axes.set_xticks(range(len(rungs)), [r.name for r in rungs], rotation=20, ha="right")
    axes.set_ylabel("samples/s, modelled (log scale)")
    axes.set_title(title)
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
