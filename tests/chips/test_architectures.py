"""An architecture is one record: nothing else in the source asks for one by its name."""

from __future__ import annotations

import re
from pathlib import Path

from temper.chips import ARCHITECTURES, CHIPS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "temper"
# Names that other projects gave, and columns of measured vector-unit cycles.
ALLOWED = {"compat/pybuda_formats.py", "cost/sfpu.py"}


def test_every_board_has_its_architectures_record() -> None:
    assert {chip.arch for chip in CHIPS.values()} == set(ARCHITECTURES)
    for chip in CHIPS.values():
        assert chip.pci_device == chip.architecture.pci_device
        assert chip.pcie_gen == chip.architecture.pcie_gen
    for arch in ARCHITECTURES.values():
        assert CHIPS[arch.row_board].arch == arch.name
        assert not arch.stands_in or arch.stands_in in ARCHITECTURES


def test_no_code_compares_an_architectures_name_or_keys_a_table_by_it() -> None:
    names = "|".join(ARCHITECTURES)
    asks = re.compile(rf'[!=]= "({names})"|"({names})":|"({names})" (not )?in ')
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE).as_posix()
        if inside.startswith("chips/") or inside in ALLOWED:
            continue
        found += [
            f"{inside}:{number}"
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
            if asks.search(line)
        ]
    assert not found
