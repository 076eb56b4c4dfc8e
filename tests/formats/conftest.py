"""Runs format tests on every path: native AVX2, native portable, pure Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from temper import kernels
from temper.formats import fidelity, packing, quantization, tiles
from temper.kernels import pure

_FUNCTIONS = [name for name in kernels.__all__ if name.endswith("_ptr")]
PATHS = ["avx2", "portable", "pure"]


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kernels that the test runs on."""
    name: str = request.param
    if name == "pure":
        for module in (fidelity, packing, quantization, tiles):
            for function in _FUNCTIONS:
                if hasattr(module, function):
                    monkeypatch.setattr(module, function, getattr(pure, function))
        yield name
        return
    if kernels.native is None:
        pytest.skip("the native library is not built")
    kernels.native.force_portable(name == "portable")
    if name == "avx2" and not kernels.native.has_avx2():
        pytest.skip("this machine has no AVX2")
    yield name
    kernels.native.force_portable(False)
