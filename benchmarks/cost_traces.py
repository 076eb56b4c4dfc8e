"""Trace against no trace: modelled difference beside the pairs of a host measurement file.

python benchmarks/cost_traces.py ../shared/silicon/host.csv [--json]
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from temper.chips import Chip, get
from temper.cost import Context, estimate_op, host
from temper.program.op import Op
from temper.program.tensor import DRAM, Memory, TensorSpec

FORMATS = {"BFLOAT16": "bfloat16", "BFLOAT8_B": "bfloat8_b", "BFLOAT4_B": "bfloat4_b"}
PARAMS = re.compile(r"M=(\d+) K=(\d+) N=(\d+) (\S+) (\S+) in0=(\S+) out=(\S+) cores=(\d+)")


@dataclass(frozen=True)
class Pair:
    """One matmul, timed per iteration on the host without and with a trace."""

    chip: Chip
    text: str
    untraced_ns: float
    traced_ns: float


def read(path: Path) -> Iterator[Pair]:
    found: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row["kind"] == "trace_pair":
                key = (row["board"], row["params"], row["commit"])
                found[key][row["metric"]].append(float(row["value"]))
    for (board, params, _), times in found.items():
        untraced = times["host_time_per_iter_untraced"]
        for slow, fast in zip(untraced, times["host_time_per_iter_traced"], strict=True):
            yield Pair(get(board), params, slow, fast)


def modelled_difference(pair: Pair) -> float:
    match = PARAMS.match(pair.text)
    assert match, pair.text
    m, k, n = (int(match[i]) for i in (1, 2, 3))
    fmt, cores = FORMATS[match[4]], int(match[8])
    shards = Memory("sram", "block", (cores, 1), (max(32, m // cores), k))
    sharded = match[6].startswith("L1")
    a = TensorSpec((m, k), fmt, memory=shards if sharded else DRAM)
    b = TensorSpec((k, n), fmt)
    y = TensorSpec((m, n), fmt, memory=shards if match[7].startswith("L1") else DRAM)
    op = Op("Matmul", ("a", "b"), ("y",), {"fidelity": match[5]})
    chip = pair.chip
    times = []
    for traced in (False, True):
        cost = estimate_op(op, [a, b], [y], chip, context=Context(cores, cores, traced))
        gap = cost.gap_ns if traced else cost.gap_ns + host.late_ns(chip, [a, b])
        enqueue = 0.0 if traced else host.dispatch_ns(chip, [a, b])
        times.append(max(enqueue, cost.kernel_ns + gap))
    return times[0] - times[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host_csv", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    errors: dict[str, list[float]] = defaultdict(list)
    for pair in read(arguments.host_csv):
        measured = pair.untraced_ns - pair.traced_ns
        error = abs(modelled_difference(pair) - measured) / max(abs(measured), 1.0) * 100
        errors[pair.chip.arch].append(error)
        errors["all"].append(error)
    result = {
        name: {"pairs": len(values), "median_error_percent": round(statistics.median(values), 1)}
        for name, values in sorted(errors.items())
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print("Untraced minus traced time of one matmul, modelled against measured")
    for name, value in result.items():
        pairs, error = value["pairs"], value["median_error_percent"]
        print(f"  {name:12} {pairs:4} pairs  {error:5.1f}% median error")


if __name__ == "__main__":
    main()
