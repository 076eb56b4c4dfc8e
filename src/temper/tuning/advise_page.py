"""The page of an advice: ladder, roofline and memory of each board in one self-contained file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temper.tuning.advise import Advice, BoardAdvice
from temper.tuning.batch_views import svg, write_page
from temper.tuning.pictures import draw_waterfall, figure

COLUMNS = ["board", "best rung", "batch", "samples/s", "band", "call", "accuracy", "over level 0",
           "now limited by"]  # fmt: skip


def rows(advice: Advice) -> list[list[str]]:
    """One line for each board."""
    return [
        [
            board.chip,
            board.best.name,
            str(board.best.batch),
            f"{board.best.samples_per_s:,.0f}",
            f"{board.best.low_samples_per_s:,.0f} to {board.best.high_samples_per_s:,.0f}",
            f"{board.best.call_ns / 1e6:.3f} ms",
            board.best.accuracy_text,
            f"×{board.best.samples_per_s / board.ladder.rungs[0].samples_per_s:.1f}",
            board.best.next_obstacle,
        ]
        for board in advice.boards
    ]


def settings_text(board: BoardAdvice) -> str:
    """The settings of the best rung, as options are written."""
    kept = {k: v for k, v in board.best.settings.items() if k != "chip"}
    return ", ".join([f"dtype {board.best.dtype}", *(f"{k}={v}" for k, v in kept.items())])


def memory_text(board: BoardAdvice) -> str:
    """How full both memories are."""
    return (
        f"SRAM {board.sram_bytes_per_core:,} of {board.sram_capacity_bytes:,} B per core, DRAM "
        f"{board.dram_bytes / 1e6:,.1f} of {board.dram_capacity_bytes / 1e6:,.0f} MB"
    )


def write(advice: Advice, path: Path) -> None:
    """One file without anything beside it; times and bytes modelled, accuracy measured."""
    drawings, remarks = [], [advice.choice]
    for board in advice.boards:
        ladder, axes = figure(max(7.0, 1.15 * len(board.ladder.rungs)))
        draw_waterfall(axes, board.ladder.rungs, f"{advice.model} on {board.chip}: the ladder")
        drawings += [svg(ladder), svg(_roofline(board)), svg(_memory(board))]
        remarks.append(f"{board.chip}: {settings_text(board)}. {memory_text(board)}.")
        remarks += [f"{board.chip}, next: {text}" for text in board.next_steps]
        remarks += [f"{board.chip}, not tried: {text}" for text in board.ladder.skipped]
    remarks += [f"{name}: {text}" for name, text in advice.refused.items()]
    remarks.append("Times and bytes are modelled with bands of 80%; accuracy is measured on this "
                   f"host against float32; floor: {advice.floor or 'none'}.")  # fmt: skip
    write_page(path, f"Advice for {advice.model}", "\n".join(drawings), COLUMNS, rows(advice),
               remarks)  # fmt: skip


def _roofline(board: BoardAdvice) -> Any:
    roof = board.roofline
    picture, axes = figure(7.0)
    ridge = roof.peak_tflops * 1e3 / roof.dram_peak_gbps
    point = roof.intensity if math.isfinite(roof.intensity) else ridge * 10
    reach: Sequence[float] = (min(point, ridge) / 10, ridge, max(point, ridge) * 10)
    axes.plot(reach, [min(roof.peak_tflops, x * roof.dram_peak_gbps / 1e3) for x in reach],
              color="#333333", label="roof")  # fmt: skip
    axes.plot([point], [roof.tflops], "o", ms=10, color="#4c78a8", label="best rung, modelled")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP for each byte of DRAM")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"{board.chip}: roofline")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return picture


def _memory(board: BoardAdvice) -> Any:
    picture, axes = figure(7.0)
    shares = [board.sram_bytes_per_core / board.sram_capacity_bytes,
              board.dram_bytes / board.dram_capacity_bytes]  # fmt: skip
    axes.barh(["SRAM", "DRAM"], [100 * s for s in shares], color="#54a24b")
    axes.set_xlim(0, 100)
    axes.set_xlabel("percent used at the high-water mark, modelled")
    axes.set_title(f"{board.chip}: {memory_text(board)}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return picture
