"""Circular buffers against bytes that ttnn 0.81.1 reported on a mocked n150."""

from __future__ import annotations

import pytest

from temper.chips import get
from temper.program import KINDS, Memory, Op, TensorSpec
from temper.program.circular_buffers import circular_buffer_bytes, circular_buffers
from temper.program.compute_config import default_compute
from temper.program.conv_config import choose as choose_conv
from temper.program.conv_config import window_of

N150 = get("n150")


def bytes_of(kind, shapes, out, fmt="bfloat16", memory=None, **attrs):
    inputs = [TensorSpec(shape, fmt) for shape in shapes]
    output = TensorSpec(out, fmt)
    if memory:
        inputs[0], output = inputs[0].with_memory(memory), output.with_memory(memory)
    compute = default_compute(kind, inputs, [output], "wormhole_b0", 1,
                              norm=attrs.get("norm", "layer"))  # fmt: skip
    op = Op(kind, tuple("abc"[: len(shapes)]), ("o",), {**compute, **attrs})
    return circular_buffer_bytes(op, inputs, [output], N150)


@pytest.mark.parametrize(
    ("shapes", "out", "expected"),
    [
        ([(256, 512), (512, 1024)], (256, 1024), 49_152),
        ([(32, 4096), (4096, 4096)], (32, 4096), 28_672),
        ([(4096, 4096), (4096, 4096)], (4096, 4096), 786_432),
        ([(64, 256), (256, 128256)], (64, 128256), 790_528),
        ([(12, 128, 64), (12, 64, 128)], (12, 128, 128), 10_240),
        ([(256, 512), (512, 1024), (1, 1024)], (256, 1024), 57_344),
        ([(8, 128, 768), (768, 3072), (1, 3072)], (8, 128, 3072), 69_632),
    ],
)
def test_matmul(shapes, out, expected):
    assert bytes_of("Matmul", shapes, out) == expected


@pytest.mark.parametrize(
    ("fmt", "shape", "expected"),
    [
        ("bfloat16", (8, 256, 256), 63_488),
        ("bfloat16", (32, 32768), 532_480),
        ("bfloat16", (64, 1000), 178_176),
        ("bfloat8_b", (16, 512, 512), 73_216),
        ("float32", (12, 128, 128), 83_968),
    ],
)
def test_softmax(fmt, shape, expected):
    assert bytes_of("Softmax", [shape], shape, fmt) == expected


def test_norms():
    affine = {"operands": ["x", "weight", "bias"]}
    shapes = [(256, 1024), (1, 1024), (1, 1024)]
    assert bytes_of("LayerNorm", shapes, (256, 1024), **affine) == 565_248
    assert bytes_of("LayerNorm", [(32, 8192)], (32, 8192)) == 651_264
    rms = {"norm": "rms", "operands": ["x", "weight"]}
    assert bytes_of("LayerNorm", shapes[:2], (256, 1024), **rms) == 290_816
    block = Memory("sram", "block", (8, 8), (64, 256))
    shapes = [(512, 2048), (1, 2048), (1, 2048)]
    assert bytes_of("LayerNorm", shapes, (512, 2048), memory=block, **affine) == 282_624


def test_elementwise():
    assert bytes_of("BinaryNg", [(256, 256)] * 2, (256, 256)) == 12_288
    assert bytes_of("BinaryNg", [(256, 256), (1, 256)], (256, 256)) == 16_384
    assert bytes_of("Unary", [(256, 1024)], (256, 1024), "bfloat8_b") == 4352
    assert bytes_of("Ternary", [(256, 256)] * 3, (256, 256)) == 16_384


def test_equal_shards_need_no_buffers():
    block = Memory("sram", "block", (8, 8), (64, 64))
    assert bytes_of("Unary", [(512, 512)], (512, 512), memory=block) == 0


def test_attention_and_heads():
    q = (1, 8, 512, 64)
    assert bytes_of("Sdpa", [q] * 3, q, causal=True) == 63_488
    assert bytes_of("ConcatHeads", [(4, 12, 128, 64)], (4, 128, 768)) == 98_304


# q, keys, causal, mask, query block, key block -> buffers of ttnn 0.81.1 on n150
BLOCKS = [
    ((1, 8, 512, 64), 512, False, False, 128, 128, 210_944),
    ((1, 8, 512, 64), 512, False, False, 96, 96, 159_744),
    ((1, 8, 512, 64), 512, True, False, 64, 64, 120_832),
    ((1, 8, 512, 128), 512, True, False, 256, 128, 583_680),
    ((8, 16, 384, 64), 384, False, False, 384, 384, 833_536),
    ((8, 16, 384, 64), 384, False, False, 256, 128, 368_640),
    ((8, 16, 384, 64), 384, False, True, 128, 256, 456_704),
    ((1, 8, 300, 64), 300, False, False, 128, 128, 215_040),
    ((1, 8, 128, 64), 1024, False, False, 256, 256, 466_944),
]


