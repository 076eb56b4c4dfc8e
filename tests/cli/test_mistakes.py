"""Mistakes of users and their models: where they are, and the nearest right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from temper.cli import main

MODEL = """import torch

class Broken(torch.nn.Module):
    def forward(self, x):
        return x.reshape(3, 5)

def make(batch=1):
    return Broken(), (torch.randn(batch, 8),)

def raising(batch=1):
    raise RuntimeError("no weights")
"""


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(args))
    assert stopped.value.code in (0, 1, 2)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out + err


@pytest.mark.parametrize(("name", "line"), [("make", 5), ("raising", 11)])
def test_a_models_own_failure_names_file_and_line(
    name: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    text = said(capsys, "passes", f"{path}:{name}")
    assert f"model.py:{line}, in" in text
    assert "--debug" in text


def test_missing_files_and_chips_name_the_nearest_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    assert "try     " + str(tmp_path / "model.py") in said(
        capsys, "passes", str(tmp_path / "modle.py") + ":make"
    )
    text = said(capsys, "chip", "n250")
    near = text.split("try")[1].split()
    allowed = text.split("allowed")[1].splitlines()[0].split()
    assert set(" ".join(near).replace(", or", "").split()) <= set(allowed)


def test_a_bad_override_file_says_the_form_that_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    bad = tmp_path / "bad.json"
    bad.write_text("{nonsense")
    text = said(capsys, "weights", "explain", f"{tmp_path / 'model.py'}:make", str(bad))
    assert '{"default": "bfp_bf8"' in text


def test_a_table_larger_than_dram_is_not_sent_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "fit", "--table", "1000000000x4096")
    assert "nor the 12.9 GB of DRAM" in text
    assert "2,304.0 GB" in text  # 4.096e12 values at 576 bytes for 1,024
    held = said(capsys, "fit", "--table", "10000000x128")
    assert "keep it in the 12.9 GB of DRAM" in held
