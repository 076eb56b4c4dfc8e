"""The boards: figures against the vendor's table and the derived peaks."""

from __future__ import annotations

import pytest

from temper import chips
from temper.errors import UsageError

# Vendor's table: cores, clock, DRAM GB, GB/s, power.
VENDOR = {
    "e75": (96, 1000, 8, 102, 75), "e150": (120, 1200, 8, 118, 200),
    "n150": (72, 1000, 12, 288, 160), "n300": (64, 1000, 12, 288, 300),
    "p100": (120, 1350, 28, 448, 300), "p150": (120, 1350, 32, 512, 300),
}  # fmt: skip
# Peak TFLOPS on the compute grid, by hand: FLOP/cycle x cores x clock.
LOFI_PEAK = {"e75": 180.2, "e150": 265.4, "n150": 262.1, "p100": 608.3, "p150": 608.3}


@pytest.mark.parametrize("name", VENDOR)
def test_figures_are_the_vendors(name: str) -> None:
    chip = chips.get(name)
    cores, clock, dram, bandwidth, power = VENDOR[name]
    assert (chip.cores, chip.clock_mhz, chip.board_power_w) == (cores, clock, power)
    assert chip.dram_total_bytes == dram << 30
    assert chip.dram_peak_gbps == pytest.approx(bandwidth, abs=1)


@pytest.mark.parametrize(("name", "peak"), LOFI_PEAK.items())
def test_peaks_follow_from_cores_and_clock(name: str, peak: float) -> None:
    chip = chips.get(name)
    assert chip.peak_tflops("LoFi") == pytest.approx(peak, abs=0.1)
    assert chip.peak_tflops("HiFi4") == pytest.approx(peak / 4, abs=0.1)


@pytest.mark.parametrize("chip", chips.CHIPS.values(), ids=lambda c: c.name)
def test_every_figure_has_a_source(chip: chips.Chip) -> None:
    plain = {"name", "title", "arch", "datasheet_tflops", "datasheet_sram_mb", "notes", "evidence"}
    missing = set(chip.__dict__) - plain - set(chip.evidence)
    assert not missing


@pytest.mark.parametrize("chip", chips.CHIPS.values(), ids=lambda c: c.name)
def test_bandwidths_are_ordered_and_memory_adds_up(chip: chips.Chip) -> None:
    assert chip.dram_streaming_gbps < chip.dram_best_gbps < chip.dram_peak_gbps
    assert chip.dram_banks * chip.dram_bank_bytes <= chip.dram_total_bytes
    assert chip.compute_cores <= chip.cores


@pytest.mark.parametrize(
    ("alias", "name"),
    [("P150a", "p150"), ("wormhole_b0", "n150"), ("n300d", "n300"), ("grayskull", "e75")],
)
def test_names_of_the_field_are_understood(alias: str, name: str) -> None:
    assert chips.get(alias).name == name


def test_an_unknown_board_is_an_error_with_the_list() -> None:
    with pytest.raises(UsageError, match="e75 e150 n150 n300 p100 p150"):
        chips.get("n151")
