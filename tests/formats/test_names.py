"""Every spelling of the field has one canonical name."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from temper.errors import UsageError
from temper.formats import TILE_BYTES, canonical_fidelity, canonical_format, tile_bytes


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *(
            (s, "bfloat8_b")
            for s in ("bfp_bf8", "bfloat8_b", "BFLOAT8_B", "Bfp8_b", "bfp8", "BFP8")
        ),
        *((s, "bfloat4_b") for s in ("bfp_bf4", "ttnn.bfloat4_b", "DataType.BFLOAT4_B", "bfp4")),
        *((s, "bfloat2_b") for s in ("bfp2", "Bfp2_b")),
        *((s, "bfloat16") for s in ("bf16", "bfloat16", "Float16_b", torch.bfloat16)),
        *((s, "float32") for s in ("fp32", "float32", " Float32 ", torch.float32)),
        *((s, s) for s in ("uint32", "int32", "uint16", "uint8")),
    ],
)
def test_formats_are_understood(spelling: object, name: str) -> None:
    assert canonical_format(spelling) == name


@pytest.mark.parametrize("spelling", ["hifi2", "HiFi2", "HIFI2", "MathFidelity.HiFi2", "hi-fi2"])
def test_fidelities_are_understood(spelling: str) -> None:
    assert canonical_fidelity(spelling) == "HiFi2"


@pytest.mark.parametrize(("wrong", "near"), [("bfp_8", "bfloat8_b"), ("bfloat61", "bfloat16")])
def test_a_wrong_format_names_the_nearest(wrong: str, near: str) -> None:
    try:
        found = canonical_format(wrong)
    except UsageError as error:
        assert near in error.details["try"]  # noqa: PT017
    else:
        assert found == near


def test_a_wrong_fidelity_names_what_is_allowed() -> None:
    with pytest.raises(UsageError, match="LoFi HiFi2 HiFi3 HiFi4"):
        canonical_fidelity("hifi5")


def test_names_and_sizes_need_neither_numpy_nor_torch() -> None:
    code = "import sys, temper.formats; assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tiles_have_the_sizes_of_the_hardware() -> None:
    assert TILE_BYTES["bfloat8_b"] == 1088
    assert TILE_BYTES["bfloat4_b"] == 576
    assert TILE_BYTES["bfloat2_b"] == 320
    tiny = {(16, 32): (544, 288), (16, 16): (272, 144), (4, 32): (144, 80), (1, 32): (48, 32)}
    for tile, (bfp8, bfp4) in tiny.items():
        assert (tile_bytes("bfp8", tile), tile_bytes("bfp4", tile)) == (bfp8, bfp4)
    with pytest.raises(UsageError, match="no tile has the shape"):
        tile_bytes("bfp8", (3, 32))
