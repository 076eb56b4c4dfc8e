"""Bytes beyond the specs, against ttnn 0.81.1's own allocations on a mocked device."""

from __future__ import annotations

import pytest

from temper.chips import get
from temper.program import Op, Program, TensorSpec
from temper.program.group_norm_config import group_norm_buffers
from temper.program.simulate import walk
from temper.program.stored import dense_weights, map_bytes
from temper.program.tensor import Memory


@pytest.mark.parametrize(
    ("before", "after", "read_off"),
    [
        ((1, 1, 576, 64), (4, 144, 64), 1024),
        ((4, 64, 144), (4, 9216), 256),
        ((1, 64), (64, 1), 512),
        ((1, 1, 256, 32), (2, 8, 2, 256), 128),
        ((8, 128, 768), (1024, 12, 64), 512),
        ((1, 1, 4096, 512), (1, 64, 32768), 1024),
        ((1, 1, 2704, 32), (4, 26, 26, 32), 1536),
        ((4, 32, 26, 26), (4, 32, 676), 2560),
        ((100, 3), (4, 5, 15), 832),
        ((4, 100), (25, 16), 640),
    ],
)
def test_the_map_of_a_reshape_is_as_long_as_ttnn_s(
    before: tuple[int, ...], after: tuple[int, ...], read_off: int
) -> None:
    assert map_bytes(TensorSpec(before), TensorSpec(after)) == read_off


def test_equal_reshapes_share_a_map_that_stays() -> None:
    a, b = TensorSpec((4, 64, 144)), TensorSpec((4, 9216))
    values = {"x": a, "y": a, "u": b, "v": b}
    ops = (Op("Reshape", ("x",), ("u",)), Op("Reshape", ("y",), ("v",)))
    program = Program("p", "n150", values, ops, ("x", "y"), ("u", "v"))
    # 4*2*5 tiles of an input and 288 tiles of a result on 12 banks; 256 B of map a result's tile.
    inputs, outputs = 2 * -(-40 // 12) * 2048, 2 * 24 * 2048
    steps = walk(program, get("n150")).steps
    assert steps[-1].dram_bytes == inputs + outputs + 24 * 256


def test_a_grouped_convolution_s_weight_is_spread_to_a_dense_matrix() -> None:
    raw, prepared = TensorSpec((64, 1, 3, 3), layout="row_major"), TensorSpec((1, 1, 9, 64))
    values = {"w": raw, "p": prepared, "x": TensorSpec((1, 1, 64, 64))}
    prepare = Op("PrepareConvWeight", ("w",), ("p",), {"groups": 64})
    use = Op("Copy", ("p",), ("x",))
    program = Program("p", "n150", values, (use,), (), ("x",), {"w": "w"}, const_ops=(prepare,))
    # 9*64 rows and 64 columns are 36 tiles, three of each of 12 banks.
    assert walk(program, get("n150")).resident["p"] == 3 * 2048


@pytest.mark.parametrize(
    ("shape", "groups", "affine", "read_off"),
    [
        ((1, 1, 4096, 64), 8, 2, 256_000),
        ((1, 1, 4096, 64), 8, 0, 251_904),
        ((2, 1, 1024, 128), 32, 2, 141_312),
        ((1, 1, 4096, 320), 32, 2, 505_856),
        ((1, 1, 64, 1280), 32, 2, 75_776),
        ((1, 1, 131_072, 64), 8, 0, 940_032),
    ],
)
def test_buffers_of_a_group_norm_are_ttnn_s(
    shape: tuple[int, ...], groups: int, affine: int, read_off: int
) -> None:
    assert group_norm_buffers(TensorSpec(shape), groups, affine, get("n150")) == read_off
    if groups == 8 and not affine and shape[2] == 4096:
        wide = TensorSpec(shape, "float32")
        assert group_norm_buffers(wide, groups, affine, get("n150")) == 497_664


def test_weights_have_whole_shards_of_channels() -> None:
    # A depthwise convolution of SegFormer on 7 columns of cores: ttnn stores 189 by 21 tiles.
    image = TensorSpec((1, 1, 196, 640), memory=Memory("sram", "block", (7, 7), (32, 96)))
    prepared = TensorSpec((1, 1, 9, 640))
    values = {"w": TensorSpec((640, 1, 3, 3), layout="row_major"), "p": prepared, "x": image,
              "y": image}  # fmt: skip
    prepare = Op("PrepareConvWeight", ("w",), ("p",), {"groups": 640})
    attrs = {"groups": 640, "in_channels": 640, "out_channels": 640, "kernel": [3, 3]}
    use = Op("Conv2d", ("x", "p"), ("y",), attrs)
    program = Program("p", "n150", values, (use,), ("x",), ("y",), {"w": "w"}, const_ops=(prepare,))
    assert dense_weights(program)["p"].tiles == 189 * 21
