"""Matmul program configs; the buffers that fix each number were read off ttnn 0.81.1."""

from __future__ import annotations

import pytest

from temper.chips import get
from temper.program import SRAM, Memory, TensorSpec
from temper.program.matmul_config import (
    MULTI_CORE,
    REUSE_1D,
    REUSE_2D,
    MatmulConfig,
    choose,
    subblock,
)

N150 = get("n150")


def config(a: tuple[int, ...], b: tuple[int, ...], **kwargs) -> MatmulConfig:
    a_memory, out_memory = kwargs.pop("memory", (None, None))
    specs = [TensorSpec(a), TensorSpec(b), TensorSpec((*a[:-1], b[-1]))]
    if a_memory:
        specs[0] = specs[0].with_memory(a_memory)
    if out_memory:
        specs[2] = specs[2].with_memory(out_memory)
    batch, m, k = specs[0].matrix
    return choose(batch, m, k, b[-1], *specs, N150, **kwargs)


def test_square_matmuls_in_dram_use_the_whole_grid():
    got = config((256, 512), (512, 1024))
    assert (got.name, got.grid, got.cores) == (REUSE_2D, (8, 8), 64)
    assert (got.per_core_m, got.per_core_n, got.in0_block_w) == (1, 4, 2)


def test_wide_matmuls_multicast_the_first_operand():
    got = config((32, 4096), (4096, 4096))
    assert (got.name, got.mcast_in0) == (REUSE_1D, True)
    assert (got.per_core_m, got.per_core_n, got.cores) == (1, 2, 64)


def test_tall_matmuls_multicast_the_second_operand():
    got = config((4096, 64), (64, 64))
    assert (got.name, got.mcast_in0) == (REUSE_1D, False)
    assert (got.per_core_m, got.per_core_n) == (2, 2)


def test_a_batch_is_looped_not_fused():
    got = config((8, 128, 768), (768, 768))
    assert (got.name, got.cores, got.fuse_batch) == (REUSE_2D, 32, False)
    assert config((12, 128, 64), (12, 64, 128)).cores == 16


def test_one_first_operand_for_many_second_ones_is_multicast_1d():
    assert config((128, 64), (12, 64, 128)).name == REUSE_1D


@pytest.mark.parametrize(
    ("size", "fp32_acc", "block", "depth"),
    [(4096, False, (16, 16), 2), (8192, False, (16, 16), 2), (4096, True, (8, 16), 4)],
)
def test_large_blocks_shrink_to_what_fits(size, fp32_acc, block, depth):
    got = config((size, size), (size, size), fp32_acc=fp32_acc)
    assert (got.out_block_h, got.out_block_w) == block
    assert got.in0_block_w == depth


def test_sram_operands_get_blocks_of_sixteen_or_one_tile_at_a_time():
    got = config((1024, 1024), (1024, 1024), memory=(SRAM, SRAM))
    assert (got.name, got.per_core_m, got.cores) == (REUSE_2D, 16, 4)
    assert config((256, 512), (512, 512), memory=(None, SRAM)).name == MULTI_CORE


def test_less_free_sram_means_smaller_blocks():
    got = config((2048, 2048), (2048, 2048), memory=(SRAM, SRAM), sram_free_bytes=1_229_472)
    assert (got.per_core_m, got.cores) == (8, 64)


def test_shards_of_the_first_operand_dictate_the_config():
    height = Memory("sram", "height", (8, 8), (32, 512))
    got = config((2048, 512), (512, 256), memory=(height, height))
    assert (got.name, got.mcast_in0, got.in0_block_w) == (REUSE_1D, False, 16)
    block = Memory("sram", "block", (8, 8), (64, 64))
    got = config((512, 512), (512, 1024), memory=(block, block))
    assert (got.name, got.per_core_m, got.per_core_n, got.in0_block_w) == (REUSE_2D, 2, 4, 2)
    width = Memory("sram", "width", (8, 8), (32, 32))
    got = config((32, 2048), (2048, 2048), memory=(width, width))
    assert (got.mcast_in0, got.per_core_n, got.in0_block_w) == (True, 1, 1)


def test_an_asked_grid_fuses_the_batch():
    got = config((8, 128, 768), (768, 768), core_grid=(8, 8))
    assert (got.name, got.fuse_batch, got.cores) == (REUSE_2D, True, 64)
    assert (got.per_core_m, got.per_core_n) == (4, 3)


@pytest.mark.parametrize("fp32_acc", [False, True])
def test_subblocks_divide_the_block_and_fit_dest(fp32_acc):
    for h in range(1, 20):
        for w in range(1, 20):
            sub_h, sub_w = subblock(h, w, fp32_acc)
            assert h % sub_h == 0
            assert w % sub_w == 0
            assert sub_h * sub_w <= (4 if fp32_acc else 8)


def test_configs_survive_their_attributes():
    got = config((256, 512), (512, 1024))
    assert MatmulConfig.from_attrs(got.to_attrs()) == got


def test_shards_are_written_in_blocks_of_whole_rows_or_row_by_row() -> None:
    # ttnn 0.81.1 on a mocked n150: "out_block_w must equal per_core_N or out_block_h must be 1".
    chip = get("n150")
    memory = Memory("sram", "height", (8, 7), (128, 1024))
    x = TensorSpec((1, 1, 6272, 1024), "bfloat8_b", "tile", memory)
    weight = TensorSpec((1, 1, 1024, 512), "bfloat8_b")
    for free in (200_000, 400_000, 800_000):
        out = TensorSpec((1, 1, 6272, 512), "bfloat8_b", "tile",
                         Memory("sram", "height", (8, 7), (128, 512)))  # fmt: skip
        found = choose(1, 6272, 1024, 512, x, weight, out, chip, sram_free_bytes=free)
        assert found.out_block_w == found.per_core_n or found.out_block_h == 1
