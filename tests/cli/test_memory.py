"""``temper memory`` as people run it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
from temper.cli.memory import command

MODEL = """
import torch

def make(batch=2):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(8, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3),
        torch.nn.Flatten(), torch.nn.Linear(32 * 14 * 14, 64),
    )
    return model.eval().bfloat16(), (torch.randn(batch, 8, 16, 16).bfloat16(),)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return f"{path}:make"


def run(*arguments: str):
    return CliRunner().invoke(command, arguments)


def test_it_draws_sram_and_dram(model):
    result = run(model, "--why")
    assert result.exit_code == 0, result.output
    for word in ("SRAM of one core", "circular buffers", "DRAM", "weights", "modelled", "computed"):
        assert word in result.output


def test_json_says_where_every_value_lies_and_why(model):
    result = run(model, "--json", "--level", "2", "--batch", "4", "-O", "enable_trace=true")
    (document,) = json.loads(result.output)
    assert document["dram"]["trace_region_bytes"] >= document["dram"]["trace_bytes_modelled"]
    assert document["placement"]["values"]
    assert all("where" in value for value in document["values"].values())


def test_level_1_keeps_tensors_out_of_sram(model):
    (document,) = json.loads(run(model, "--json", "--level", "1").output)
    made = {v["name"] for v in document["placement"]["values"]}
    assert all(document["values"][name]["where"] == "DRAM" for name in made)


def test_a_wrong_option_is_a_usage_error(model):
    result = run(model, "-O", "nonsense")
    assert result.exit_code != 0
