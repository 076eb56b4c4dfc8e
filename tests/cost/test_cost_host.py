"""The host's side: transfers as published, speed of a what-if, the shape of a first call."""

from __future__ import annotations

import time

import pytest

from temper.chips import CHIPS
from temper.cost import estimate, estimate_op, host, model
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import DRAM, SRAM, Memory, TensorSpec

SIZE = 64 * 1024 * 1024
# Rates in GB/s by page size of tt-metal's buffer benchmark goldens: (chip, to device, page, rate).
PUBLISHED = [
    ("n150", True, 2048, 14.0), ("n150", True, 512, 7.83), ("n150", True, 32, 0.53),
    ("n150", False, 2048, 12.6), ("n150", False, 512, 6.96), ("n150", False, 32, 0.648),
    ("p150", True, 2048, 21.5), ("p150", True, 512, 19.8), ("p150", True, 32, 1.316),
    ("p150", False, 2048, 14.5), ("p150", False, 512, 13.6), ("p150", False, 32, 1.097),
]  # fmt: skip


@pytest.mark.parametrize(("chip", "to_device", "page", "rate"), PUBLISHED)
def test_transfers_run_at_the_published_rates(chip, to_device, page, rate) -> None:
    taken = host.transfer_bytes_ns(CHIPS[chip], SIZE, page, to_device=to_device)
    assert SIZE / taken == pytest.approx(rate, rel=0.12)


def chain(length: int, width: int = 1024, fidelity: str = "HiFi2") -> Program:
    spec = TensorSpec((width, width))
    ops = tuple(
        Op("Matmul", (f"v{i}", "w"), (f"v{i + 1}",), {"fidelity": fidelity}) for i in range(length)
    )
    values = {"w": spec, **{f"v{i}": spec for i in range(length + 1)}}
    return Program("chain", "n150", values, ops, ("v0",), (f"v{length}",), {"w": "weight"})


def test_small_kernels_wait_for_the_host_and_large_ones_do_not() -> None:
    small, large = estimate(chain(50, 64)), estimate(chain(50, 2048))
    assert small.call_ns > 2 * small.device_ns
    assert large.call_ns < 1.5 * large.device_ns
    assert estimate(chain(50, 64), traced=True).call_ns < small.call_ns / 3


def test_an_op_on_the_host_stops_both_timelines() -> None:
    program = chain(4)
    op = Op("Host", ("v2",), ("v3",), {"target": "aten.unique"})
    broken = program.replace(ops=(*program.ops[:2], op, program.ops[3]))
    cost = estimate(broken)
    assert cost.ops[2].bound == "host"
    assert cost.call_ns > cost.device_ns + cost.ops[2].kernel_ns


def test_costing_a_variant_takes_microseconds_an_op() -> None:
    estimate(chain(100))
    start = time.process_time()
    for i in range(40):
        estimate(chain(100, 1024 + 32 * (i % 8), ["LoFi", "HiFi2", "HiFi4"][i % 3]))
    # A thousand variants of a hundred ops in two seconds; the bound leaves room for a busy host.
    assert (time.process_time() - start) / 4000 < 60e-6


def test_settings_that_bound_each_other_are_timed_once(monkeypatch) -> None:
    timed = []
    plain = model._timed

    def counted(work):
        timed.append(work)
        return plain(work)

    monkeypatch.setattr(model, "_timed", counted)

    def cost(fmt: str, memory: Memory) -> int:
        before = len(timed)
        spec = TensorSpec((1056, 1120), fmt, memory=memory)
        weight = TensorSpec((1120, 1120), fmt)
        op = Op("Matmul", ("a", "b"), ("y",), {"fidelity": "HiFi2"})
        estimate_op(op, [spec, weight], [spec], CHIPS["n150"])
        return len(timed) - before

    # The op and ttnn's five ways, in four formats and two memories.
    assert cost("bfloat4_b", SRAM) == 8 * 6
    assert cost("bfloat8_b", DRAM) == 0
    assert cost("bfloat16", SRAM) == 0
