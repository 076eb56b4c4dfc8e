"""Every way that placement may choose for random ops, offered to the real ttnn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.mark.parametrize(("chip", "seed"), [("n150", 0), ("p150", 1)])
def test_ttnn_refuses_no_way_that_placement_may_choose(
    ttnn_here: Path, chip: str, seed: int
) -> None:
    from ttnn_ways import sweep  # type: ignore[import-not-found]

    offered, wrong = sweep(chip, seed, 250)
    refused = [(name, v) for name, v in wrong if v.verdict in ("refused", "differs")]
    assert offered == 250
    assert not refused, "\n".join(f"{n}: {v.kind}: {v.message}" for n, v in refused[:20])


def test_ttnn_refuses_no_call_of_a_torch_function(ttnn_here: Path) -> None:
    from ttnn_functions import sweep  # type: ignore[import-not-found]

    offered, wrong = sweep("n150", 2, 90)
    refused = [(shape, v) for shape, v in wrong if v.verdict in ("refused", "differs")]
    assert offered >= 90
    assert not refused, "\n".join(f"{s}: {v.kind} {v.label}: {v.message}" for s, v in refused)
