"""A board of an architecture that nobody has measured: two records, and everything works."""

from __future__ import annotations

import subprocess
import sys

# Blackhole under another name, recorded before anything reads the tables.
_SCRIPT = """
from dataclasses import replace
from temper.chips import architecture, data

known = architecture.ARCHITECTURES["blackhole"]
made = replace(known, name="quasar", title="Quasar", pci_device=0xB150, stands_in="blackhole")
architecture.ARCHITECTURES[made.name] = made
board = replace(data.CHIPS["p150"], name="x900", arch=made.name, pci_device=0xB150)
data.CHIPS[board.name] = board

import torch
import temper
from temper.cost import estimate_op
from temper.program.op import Op
from temper.program.tensor import TensorSpec

spec = TensorSpec((1024, 1024))
for op in (Op("Matmul", ("a", "b"), ("y",), {"fidelity": "HiFi2"}), Op("Add", ("a", "b"), ("y",))):
    known = estimate_op(op, [spec, spec], [spec], data.CHIPS["p150"])
    found = estimate_op(op, [spec, spec], [spec], board)
    assert found.kernel_ns == known.kernel_ns, op.kind
    assert found.high_ns / found.low_ns > known.high_ns / known.low_ns, op.kind

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
given = torch.randn(32, 64)
compiled = temper.compile(model, chip="x900", optimization_level=2)
torch.testing.assert_close(compiled(given), model(given), atol=0.05, rtol=0.05)
print("compiled")
"""


def test_it_takes_the_times_of_the_one_that_stands_in_with_a_wider_band_and_runs_a_model() -> None:
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "compiled\n", done.stderr[-2000:]
