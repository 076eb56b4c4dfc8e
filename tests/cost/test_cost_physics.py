"""Physics of single kernels, held to times that were measured on real chips."""

from __future__ import annotations

import pytest

from temper.cost.model import estimate_op
from temper.cost.rows import convert_row

COMMON = {
    "source": "nowhere", "date": "2026-08-01", "arch": "blackhole", "avail_cores": "110",
    "traced": "False", "in0_dtype": "BFLOAT16", "out0_dtype": "BFLOAT16", "in0_layout": "ROW_MAJOR",
    "out0_layout": "ROW_MAJOR", "in0_mem": "DRAM_INTERLEAVED", "out0_mem": "DRAM_INTERLEAVED",
}  # fmt: skip
DIMS = '{"dims": "{0; 1; 3; 2}"}'
CONV = {
    "op": "conv2d", "win_hw": "3x3", "stride_hw": "1x1", "conv_batch": "1", "groups": "1",
    "fidelity": "HiFi2", "in0_mem": "L1_BLOCK_SHARDED", "out0_mem": "L1_BLOCK_SHARDED",
    "in1_dtype": "BFLOAT8_B", "in1_layout": "TILE", "in1_mem": "DRAM_INTERLEAVED",
    "out0_layout": "TILE",
}  # fmt: skip
TILES = {"in0_layout": "TILE", "out0_layout": "TILE"}
NORM = {
    **TILES, "op": "rmsnorm", "cores": "1", "in1_dtype": "BFLOAT16", "in1_layout": "TILE",
    "in1_mem": "DRAM_INTERLEAVED",
}  # fmt: skip
# What public profiles measured, microseconds, and how far the model may be off.
MEASURED = {
    "elements of short rows are asked for one by one": (
        576.0, 1.5, {"op": "permute", "cores": "110", "misc": DIMS,
                     "in0_pad": "1x32x10240x3", "out0_pad": "1x32x3x10240"},
    ),
    "a block of channels is written in short pieces": (
        255.0, 1.5, {"op": "permute", "cores": "110", "misc": DIMS,
                     "in0_pad": "1x32x4x10240", "out0_pad": "1x32x10240x4"},
    ),
    "rows joined out of line are copied byte by byte": (
        181.9, 2.0, {"op": "reshape", "cores": "20", "avail_cores": "20",
                     "in0_pad": "1x1x14784x6", "out0_pad": "1x1x2112x42"},
    ),
    "a line of one tile still waits for every phase of a softmax": (
        20.15, 2.0, {"op": "softmax", "arch": "wormhole_b0", "cores": "64", "avail_cores": "64",
                     "in0_layout": "TILE", "out0_layout": "TILE", "in0_pad": "1x20x32x32",
                     "out0_pad": "1x20x32x32", "misc": '{"numeric_stable": "true", "dim": "3"}'},
    ),
    "six of eleven columns share twelve tiles of channels": (
        641.0, 1.5, {**CONV, "in0_pad": "1x1x16384x384", "in1_pad": "1x1x3456x384",
                     "out0_pad": "1x1x16384x384", "in_hw": "128x128", "out_ch": "384"},
    ),
    "rows that fit in SRAM are normalised in one pass": (
        28.2, 1.5, {**NORM, "in0_pad": "1x1x32x3072", "out0_pad": "1x1x32x3072",
                    "in1_pad": "1x1x32x3072"},
    ),
    "longer rows are read again": (
        85.2, 1.5, {**NORM, "in0_pad": "1x1x32x5120", "out0_pad": "1x1x32x5120",
                    "in1_pad": "1x1x32x5120"},
    ),
    "pages for the SRAM of all cores share the links": (
        17.9, 1.6, {**TILES, "op": "sharded_to_interleaved", "arch": "wormhole_b0", "cores": "62",
                    "raw_op": "ShardedToInterleavedDeviceOperation", "avail_cores": "64",
                    "in0_mem": "L1_HEIGHT_SHARDED", "out0_mem": "L1_INTERLEAVED",
                    "in0_pad": "1x1x25600x64", "out0_pad": "1x1x25600x64"},
    ),
    "two columns of 47 tiles for the busiest of 64 cores": (
        78.1, 1.5, {**TILES, "op": "reduce", "arch": "wormhole_b0", "date": "2024-08-01",
                    "cores": "64", "avail_cores": "64", "misc": '{"dim": "ReduceOpDim::H"}',
                    "in0_dtype": "FLOAT32", "out0_dtype": "FLOAT32", "in0_mem": "L1_INTERLEAVED",
                    "in0_pad": "1x1x1504x2560", "out0_pad": "1x1x32x2560"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_kernels_meet_measured_times(name: str) -> None:
    micros, within, cells = MEASURED[name]
    row = convert_row({**COMMON, **cells, "kernel_ns": str(micros * 1000)})
    cost = estimate_op(row.op, row.inputs, row.outputs, row.chip, context=row.context)
    assert 1 / within < cost.kernel_ns / row.kernel_ns < within


def test_a_reduction_that_does_not_name_its_dimension_is_read_off_its_shapes() -> None:
    cells = {
        **COMMON, **TILES, "op": "reduce", "cores": "64", "in0_mem": "L1_INTERLEAVED",
        "out0_mem": "L1_INTERLEAVED", "in0_pad": "1x1x32x2048", "out0_pad": "1x1x1x2048",
        "kernel_ns": "2130",
    }  # fmt: skip
    times = set()
    for misc in ("", '{"dim": "ReduceOpDim::H"}'):
        row = convert_row({**cells, "misc": misc})
        cost = estimate_op(row.op, row.inputs, row.outputs, row.chip, context=row.context)
        times.add(cost.kernel_ns)
    assert len(times) == 1


def test_rows_without_a_date_count_as_older_ones() -> None:
    cells = {**COMMON, "op": "copy", "in0_pad": "64x64", "out0_pad": "64x64", "kernel_ns": "3000"}
    weights = [convert_row({**cells, "date": d}).weight for d in ("2026-01-02", "2024-05-01", "")]
    assert weights == [1.0, 0.5, 0.5]
