"""Which kernels are used, and that a missing library is said once."""

from __future__ import annotations

import os
import subprocess
import sys


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_temper_pure_leaves_the_native_library_out_in_silence() -> None:
    result = run("import temper.kernels as k; print(k.native)", TEMPER_PURE="1")
    assert result.stdout.strip() == "None"
    assert result.stderr == ""


def test_a_missing_library_is_said_once_and_the_results_are_the_same() -> None:
    code = (
        "import sys; sys.modules['temper.kernels._native'] = None\n"
        "import numpy as np, temper.formats as f, temper.kernels\n"
        "import temper.formats.packing\n"
        "print(f.quantize(np.float32([1.9999, -1.0]), 'bfp8').tolist())"
    )
    result = run(code, TEMPER_PURE="")
    assert result.stdout.strip() == "[1.984375, -1.0]"
    assert result.stderr.count("native kernels are missing") == 1


def test_kernels_do_not_import_torch() -> None:
    run("import sys, temper.kernels, temper.formats.packing; assert 'torch' not in sys.modules")
