"""The bank allocator: what any allocator must keep, and what ttnn's does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from temper.chips import get
from temper.errors import OutOfMemoryError, UsageError
from temper.program import DRAM, SRAM, Memory, TensorSpec
from temper.program.allocator import (
    BankAllocator,
    dram_allocator,
    sram_allocator,
    tensor_bank_bytes,
    trace_bank_bytes,
)

SIZES = st.integers(1, 5000)
ACTIONS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 30)), max_size=60)


def small(direction: str = "up") -> BankAllocator:
    return BankAllocator("test", 4, 64, 64 + 20_000, 32, direction)  # type: ignore[arg-type]


def play(allocator: BankAllocator, actions: list[tuple[bool, int, int]]) -> None:
    live: list[str] = []
    for number, (take, size, which) in enumerate(actions):
        if take or not live:
            try:
                allocator.allocate(f"t{number}", size)
            except OutOfMemoryError:
                continue
            live.append(f"t{number}")
        else:
            allocator.free(live.pop(which % len(live)))


@given(ACTIONS, st.sampled_from(["up", "down"]))
@settings(max_examples=150, deadline=None)
def test_buffers_never_overlap_and_stay_inside_the_bank(actions, direction):
    allocator = small(direction)
    play(allocator, actions)
    spans = sorted(
        [(b.start, b.end) for b in allocator.used.values()]
        + [(b.start, b.end) for b in allocator.holes]
    )
    assert spans[0][0] == allocator.base
    assert spans[-1][1] == allocator.end
    for (_, end), (start, _) in pairwise(spans):
        assert end == start  # no overlap and no byte lost


@given(ACTIONS, st.sampled_from(["up", "down"]))
@settings(max_examples=100, deadline=None)
def test_every_address_is_aligned(actions, direction):
    allocator = small(direction)
    play(allocator, actions)
    assert all(b.start % 32 == 0 for b in allocator.used.values())
    assert all(b.size % 32 == 0 for b in allocator.used.values())


@given(ACTIONS)
@settings(max_examples=100, deadline=None)
def test_freeing_everything_leaves_one_hole(actions):
    allocator = small()
    play(allocator, actions)
    for name in list(allocator.used):
        allocator.free(name)
    assert [(h.start, h.end) for h in allocator.holes] == [(allocator.base, allocator.end)]
    assert allocator.statistics().allocated_bytes == 0


@given(ACTIONS)
@settings(max_examples=100, deadline=None)
def test_holes_are_never_adjacent_and_statistics_add_up(actions):
    allocator = small()
    play(allocator, actions)
    holes = allocator.holes
    assert all(a.end < b.start for a, b in pairwise(holes))
    stats = allocator.statistics()
    assert stats.allocated_bytes + stats.free_bytes == stats.total_bytes
    assert stats.free_bytes == sum(h.size for h in holes)
    assert stats.largest_free_bytes == max((h.size for h in holes), default=0)


def test_first_fit_takes_the_first_hole_that_is_large_enough():
    allocator = small()
    for name, size in [("a", 320), ("b", 64), ("c", 640), ("d", 64)]:
        allocator.allocate(name, size)
    first = allocator.used["a"].start
    allocator.free("a")
    allocator.free("c")
    assert allocator.allocate("e", 320).start == first


def test_enough_bytes_in_pieces_are_not_enough():
    allocator = small()
    for number in range(20):
        allocator.allocate(str(number), 992)
    for number in range(0, 20, 2):
        allocator.free(str(number))
    assert allocator.statistics().free_bytes > 5000
    assert allocator.statistics().fragmentation > 0.5
    with pytest.raises(OutOfMemoryError, match="largest hole"):
        allocator.allocate("big", 2000)


def test_a_name_is_allocated_once():
    allocator = small()
    allocator.allocate("a", 1)
    with pytest.raises(UsageError):
        allocator.allocate("a", 1)


# Numbers below are those of ttnn 0.81.1 on mocked n150 and p150 devices.


def test_the_first_sram_tensor_ends_at_the_top_of_a_wormhole_core():
    allocator = sram_allocator(get("n150"), l1_small_bytes=0)
    assert allocator.allocate("t", 2048).end == 1_499_136
    assert allocator.allocate("u", 2048).end == 1_499_136 - 2048


def test_l1_small_is_carved_off_the_top():
    allocator = sram_allocator(get("n150"), l1_small_bytes=32_768)
    assert allocator.statistics().total_bytes == 1_360_544


@pytest.mark.parametrize(("chip", "size"), [("n150", 1_393_312), ("p150", 1_461_120)])
def test_sram_for_tensors_and_buffers_is_what_the_device_reports(chip, size):
    assert sram_allocator(get(chip), l1_small_bytes=0).statistics().total_bytes == size


def test_dram_grows_upwards_and_the_trace_region_is_taken_away():
    chip = get("n150")
    allocator = dram_allocator(chip, trace_region_bytes=10_000_000)
    assert trace_bank_bytes(10_000_000, chip) == 835_584
    assert allocator.statistics().total_bytes == 1_072_693_184 - 835_584
    first = allocator.allocate("a", 2048)
    assert allocator.allocate("b", 2048).start == first.end


def test_one_tile_costs_a_page_in_every_bank():
    chip = get("n150")
    assert tensor_bank_bytes(TensorSpec((32, 32)), chip) == 2048
    assert tensor_bank_bytes(TensorSpec((32, 32 * 13)), chip) == 2 * 2048
    assert tensor_bank_bytes(TensorSpec((32, 32 * 65), memory=SRAM), chip) == 2 * 2048
    assert tensor_bank_bytes(TensorSpec((32, 32), "bfloat8_b"), chip) == 1088


def test_rows_are_aligned_up():
    chip = get("n150")
    row = TensorSpec((1, 100), "bfloat16", "row_major", DRAM)
    assert tensor_bank_bytes(row, chip) == 224  # 200 B to 32
    assert tensor_bank_bytes(row.with_memory(SRAM), chip) == 208  # to 16
    assert tensor_bank_bytes(TensorSpec((1, 200), "bfloat16", "row_major", SRAM), chip) == 400


def test_a_partial_shard_occupies_a_whole_one():
    memory = Memory("sram", "height", (8, 8), (64, 512))
    assert tensor_bank_bytes(TensorSpec((2000, 512), memory=memory), get("n150")) == 2 * 16 * 2048
