"""Properties that hold whatever the constants say: more work, more passes, farther memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from temper.chips import CHIPS
from temper.cost import estimate, estimate_op
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import DRAM, SRAM, Memory, TensorSpec

CHIP = st.sampled_from(sorted(CHIPS))
SIDE = st.integers(1, 128)
FORMAT = st.sampled_from(["bfloat16", "bfloat8_b", "bfloat4_b"])
FIDELITIES = ["LoFi", "HiFi2", "HiFi3", "HiFi4"]
# kind, attributes, number of inputs
OPS = [
    ("Unary", {"functions": [["gelu"]]}, 1),
    ("Unary", {"functions": [["relu"]]}, 1),
    ("BinaryNg", {"function": "add"}, 2),
    ("BinaryNg", {"function": "mul", "post": [["silu"]]}, 2),
    ("Typecast", {}, 1),
    ("Copy", {}, 1),
    ("Softmax", {}, 1),
    ("LayerNorm", {}, 1),
    ("LayerNorm", {"norm": "rms"}, 2),
    ("Transpose", {}, 1),
    ("Slice", {}, 1),
    ("Concat", {}, 2),
    ("Repeat", {}, 1),
    ("RotaryEmbedding", {}, 3),
    ("CumSum", {}, 1),
    ("TopK", {}, 1),
]


def kernel_ns(kind: str, attrs: dict[str, object], count: int, chip: str, rows: int, columns: int,
              memory: Memory = DRAM) -> float:  # fmt: skip
    spec = TensorSpec((rows * 32, columns * 32), memory=memory)
    op = Op(kind, ("x",) * count, ("y",), attrs)
    return estimate_op(op, [spec] * count, [spec], CHIPS[chip]).kernel_ns


@pytest.mark.parametrize(("kind", "attrs", "count"), OPS)
@given(chip=CHIP, rows=SIDE, columns=SIDE, memory=st.sampled_from([DRAM, SRAM]))
@settings(max_examples=25, deadline=None)
def test_more_tiles_are_never_faster(kind, attrs, count, chip, rows, columns, memory) -> None:
    small = kernel_ns(kind, attrs, count, chip, rows, columns, memory)
    assert kernel_ns(kind, attrs, count, chip, rows * 2, columns, memory) >= small * (1 - 1e-9)
    assert kernel_ns(kind, attrs, count, chip, rows, columns * 2, memory) >= small * (1 - 1e-9)


@pytest.mark.parametrize(("kind", "attrs", "count"), OPS)
@given(chip=CHIP, rows=SIDE, columns=SIDE)
@settings(max_examples=25, deadline=None)
def test_sram_is_never_slower_than_dram(kind, attrs, count, chip, rows, columns) -> None:
    near = kernel_ns(kind, attrs, count, chip, rows, columns, SRAM)
    assert near <= kernel_ns(kind, attrs, count, chip, rows, columns, DRAM) * (1 + 1e-9)


def matmul_ns(chip: str, m: int, k: int, n: int, fmt: str, fidelity: str, memory: Memory) -> float:
    op = Op("Matmul", ("a", "b"), ("y",), {"fidelity": fidelity})
    a = TensorSpec((m * 32, k * 32), memory=memory)
    b, y = TensorSpec((k * 32, n * 32), fmt), TensorSpec((m * 32, n * 32), memory=memory)
    return estimate_op(op, [a, b], [y], CHIPS[chip]).kernel_ns


# Other sizes divide badly into blocks, so that a slightly larger matmul may really be faster.
POWER = st.integers(0, 7).map(lambda exponent: 2**exponent)


@given(chip=CHIP, m=POWER, k=POWER, n=POWER, fmt=FORMAT)
@settings(max_examples=150, deadline=None)
def test_a_matmul_obeys_the_same_rules_and_fidelity_costs_time(chip, m, k, n, fmt) -> None:
    times = [matmul_ns(chip, m, k, n, fmt, fidelity, DRAM) for fidelity in FIDELITIES]
    assert times == sorted(times)
    base = times[1] * (1 - 1e-9)
    assert matmul_ns(chip, 2 * m, k, n, fmt, "HiFi2", DRAM) >= base
    assert matmul_ns(chip, m, 2 * k, n, fmt, "HiFi2", DRAM) >= base
    assert matmul_ns(chip, m, k, 2 * n, fmt, "HiFi2", DRAM) >= base
    assert matmul_ns(chip, m, k, n, fmt, "HiFi2", SRAM) * (1 - 1e-9) <= times[1]


@given(chip=CHIP, rows=SIDE, columns=SIDE, length=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_a_traced_call_is_never_slower_than_an_untraced_one(chip, rows, columns, length) -> None:
    spec = TensorSpec((rows * 32, columns * 32))
    ops = tuple(
        Op("Unary", (f"v{i}",), (f"v{i + 1}",), {"functions": [["relu"]]}) for i in range(length)
    )
    values = {f"v{i}": spec for i in range(length + 1)}
    program = Program("chain", chip, values, ops, ("v0",), (f"v{length}",))
    traced, untraced = estimate(program, traced=True), estimate(program)
    assert traced.call_ns <= untraced.call_ns
    assert untraced.first_call_ns > untraced.call_ns
    for cost in (traced, untraced):
        assert cost.device_low_ns <= cost.device_ns <= cost.device_high_ns
        assert cost.call_low_ns <= cost.call_ns <= cost.call_high_ns
        # Timelines overlap: a call is shorter than host and device one after the other.
        apart = cost.device_ns + cost.host_ns + cost.transfer_in_ns + cost.transfer_out_ns
        assert cost.call_ns <= apart + 100_000 + length * 15_000


def test_every_cost_says_band_bound_cores_and_utilisation() -> None:
    spec = TensorSpec((1024, 1024))
    op = Op("Matmul", ("a", "b"), ("y",), {"fidelity": "HiFi4"})
    cost = estimate_op(op, [spec, spec], [spec], CHIPS["n150"])
    assert 0 < cost.low_ns < cost.kernel_ns < cost.high_ns
    assert cost.bound in {"compute", "sfpu", "dram", "noc", "launch", "host"}
    assert cost.cores == 64
    assert all(0 <= share <= 1 for share in cost.utilisation.values())
    assert "measured" in cost.neighbour


def test_unknown_kinds_get_a_wide_estimate_instead_of_an_error() -> None:
    spec = TensorSpec((64, 64))
    cost = estimate_op(Op("NeverHeardOf", ("x",), ("y",)), [spec], [spec], CHIPS["p150"])
    assert cost.kernel_ns > 0
    assert cost.high_ns / cost.low_ns > 2


def test_grayskull_beyond_resnet_is_marked_extrapolated() -> None:
    spec = TensorSpec((32, 1024))
    op = Op("Softmax", ("x",), ("y",))
    assert estimate_op(op, [spec], [spec], CHIPS["e75"]).extrapolated
    assert not estimate_op(
        Op("Unary", ("x",), ("y",), {"functions": [["relu"]]}), [spec], [spec], CHIPS["n150"]
    ).extrapolated
