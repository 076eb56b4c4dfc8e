"""Any rank, type, stride and kind of array; mistakes are told in words."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from temper.errors import UsageError
from temper.formats import pack, quantize, tilize, to_integer, unpack, untilize

FORMATS = ["float32", "tf32", "bfloat16", "bfloat8_b", "bfloat4_b", "bfloat2_b"]
RANDOM = np.random.default_rng(1)
VALUES = RANDOM.standard_normal((6, 40, 50)).astype(np.float32)


def same(a: object, b: object) -> bool:
    left, right = np.asarray(a), np.asarray(b)
    return left.dtype == right.dtype and np.array_equal(left.view(np.uint8), right.view(np.uint8))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (0,), (0, 5), (5, 0), (2, 0, 3), (1, 1, 1, 1, 3)]
)
def test_any_rank_and_zero_elements_keep_their_shape(path: str, fmt: str, shape: tuple) -> None:
    values = np.full(shape, 1.25, np.float32)
    for source in (values, torch.from_numpy(values)):
        result = quantize(source, fmt)
        assert type(result) is type(source)
        assert tuple(result.shape) == shape
        if fmt != "tf32":
            packed = pack(source, fmt)
            assert tuple(unpack(packed, fmt, shape).shape) == shape
            assert packed.shape[0] == (0 if 0 in shape else 1)


@pytest.mark.parametrize("fmt", FORMATS)
def test_views_give_what_their_copies_give(path: str, fmt: str) -> None:
    views = [VALUES.T, VALUES[::2, ::-1, 3:], VALUES[:, 1], np.broadcast_to(VALUES[0, 0], (40, 50))]
    for view in views:
        copy = np.ascontiguousarray(view)
        assert same(quantize(view, fmt), quantize(copy, fmt))
        tensor = torch.from_numpy(copy.T.copy()).permute(*range(copy.ndim)[::-1])
        assert same(quantize(tensor, fmt), quantize(copy, fmt))
        if fmt != "tf32":
            assert same(pack(view, fmt), pack(copy, fmt))
            assert same(pack(tensor, fmt), pack(copy, fmt))
            assert same(tilize(view), tilize(copy))


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int8", "int64", "uint8", "uint16", "bool", ">f4", ">i2"]
)
def test_other_types_are_cast_to_float32_first(path: str, dtype: str) -> None:
    source = (VALUES * 50).astype(dtype)
    expected = quantize(source.astype(np.float32), "bfloat8_b")
    assert same(quantize(source, "bfloat8_b"), expected)
    assert same(pack(source, "bfloat8_b"), pack(source.astype(np.float32), "bfloat8_b"))


def test_torch_types_without_a_numpy_twin_are_taken(path: str) -> None:
    source = torch.from_numpy(VALUES).to(torch.bfloat16)
    assert same(quantize(source, "bfloat4_b"), quantize(source.float(), "bfloat4_b"))
    assert same(pack(source, "bfloat4_b"), pack(source.float(), "bfloat4_b"))
    assert quantize(source.requires_grad_(), "bfloat16").dtype == torch.float32


def test_float64_beyond_float32_becomes_infinite_without_a_warning() -> None:
    with np.errstate(all="raise"):
        assert quantize(np.array([1e300, -1e300]), "bfloat16").tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_destination_is_filled_and_returned(path: str, fmt: str) -> None:
    expected = quantize(VALUES, fmt)
    out = np.full_like(VALUES, 7)
    assert quantize(VALUES, fmt, out=out) is out
    assert same(out, expected)
    strided = np.zeros((6, 50, 40), np.float32).transpose(0, 2, 1)
    assert same(np.ascontiguousarray(quantize(VALUES, fmt, out=strided)), expected)
    in_place = VALUES.copy()
    assert same(quantize(in_place, fmt, out=in_place), expected)
    tensor = torch.from_numpy(VALUES.copy())
    assert quantize(tensor, fmt, out=tensor) is tensor
    assert same(tensor, expected)


def test_overlapping_input_and_destination_are_told_apart(path: str) -> None:
    memory = RANDOM.standard_normal(200).astype(np.float32)
    expected = quantize(memory[3:163].copy(), "bfloat8_b")
    assert same(quantize(memory[3:163], "bfloat8_b", out=memory[:160]), expected)
    tensor = torch.randn(200)
    expected = quantize(tensor[3:163].clone(), "bfloat8_b")
    assert same(quantize(tensor[3:163], "bfloat8_b", out=tensor[:160]), expected)


def test_pack_and_unpack_fill_given_buffers(path: str) -> None:
    packed = np.empty((24, 1088), np.uint8)
    assert pack(VALUES, "bfp8", out=packed) is packed
    values = np.empty_like(VALUES)
    assert unpack(packed, "bfp8", VALUES.shape, out=values) is values
    assert same(values, quantize(VALUES, "bfp8"))
    assert same(unpack(packed.tobytes(), "bfp8", VALUES.shape), values)
    assert same(unpack(torch.from_numpy(packed), "bfp8", VALUES.shape), values)


@pytest.mark.parametrize(
    ("fmt", "values", "expected"),
    [
        ("int32", [1.9, -1.9, 3e9, -3e9, np.nan], [1, -1, -(2**31), -(2**31), -(2**31)]),
        ("uint32", [1.9, -1.0, 4e9], [1, 2**32 - 1, 4_000_000_000]),
        ("uint16", [1.9, -5.0, 70000.0, np.inf], [1, 0, 65535, 65535]),
        ("uint8", [254.9, 256.0, -1.0], [254, 255, 0]),
    ],
)
def test_integer_formats_truncate_by_their_rules(fmt: str, values: list, expected: list) -> None:
    for source in (np.array(values, np.float32), torch.tensor(values)):
        result = to_integer(source, fmt)
        assert result.tolist() == expected
        assert quantize(source, fmt).tolist() == expected
        assert unpack(pack(source, fmt), fmt, (len(values),)).tolist() == expected


@pytest.mark.parametrize("fmt", ["float32", "bfloat16", "int32", "uint32", "uint16", "uint8"])
def test_row_major_bytes_round_trip(path: str, fmt: str) -> None:
    source = np.abs(VALUES * 100)
    packed = pack(source, fmt, layout="row_major")
    assert packed.shape[0] == 6 * 40
    assert same(unpack(packed, fmt, source.shape, layout="row_major"), quantize(source, fmt))
    tensor = pack(torch.from_numpy(source), fmt, layout="row_major")
    assert same(tensor, packed)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pack(VALUES, "bfloat8_b", layout="row_major"), "shared exponent"),
        (lambda: unpack(b"", "bfp4", (0,), layout="row_major"), "cannot be row-major"),
        (lambda: pack(VALUES, "bfp8", layout="tiled"), "unknown layout"),
        (lambda: quantize(VALUES, "bfp9"), "unknown format"),
        (lambda: quantize(VALUES, "float16"), "no IEEE half"),
        (lambda: quantize(VALUES.astype(complex), "bf16"), "no number format"),
        (lambda: quantize(np.array(["a"]), "bf16"), "no number format"),
        (lambda: quantize([[1], [1, 2]], "bf16"), "not an array"),
        (lambda: quantize(torch.zeros(3, device="meta"), "bf16"), "no values"),
        (lambda: quantize(torch.zeros(3).to_sparse(), "bf16"), "no format"),
        (lambda: quantize(VALUES, "bf16", out=np.zeros(3, np.float32)), "does not fit"),
        (lambda: quantize(VALUES, "bf16", out=np.zeros(VALUES.shape)), "does not fit"),
        (lambda: quantize(VALUES, "bf16", out=torch.zeros(VALUES.shape)), "out must be"),
        (
            lambda: quantize(VALUES, "bf16", out=np.broadcast_to(VALUES[:1], VALUES.shape)),
            "read-only",
        ),
        (lambda: unpack(np.zeros(1000, np.uint8), "bfp8", (32, 32)), "1 tiles x 1088 B"),
        (lambda: unpack(np.zeros(1088, np.int8), "bfp8", (32, 32)), "uint8"),
        (lambda: unpack(np.zeros(1088, np.uint8), "bfp8", (-1, 32)), "negative"),
        (lambda: unpack(np.zeros(1088, np.uint8), "bfp8", 32), "not a shape"),
        (lambda: untilize(np.zeros(7), (32, 32)), "not the tiles"),
    ],
)
def test_mistakes_are_told_in_words(call: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()  # type: ignore[operator]


def test_a_large_cast_takes_no_more_memory_than_the_result() -> None:
    source = np.zeros((1 << 22, 8), np.float64)[:, ::2]  # 16.8 million values, strided
    result_bytes = source.size * 4
    tracemalloc.start()
    quantize(source, "bfloat8_b")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < result_bytes * 1.1


def test_packing_a_large_cast_copies_only_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from temper.formats import packing

    source = RANDOM.standard_normal((3, 2, 100, 70)).astype(np.float16)
    whole = pack(source, "bfp8")
    monkeypatch.setattr(packing, "_PIECE", 70 * 64)
    assert same(pack(source, "bfp8"), whole)
    assert same(pack(torch.from_numpy(source), "bfp8"), whole)
