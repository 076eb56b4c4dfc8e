"""No op is modelled faster than the peaks of DRAM and of the matrix engines allow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from temper.chips import CHIPS
from temper.cost import estimate_op
from temper.program.op import Op
from temper.program.tensor import DRAM, SRAM, Memory, TensorSpec

CHIP = st.sampled_from(sorted(CHIPS))
SIDE = st.integers(1, 160)
# Bytes of a 32x32 tile: 16 bits an element, or 8 or 4 with a shared exponent of 64 bytes.
TILE_BYTES = {"bfloat16": 2048, "bfloat8_b": 1088, "bfloat4_b": 576, "float32": 4096}
FORMAT = st.sampled_from(sorted(TILE_BYTES))
PASSES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
STREAMS: list[tuple[str, dict[str, Any], int]] = [
    ("Unary", {"functions": [["relu"]]}, 1),
    ("BinaryNg", {"function": "add"}, 2),
    ("Typecast", {}, 1),
    ("Copy", {}, 1),
    ("Softmax", {}, 1),
    ("LayerNorm", {"operands": ["x", "residual"]}, 2),
    ("Slice", {}, 1),
    ("RotaryEmbedding", {}, 1),
]


@pytest.mark.parametrize(("kind", "attrs", "count"), STREAMS)
@given(chip=CHIP, rows=SIDE, columns=SIDE, fmt=FORMAT, memory=st.sampled_from([DRAM, SRAM]))
@settings(max_examples=40, deadline=None)
def test_no_op_moves_more_than_dram_can(
    kind, attrs, count, chip, rows, columns, fmt, memory
) -> None:
    near, far = (
        TensorSpec((rows * 32, columns * 32), fmt, memory=memory),
        TensorSpec((rows * 32, columns * 32), fmt),
    )
    op = Op(kind, ("x",) * count, ("y",), attrs)
    cost = estimate_op(op, [near] * count, [far], CHIPS[chip])
    tensors = 1 + count * (memory == DRAM)
    least_ns = tensors * rows * columns * TILE_BYTES[fmt] / CHIPS[chip].dram_peak_gbps
    assert cost.kernel_ns >= least_ns * (1 - 1e-9)
    assert cost.low_ns >= least_ns * (1 - 1e-9)


def matmul(chip: str, m: int, k: int, n: int, fmt: str, fidelity: str, memory: Memory) -> Any:
    op = Op("Matmul", ("a", "b"), ("y",), {"fidelity": fidelity})
    a, y = (TensorSpec((m * 32, side * 32), memory=memory) for side in (k, n))
    return estimate_op(op, [a, TensorSpec((k * 32, n * 32), fmt)], [y], CHIPS[chip])


@given(chip=CHIP, m=SIDE, k=SIDE, n=SIDE, fmt=st.sampled_from(["bfloat16", "bfloat8_b"]),
       fidelity=st.sampled_from(sorted(PASSES)), memory=st.sampled_from([DRAM, SRAM]))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_matmul_beats_the_matrix_engines_or_its_weights(
    chip, m, k, n, fmt, fidelity, memory
) -> None:
    board = CHIPS[chip]
    cost = matmul(chip, m, k, n, fmt, fidelity, memory)
    cores = board.grid[0] * board.grid[1]
    flop_per_ns = board.flop_per_cycle_lofi / PASSES[fidelity] * cores * board.clock_mhz / 1000
    weights = k * n * TILE_BYTES[fmt] / board.dram_peak_gbps
    least_ns = max(2 * (32 * m) * (32 * k) * (32 * n) / flop_per_ns, weights)
    assert cost.kernel_ns >= least_ns * (1 - 1e-9)
    assert cost.low_ns >= least_ns * (1 - 1e-9)


@given(chip=CHIP, heads=st.integers(1, 64), queries=SIDE, keys=SIDE, block=st.sampled_from([1, 4]))
@settings(max_examples=60, deadline=None)
def test_no_attention_beats_the_matrix_engines(chip, heads, queries, keys, block) -> None:
    board = CHIPS[chip]
    config = {"q_chunk_size": block * 32, "k_chunk_size": block * 32}
    op = Op("Sdpa", ("q", "k", "v"), ("y",), {"fidelity": "HiFi2", "config": config})
    q, k = (TensorSpec((1, heads, rows * 32, 64)) for rows in (queries, keys))
    flop = 2 * 2 * heads * (32 * queries) * (32 * keys) * 64
    peak = board.flop_per_cycle_lofi / 2 * board.grid[0] * board.grid[1] * board.clock_mhz / 1000
    assert estimate_op(op, [q, k, k], [q], board).kernel_ns >= flop / peak * (1 - 1e-9)
