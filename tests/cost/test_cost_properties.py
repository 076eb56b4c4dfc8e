"""Physics that never fails: random ops and random whole programs obey what no chip can break."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from temper.chips import CHIPS, Chip
from temper.cost import OpCost, estimate, estimate_op
from temper.cost.bands import ratio
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import DRAM, SRAM, Memory, TensorSpec

# kind, attributes, number of inputs
OPS = [
    ("Unary", {"functions": [["gelu"]]}, 1), ("Unary", {"functions": [["relu"]]}, 1),
    ("BinaryNg", {"function": "add"}, 2), ("BinaryNg", {"function": "mul"}, 2),
    ("Typecast", {}, 1), ("Copy", {}, 1), ("Softmax", {}, 1), ("LayerNorm", {}, 1),
    ("LayerNorm", {"norm": "rms"}, 2), ("Transpose", {}, 1), ("Permute", {"dims": [1, 0]}, 1),
    ("Slice", {}, 1), ("Concat", {}, 2), ("Repeat", {}, 1), ("RotaryEmbedding", {}, 3),
    ("CumSum", {}, 1), ("TopK", {}, 1), ("Reduce", {"dims": [-1]}, 1), ("Pad", {}, 1),
    ("Matmul", {"fidelity": "HiFi2"}, 2), ("Sdpa", {}, 3), ("Untilize", {}, 1),
    ("InterleavedToSharded", {}, 1),
]  # fmt: skip
KIND = st.sampled_from(OPS)
CHIP = st.sampled_from(["n150", "p150", "p100", "e150", "e75"]).map(CHIPS.__getitem__)
# Powers of two, and whatever divides badly into tiles and blocks.
SIDE = st.integers(0, 13).map(lambda exponent: 2**exponent) | st.integers(1, 8192)
FORMAT = st.sampled_from(["float32", "bfloat16", "bfloat8_b"])
MEMORY = st.sampled_from([DRAM, SRAM])
SMALLER = {"float32": "bfloat16", "bfloat16": "bfloat8_b", "bfloat8_b": "bfloat4_b"}
SAME = 1 + 1e-9


def cost(kind, chip: Chip, rows: int, columns: int, fmt: str, memory: Memory) -> OpCost:
    """One op whose operands follow from two sizes."""
    name, attrs, count = kind
    spec = TensorSpec((rows, columns), fmt, memory=memory)
    inputs, output = [spec] * count, spec
    if name == "Matmul":
        inputs = [TensorSpec((rows, 512), fmt, memory=memory), TensorSpec((512, columns), fmt)]
    elif name == "Sdpa":
        output = TensorSpec((1, 8, rows, 64), fmt, memory=memory)
        inputs = [output] * 3
    elif name in ("Transpose", "Permute"):
        output = replace(spec, shape=(columns, rows))
    elif name == "Reduce":
        output = replace(spec, shape=(rows, 1))
    elif name == "Slice":
        inputs = [replace(spec, shape=(rows, 2 * columns))]
    elif name == "Untilize":
        output = TensorSpec((rows, columns), "bfloat16", "row_major", memory)
        inputs = [replace(spec, format="bfloat16")]
    op = Op(name, ("x",) * len(inputs), ("y",), attrs)
    return estimate_op(op, inputs, [output], chip)


@given(kind=KIND, chip=CHIP, rows=SIDE, columns=SIDE, fmt=FORMAT, memory=MEMORY)
@settings(max_examples=400, deadline=None)
def test_random_ops_obey_physics(kind, chip, rows, columns, fmt, memory) -> None:
    found = cost(kind, chip, rows, columns, fmt, memory)
    time_ns = found.kernel_ns
    assert found.least_ns <= found.low_ns * SAME
    assert found.low_ns <= time_ns * SAME <= found.high_ns * SAME**2
    for more in ((2 * rows, columns), (rows, 2 * columns)):
        doubled = cost(kind, chip, *more, fmt, memory).kernel_ns
        assert time_ns <= doubled * SAME, "twice the work is never faster"
        assert doubled <= 6 * time_ns, "nor out of proportion"
    part = replace(chip, grid=(chip.grid[0], max(1, chip.grid[1] // 2)))
    fewer = cost(kind, part, rows, columns, fmt, memory).kernel_ns
    assert time_ns <= fewer * SAME, "fewer cores are never faster"
    smaller = cost(kind, chip, rows, columns, SMALLER[fmt], memory).kernel_ns
    assert smaller <= time_ns * SAME, "a smaller format is never slower"


@given(kind=KIND, rows=SIDE, columns=SIDE, fmt=FORMAT, memory=MEMORY)
@settings(max_examples=200, deadline=None)
def test_the_newer_board_is_never_slower_when_free_to_choose(
    kind, rows, columns, fmt, memory
) -> None:
    newer, older = (
        cost(kind, CHIPS[name], rows, columns, fmt, memory).kernel_ns for name in ("p150", "n150")
    )
    assert newer <= older * SAME


@given(kind=st.sampled_from([k for k in OPS if k[2] == 1]), chip=CHIP, rows=st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_ops_without_elements_cost_nothing(kind, chip, rows) -> None:
    empty = TensorSpec((rows, 0))
    op = Op(kind[0], ("x",), ("y",), kind[1])
    found = estimate_op(op, [empty], [empty], chip)
    assert (found.kernel_ns, found.low_ns, found.high_ns) == (0.0, 0.0, 0.0)


def program(chip: Chip, sides: list[tuple[int, int]], functions: list[str]) -> Program:
    """Independent chains of unary ops."""
    values, ops = {}, []
    for i, (rows, columns) in enumerate(sides):
        spec = TensorSpec((rows, columns))
        for j in range(len(functions) + 1):
            values[f"v{i}_{j}"] = spec
        ops += [
            Op("Unary", (f"v{i}_{j}",), (f"v{i}_{j + 1}",), {"functions": [[name]]})
            for j, name in enumerate(functions)
        ]
    inputs = tuple(f"v{i}_0" for i in range(len(sides)))
    outputs = tuple(f"v{i}_{len(functions)}" for i in range(len(sides)))
    return Program("random", chip.name, values, tuple(ops), inputs, outputs)


CHAINS = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=4)
FUNCTIONS = st.lists(st.sampled_from(["relu", "gelu", "exp", "sqrt"]), min_size=1, max_size=4)


@given(chip=CHIP, sides=CHAINS, functions=FUNCTIONS, traced=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_program_takes_at_least_its_longest_chain_and_at_most_the_sum(
    chip, sides, functions, traced
) -> None:
    found = estimate(program(chip, sides, functions), traced=traced)
    count = len(functions)
    chains = [found.ops[i * count : (i + 1) * count] for i in range(len(sides))]
    longest = max(sum(op.kernel_ns for op in chain) for chain in chains)
    assert longest <= found.device_ns * SAME
    assert found.device_ns <= sum(op.kernel_ns + op.gap_ns for op in found.ops) * SAME
    assert sum(op.least_ns for op in found.ops) <= found.device_low_ns * SAME
    assert found.device_low_ns <= found.device_ns <= found.device_high_ns
    # Errors that are not all shared cancel in part: narrower than all edges at once.
    assert found.device_high_ns <= sum(op.high_ns + op.gap_ns for op in found.ops) * SAME


@given(chip=CHIP, sides=CHAINS, functions=FUNCTIONS)
@settings(max_examples=40, deadline=None)
def test_what_two_settings_share_cancels_in_their_ratio(chip, sides, functions) -> None:
    ops = estimate(program(chip, sides, functions)).ops
    assert ratio(ops, ops) == pytest.approx((1.0, 1.0, 1.0))
    value, low, high = ratio(ops, ops[:-1] + ops[:1])
    assert low <= value <= high
    # Never wider than both being wrong by the edge of the worst op, one up and one down.
    edge = max(max(op.high_ns / op.kernel_ns, op.kernel_ns / op.low_ns) for op in ops)
    assert high / value <= edge**2 * SAME
