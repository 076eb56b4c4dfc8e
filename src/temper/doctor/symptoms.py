"""The trees: low throughput, high latency, memory errors."""

from __future__ import annotations

import math
from collections.abc import Iterator

from temper.chips.guide import GUIDE_GBPS
from temper.doctor import card_stream
from temper.doctor.bandwidth import measure_memory, measure_wake_us
from temper.doctor.steps import Patient, Question, Tree, from_check
from temper.formats.sizes import TILE, TILE_BYTES
from temper.machine.telemetry import read_card

FORMATS = tuple(TILE_BYTES)


def low_throughput(patient: Patient) -> Iterator[Question]:
    """Questions about fewer samples a second than expected."""
    yield from_check(patient, "temperature", "Is it throttled by heat?", 100, "no card to ask")
    yield _clock_step(patient)
    yield from_check(patient, "pcie", "Is the link Gen4 x16 or better?", 90, "no card to ask")
    yield from _device_memory_steps(patient)
    yield _host_memory_step(patient)
    yield from_check(patient, "hugepages", "Are 1 GiB hugepages reserved?", 40)
    yield from_check(patient, "numa", "Are card and pages on one NUMA node?", 50, "one node")
    yield from_check(patient, "load", "Is the host busy with other things?", 45)
    yield from_check(patient, "governor", "Does the CPU run at full clock?", 35, "not published")
    yield _guide_step(patient)


def _clock_step(patient: Patient) -> Question:
    question = "Is the clock at its full rate?"
    lowest: tuple[float, str] | None = None
    for card in patient.context.cards:
        reading = read_card(patient.context.machine, card)
        if reading.clock_mhz and reading.clock_nominal_mhz:
            share = reading.clock_mhz / reading.clock_nominal_mhz
            text = f"{reading.clock_mhz:.0f} of {reading.clock_nominal_mhz} MHz"
            lowest = min(lowest or (share, text), (share, text))
            if reading.throttled == "power":
                return Question(
                    question, f"{text}, at the power limit", "read", 80, "the power limit",
                    "lower fidelity or smaller formats; check cooling",
                )  # fmt: skip
    if lowest is None:
        return Question(question, "no card to ask", "read")
    idle = " (idle cards lower it: look again under load, temper monitor)"
    return Question(question, lowest[1] + (idle if lowest[0] < 0.9 else ""), "read")


def _device_memory_steps(patient: Patient) -> Iterator[Question]:
    chip = patient.chip
    model = card_stream.modelled(chip)
    unsure = ", extrapolated" if model.extrapolated else ""
    yield Question(
        "What should the card's DRAM give?",
        f"{chip.name}: adding two 128 MiB tensors streams {model.gbps:.0f} GB/s "
        f"({model.low_gbps:.0f} to {model.high_gbps:.0f}{unsure}); best pattern "
        f"{chip.dram_best_gbps:.0f}, peak {chip.dram_peak_gbps:.0f}",
        "modelled",
    )
    if not patient.measure_card:
        return
    question = "And what does it give?"
    rate, reason = card_stream.measured()
    if rate is None:
        yield Question(question, f"not measured: {reason}", "read")
        return
    slow = rate < model.low_gbps
    yield Question(
        question, f"{rate:.0f} GB/s on card 0", "measured", 85 if slow else 0,
        "the card's DRAM streams more slowly than it should", "look at DRAM training, heat and "
        "clock above; reset with tt-smi -r 0 and measure again",
    )  # fmt: skip


def _host_memory_step(patient: Patient) -> Question:
    question = "Is host memory faster than the link?"
    if not patient.context.machine.live:
        return Question(question, "not measured: this is a capture", "read")
    found = measure_memory()
    link = patient.chip.link_to_device_gbps
    answer = (
        f"copy {found.reused_gbps:.1f} GB/s into reused memory, {found.fresh_gbps:.1f} into "
        f"fresh; {patient.chip.name}'s link takes {link:.1f} GB/s"
    )
    if found.reused_gbps < link:
        return Question(
            question, answer, "measured", 60,
            "the host copies more slowly than the link could take",
            "populate all memory channels, stop other work, keep inputs in one reused buffer",
        )  # fmt: skip
    if found.fresh_gbps < link:
        return Question(
            question, answer, "measured", 30,
            "fresh buffers cost page faults: they are slower than the link",
            "reuse input buffers instead of allocating each batch",
        )  # fmt: skip
    return Question(question, answer, "measured")


def _guide_step(patient: Patient) -> Question:
    ranges = {k: v for (board, k), v in GUIDE_GBPS.items() if board == patient.chip.name}
    if not ranges:
        text = "the guide has ranges for e75 and e150 only; use 'temper bench' against 'explain'"
    else:
        text = "; ".join(
            f"{kind} {low:g} to {high:g} GB/s, typically {typical:g}"
            for kind, (low, typical, high) in ranges.items()
        )
        text = f"the guide's claim for {patient.chip.name}: {text} (not verified here)"
    return Question("What throughput is expected?", text, "read")


