"""Trace sizes against the few that are public, and the region's arithmetic."""

from __future__ import annotations

import pytest
from programs import Draft, mlp, transformer

from temper.chips import get
from temper.errors import OutOfMemoryError
from temper.placement.place import place
from temper.program import HOST, Op, TensorSpec
from temper.program.trace_size import check_region, region_for, trace_bytes

N150 = get("n150")


def test_two_trivial_programs_take_about_six_kilobytes():
    d = Draft()
    d.unary(d.unary(d.input(32, 32)))
    assert 5_000 < trace_bytes(d.program()) < 7_000


def test_an_op_on_all_cores_takes_two_to_ten_kilobytes():
    d = Draft()
    d.unary(d.input(4096, 4096))
    assert 2_000 < trace_bytes(d.program()) < 10_000


def test_resnet_50_sized_programs_match_the_published_size():
    # 845 824 B were reported for ResNet-50 on Wormhole; a compiled one has 115 to 130 ops.
    d = Draft()
    x = d.input(4096, 4096)
    for _ in range(122):
        x = d.unary(x)
    assert trace_bytes(d.program()) == pytest.approx(845_824, rel=0.1)


def test_host_ops_are_not_traced():
    d = Draft()
    d.unary(d.input(32, 32))
    before = trace_bytes(d.program())
    d.values["h"] = TensorSpec((32, 32), "bfloat16", "row_major", HOST)
    d.ops.append(Op("Host", ("v0",), ("h",), {"target": "aten.foo"}))
    assert trace_bytes(d.program()) == before


def test_a_region_is_rounded_up_to_pages_of_every_bank():
    # ttnn 0.81.1: 10 000 000 B over 12 banks become 835 584 B each.
    assert region_for(10_000_000, N150) == 12 * 835_584


def test_an_unset_region_is_sized_for_the_trace():
    program = place(transformer(2), N150, 2)
    region = check_region(program, None)
    assert region >= trace_bytes(program)
    assert check_region(program, region) == region


def test_a_region_that_is_too_small_says_the_size_needed():
    program = place(transformer(12), N150, 2)
    with pytest.raises(OutOfMemoryError) as caught:
        check_region(program, 100_000)
    text = str(caught.value)
    needed = region_for(trace_bytes(program), N150)
    assert f"trace_region_size={needed}" in text
    assert "100 000 B" in text
    assert "8 192 B" in text
    assert check_region(program, needed) == needed


def test_a_region_of_zero_fits_nothing():
    with pytest.raises(OutOfMemoryError):
        check_region(mlp(), 0)
