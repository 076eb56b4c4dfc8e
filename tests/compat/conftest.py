"""Stand-ins for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from temper import options
from temper.compat import install, missing
from temper.compat.pybuda_run import reset


@pytest.fixture
def stand_ins() -> Iterator[None]:
    install.install()
    missing.forget_notes()
    yield
    install.uninstall()
    options.clear_custom_compile_options()
    reset()
