"""Helpers that tests of several packages share are imported by name."""

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "profiles"), str(HERE / "program")]

# Tests never touch the user's compile cache, nor do the processes that they start.
_CACHE = tempfile.TemporaryDirectory(prefix="temper-test-cache-")
os.environ["TEMPER_CACHE_DIR"] = _CACHE.name


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):  # type: ignore[no-untyped-def]
    """A test process that has grown too large to be forked is no fault of what is tested."""
    report = (yield).get_result()
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: no memory to fork this large test process")
