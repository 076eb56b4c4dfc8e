"""The arithmetic behind memory and trace messages, from the numbers they carry."""

from __future__ import annotations

import math
import re

from temper.chips import Chip
from temper.doctor.known import grouped, number_after

_TRACE_PAGE = 8192  # each bank's share of the trace region is rounded up to this


def allocation(text: str, chip: Chip) -> list[str]:
    """Out of memory in one bank: full, or only fragmented?"""
    total = number_after(text, r"allocate (\d+) B")
    banks = number_after(text, r"across (\d+) banks")
    need = number_after(text, r"needs to store (\d+) B", r"\((\d+) B per bank\)")
    size = number_after(text, r"bank size is (?:only )?(\d+) B")
    used = number_after(text, r"allocated: (\d+) B")
    free = number_after(text, r"free: (\d+) B")
    largest = number_after(text, r"largest free block: (\d+) B")
    lines = []
    if total and banks:
        each = need or math.ceil(total / banks)
        lines.append(
            f"{grouped(total)} B over {banks} banks = {grouped(each)} B in every bank "
            "(banks are filled in lock-step, pages rounded up)"
        )
        need = each
    if size and used is not None:
        percent = 100 * used / size
        lines.append(f"of a bank's {grouped(size)} B, {grouped(used)} B ({percent:.0f}%) are taken")
    if need and free is not None and largest is not None:
        if free >= need > largest:
            lines.append(
                f"free {grouped(free)} B would do, but the largest hole is {grouped(largest)} B: "
                f"fragmentation, {grouped(need - largest)} B short"
            )
        elif free < need:
            lines.append(f"free {grouped(free)} B: {grouped(need - free)} B short in each bank")
    elif need and size and need > size:
        lines.append(f"{grouped(need - size)} B more than an empty bank holds")
    return lines


def beyond_l1(text: str, chip: Chip) -> list[str]:
    """Circular buffers that need more than SRAM has: by how much."""
    match = re.search(r"grow to (\d+) B which is beyond max L1 size of (\d+) B", text, re.I)
    if match is None:
        return []
    end, limit = int(match.group(1)), int(match.group(2))
    reserved = chip.sram_reserved_bytes
    return [
        f"{grouped(end)} B - {grouped(limit)} B = {grouped(end - limit)} B too much "
        f"({100 * (end - limit) / limit:.0f}% over)",
        f"the lowest {grouped(reserved)} B of a core are firmware's ({chip.name}; moves between "
        f"versions), so the buffers themselves take about {grouped(end - reserved)} B",
    ]


def clash(text: str, chip: Chip) -> list[str]:
    """Circular buffers that meet a tensor in SRAM: where, and by how much."""
    match = re.search(
        r"L1 buffer allocated at (\d+) and static circular buffer region ends at (\d+)", text, re.I
    )
    if match is None:
        return []
    start, end = int(match.group(1)), int(match.group(2))
    tensors = chip.sram_core_bytes - start
    lines = [f"buffers end at {grouped(end)}, tensors begin at {grouped(start)}: "
             f"{grouped(end - start)} B overlap in every core"]  # fmt: skip
    if tensors > 0:
        lines.append(
            f"tensors hold {grouped(tensors)} B at the top of a {chip.name} core's "
            f"{grouped(chip.sram_core_bytes)} B; freeing {grouped(end - start)} B of them is enough"
        )
    return lines


def trace_region(text: str, chip: Chip) -> list[str]:
    """A trace larger than its region: the size to set."""
    match = re.search(r"trace buffers of size (\d+) ?B .*?only (\d+) ?B is allocated", text, re.I)
    if match is None:
        return []
    need, have = int(match.group(1)), int(match.group(2))
    banks = chip.dram_banks
    share = math.ceil(need / banks / _TRACE_PAGE) * _TRACE_PAGE
    advised = math.ceil(need * 1.25 / 1_000_000) * 1_000_000
    return [
        f"needs {grouped(need)} B, region has {grouped(have)} B: {grouped(need - have)} B short",
        f"on {chip.name} that is {grouped(share)} B in each of {banks} DRAM banks",
        f"TT_RUNTIME_TRACE_REGION_SIZE={advised} leaves a quarter to spare",
    ]


def shards(text: str, chip: Chip) -> list[str]:
    """More shards than cores: how many of each."""
    match = re.search(r"number of shards[^\d]{0,40}(\d+)[^\d]{0,80}?(\d+)", text, re.I)
    if match is None:
        return []
    have, cores = int(match.group(1)), int(match.group(2))
    return [f"{have} shards for {cores} cores: shards must be at least {have / cores:.2f} times "
            "larger (in whole tiles of 32)"]  # fmt: skip


def pages(text: str, chip: Chip) -> list[str]:
    """Hugepages that are missing: how many."""
    have = number_after(text, r"NumHugepages: (\d+)")
    need = number_after(text, r"NumMMIODevices: (\d+)")
    if have is not None and need is not None:
        return [f"{have} pages of 1 GiB for {need} cards; four a card are wanted: {4 * need}"]
    used = number_after(text, r"NumHostMemChannels: (\d+)")
    target = number_after(text, r"less than target: (\d+)")
    if used is not None and target is not None:
        return [
            f"{used} host channel(s) of 1 GiB instead of {target}: reserve {target} pages a card"
        ]
    return []


def firmware(text: str, chip: Chip) -> list[str]:
    """Firmware older than asked for: which versions."""
    match = re.search(r"version ([\d.]+\d) on the system is older than .*? ([\d.]+\d)", text, re.I)
    if match is None:
        return []
    if match.group(1) == match.group(2):
        return ["both versions are equal: a comparison fault of tt-umd, mended since (issue 1719)"]
    return [f"installed {match.group(1)}, needed {match.group(2)}"]


def distance_to_level(text: str, chip: Chip) -> list[str]:
    """An optimization level that does not exist: which do."""
    given = number_after(text, r"optimization_level: (\d+)")
    return [] if given is None else [f"given {given}; levels are 0, 1 and 2"]