@pytest.mark.parametrize(("q", "keys", "causal", "masked", "high", "wide", "expected"), BLOCKS)
def test_attention_in_blocks(q, keys, causal, masked, high, wide, expected):
    k = (*q[:2], keys, q[3])
    shapes = [q, k, k, *([(q[0], 1, q[2], keys)] if masked else [])]
    config = {"q_chunk_size": high, "k_chunk_size": wide}
    assert bytes_of("Sdpa", shapes, q, causal=causal, config=config) == expected


# batch, h, channels, out, kernel, stride, padding -> buffers, halo bytes, scheme
CONVS = [
    (1, 56, 64, 64, 3, 1, 1, 57_408, 8_800, "block"),
    (8, 56, 64, 64, 3, 1, 1, 348_224, 85_248, "height"),
    (8, 224, 3, 64, 7, 2, 3, 413_760, 121_424, "height"),
    (8, 28, 128, 128, 3, 1, 1, 211_008, 31_360, "block"),
    (64, 28, 1, 32, 3, 1, 0, 94_272, 14_848, "height"),
    (1, 16, 1280, 1280, 3, 1, 1, 225_344, 23_040, "block"),
]


@pytest.mark.parametrize(
    ("batch", "h", "c", "o", "k", "s", "p", "expected", "halo", "scheme"), CONVS
)
def test_convolutions_are_sharded_as_ttnn_does(batch, h, c, o, k, s, p, expected, halo, scheme):
    op = Op("Conv2d", ("x", "w", "b"), ("y",), {
        "batch": batch, "in_h": h, "in_w": h, "kernel": [k, k], "stride": [s, s],
        "padding": [p] * 4, "in_channels": c, "out_channels": o,
    })  # fmt: skip
    window = window_of(op)
    x = TensorSpec((1, 1, batch * h * h, c), "bfloat16", "row_major")
    out = TensorSpec((1, 1, window.out_rows, o))
    config = choose_conv(window, x, out, N150, bias=True)
    assert config.sharding == scheme
    assert config.halo_shard[0] * config.halo_shard[1] * 2 == halo
    specs = [x, TensorSpec((1, 1, k * k * c, o)), TensorSpec((1, o))]
    assert circular_buffer_bytes(op, specs, [out], N150) == expected


def test_a_pointwise_convolution_is_a_matmul():
    op = Op("Conv2d", ("x", "w", "b"), ("y",), {
        "batch": 8, "in_h": 28, "in_w": 28, "in_channels": 512, "out_channels": 256,
    })  # fmt: skip
    specs = [TensorSpec((1, 1, 6272, 512)), TensorSpec((512, 256)), TensorSpec((1, 256))]
    out = TensorSpec((1, 1, 6272, 256))
    assert circular_buffer_bytes(op, specs, [out], N150) == 180_224


def test_every_kind_has_an_answer():
    x = TensorSpec((1, 1, 64, 64))
    for name, kind in KINDS.items():
        operands = len([o for o in kind.operands if not o.endswith("?")])
        op = Op(name, tuple(str(i) for i in range(operands)), ("o",))
        outputs = [x] * (3 if name == "CreateQkvHeads" else 1)
        assert circular_buffer_bytes(op, [x] * operands, outputs, N150) >= 0


def test_buffers_one_by_one_are_those_of_the_matmuls_config():
    # A multicast matmul: two blocks of each operand, and the result.
    config = {
        "name": "MatmulMultiCoreReuseMultiCast", "grid": [8, 8], "in0_block_w": 2,
        "out_subblock_h": 1, "out_subblock_w": 4, "per_core_m": 2, "per_core_n": 4,
        "out_block_h": 2, "out_block_w": 4,
    }  # fmt: skip
    a, b, out = TensorSpec((512, 1024)), TensorSpec((1024, 1024)), TensorSpec((512, 1024))
    op = Op("Matmul", ("a", "b"), ("o",), {"config": config, "fp32_acc": False})
    parts = circular_buffers(op, [a, b], [out], N150)
    tile = 2048
    assert parts == {"in0": 2 * 2 * 2 * tile, "in1": 2 * 4 * 2 * tile, "out": 2 * 4 * tile}
    add = Op("BinaryNg", ("a", "b"), ("o",), {"function": "add"})
    assert circular_buffers(add, [a, a], [a], N150) == dict.fromkeys(
        ("in0", "in1", "out"), 2 * tile
    )