def high_latency(patient: Patient) -> Iterator[Question]:
    """Questions about calls that take too long."""
    environment = patient.context.machine.facts.environment
    chip = patient.chip
    yield Question(
        "Is it the first call?",
        "the first call compiles, uploads and fills caches; with trace the second records. "
        "Measure from the third on",
        "arithmetic", 50, "compilation and cold caches in the first calls",
        "warm up three times before timing; 'temper bench' does, and reports both",
    )  # fmt: skip
    yield _cache_step(patient)
    if environment.get("TT_RUNTIME_ENABLE_PROGRAM_CACHE") == "0":
        yield Question(
            "Is the program cache on?", "TT_RUNTIME_ENABLE_PROGRAM_CACHE=0", "read", 95,
            "every call builds its programs again", "unset TT_RUNTIME_ENABLE_PROGRAM_CACHE",
        )  # fmt: skip
    slow = [n for n in environment if n.startswith(("TT_METAL_WATCHER", "TT_METAL_DPRINT"))
            or n in ("TT_METAL_SLOW_DISPATCH_MODE", "TT_METAL_DEVICE_PROFILER")]  # fmt: skip
    if slow:
        yield Question(
            "Is a debugging aid switched on?", ", ".join(sorted(slow)), "read", 70,
            "debugging aids slow every launch", f"unset {' '.join(sorted(slow))}",
        )  # fmt: skip
    yield Question(
        "What does one op cost at least?",
        f"{chip.name}: {chip.launch_floor_ns / 1e3:.1f} us a kernel plus "
        f"{chip.traced_gap_ns / 1e3:.2f} us between ops with trace; 10 to 50 us an op without, "
        "which the host pays",
        "modelled", 25, "ops launched one by one from the host",
        "enable_trace=true: the host's part is recorded once",
    )  # fmt: skip
    yield from_check(patient, "pcie", "Is the link in order?", 60, "no card to ask")
    yield from_check(patient, "governor", "Does the CPU run at full clock?", 55, "not published")
    yield from_check(patient, "load", "Is the host busy with other things?", 45)
    if patient.context.machine.live:
        late = measure_wake_us()
        yield Question(
            "How late does the host wake up?", f"{late:.0f} us (median of 200 sleeps)", "measured",
            30 if late > 200 else 0, "a busy host or deep idle states delay every hand-over",
            "stop other work; governor performance; in BIOS limit C-states",
        )  # fmt: skip


def _cache_step(patient: Patient) -> Question:
    facts = patient.context.machine.facts
    place = facts.environment.get("TT_METAL_CACHE") or f"{facts.home}/.cache"
    builds = patient.context.machine.listing(f"{place}/tt-metal-cache")
    question = "Are compiled kernels cached on disk?"
    if builds or not patient.context.has_card:
        text = f"{len(builds)} generation(s)" if builds else "no card: nothing to compile"
        return Question(question, text, "read")
    return Question(
        question, "none: the next process compiles every kernel", "read", 40,
        "a cold kernel cache: seconds to minutes once",
        "run the model once; keep the cache directory between containers (TT_METAL_CACHE)",
    )  # fmt: skip


def memory_errors(patient: Patient) -> Iterator[Question]:
    """Questions about memory that runs out."""
    yield from_check(patient, "hugepages", "Are there 1 GiB hugepages?", 100)
    yield from_check(patient, "hugepage-mount", "Are they mounted where it counts?", 95, "no pages")
    yield from_check(patient, "iommu", "Does the IOMMU translate?", 60, "no card to ask")
    yield from_check(patient, "memory", "Is there enough host memory?", 40)
    yield from _tensor_steps(patient)
    if not patient.context.has_card:
        return
    yield from_check(patient, "leftovers", "Does another process hold memory?", 50, "none seen")


def _tensor_steps(patient: Patient) -> Iterator[Question]:
    """The guide divides by all SRAM; the allocator fills banks page by page, so do we."""
    rows, columns, fmt = patient.tensor
    chip = patient.chip
    plain_mb = rows * columns * TILE_BYTES[fmt] / TILE**2 / 2**20
    tiles = math.ceil(rows / 32) * math.ceil(columns / 32)
    page = TILE_BYTES[fmt]
    usable = chip.sram_usable_bytes
    arch = chip.architecture
    sure = "" if arch.sram_measured else f" (usable SRAM of {arch.title} is an assumption)"
    each = math.ceil(tiles / chip.compute_cores) * page
    answer = (
        f"{rows} x {columns} {fmt} = {plain_mb:.2f} MiB; as {tiles} tiles of {page} B over "
        f"{chip.compute_cores} cores: {each:,} B a core of {usable:,} B usable{sure}"
    ).replace(",", " ")
    fits = each <= usable
    advice = f"keep it in DRAM, split it over {math.ceil(each / usable)} parts, or use bfloat8_b"
    yield Question(
        f"Does the tensor fit in {chip.name}'s SRAM?", answer, "arithmetic", 0 if fits else 80,
        f"{100 * each / usable:.0f}% of a core's SRAM", "" if fits else advice,
    )  # fmt: skip
    bank = math.ceil(tiles / chip.dram_banks) * page
    yield Question(
        "Does it fit in DRAM?",
        f"{bank:,} B in each of {chip.dram_banks} banks of {chip.dram_bank_bytes:,} B".replace(
            ",", " "
        ),
        "arithmetic", 0 if bank <= chip.dram_bank_bytes else 90, "larger than DRAM",
        "shard the table over cards, or keep it on the host",
    )  # fmt: skip


TREES: dict[str, Tree] = {
    "low-throughput": low_throughput,
    "high-latency": high_latency,
    "memory-errors": memory_errors,
}
OTHERWISE = {
    "low-throughput": "the machine looks sound: climb the settings with 'temper explain "
    "model.py:make', then sweep the batch with 'temper bench'",
    "high-latency": "the machine looks sound: 'temper profile' shows gaps between ops, and "
    "enable_trace removes most of them",
    "memory-errors": "nothing here explains it: paste the message into temper doctor --error, or "
    "run 'temper memory model.py:make' for the model's own arithmetic",
}
