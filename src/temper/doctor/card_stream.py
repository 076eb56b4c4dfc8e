"""DRAM rate of a card, modelled or measured: the place of tt-metal's ``dram_read`` benchmark.

Run as ``python -m temper.doctor.card_stream`` it measures on card 0 with ttnn and prints JSON. The
doctor starts it as a child with a time limit, since a card that hangs would take the doctor along.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from temper.chips import Chip

ROWS, COLUMNS = 16384, 4096  # 128 MiB in bfloat16: far more than SRAM holds
_BYTES_MOVED = 3 * ROWS * COLUMNS * 2  # an addition reads two tensors and writes one
_REPEATS = 20
_TIME_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True)
class Stream:
    """GB/s of an addition streaming through DRAM, with its band where it is modelled."""

    gbps: float
    low_gbps: float
    high_gbps: float
    extrapolated: bool = False


def modelled(chip: Chip) -> Stream:
    """What the cost model gives the virtual chip for that addition."""
    from temper.cost import estimate_op  # only this step needs the cost model
    from temper.program.op import Op
    from temper.program.tensor import TensorSpec

    spec = TensorSpec((1, 1, ROWS, COLUMNS))
    cost = estimate_op(Op("BinaryNg", ("a", "b"), ("y",)), [spec, spec], [spec], chip)
    best = chip.dram_peak_gbps  # a band may reach beyond what the memory can do
    return Stream(
        _BYTES_MOVED / cost.kernel_ns,
        _BYTES_MOVED / cost.high_ns,
        min(best, _BYTES_MOVED / cost.low_ns),
        cost.extrapolated,
    )


def measured(time_limit_s: float = _TIME_LIMIT_S) -> tuple[float | None, str]:
    """GB/s on card 0, or None and the reason."""
    arguments = [sys.executable, "-m", "temper.doctor.card_stream"]
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=time_limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {time_limit_s:.0f} s: the card may hang"
    try:
        return float(json.loads(done.stdout.splitlines()[-1])["gbps"]), ""
    except (IndexError, KeyError, TypeError, ValueError):
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return None, lines[-1][:200]


def main() -> None:
    """Child: time additions on the card; kernels compile in the first, which is not counted."""
    ttnn: Any = importlib.import_module("ttnn")
    device = ttnn.open_device(device_id=0)
    try:
        options = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
        first = ttnn.zeros((1, 1, ROWS, COLUMNS), **options)
        second = ttnn.zeros((1, 1, ROWS, COLUMNS), **options)
        ttnn.deallocate(ttnn.add(first, second))
        ttnn.synchronize_device(device)
        start = time.perf_counter()
        for _ in range(_REPEATS):
            ttnn.deallocate(ttnn.add(first, second))
        ttnn.synchronize_device(device)
        elapsed = time.perf_counter() - start
    finally:
        ttnn.close_device(device)
    print(json.dumps({"gbps": _REPEATS * _BYTES_MOVED / elapsed / 1e9}))


if __name__ == "__main__":
    main()
