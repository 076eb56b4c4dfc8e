"""Helpers that tests of several packages share are imported by name."""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "profiles"), str(HERE / "program")]

# Tests never touch the user's compile cache, nor do the processes that they start.
_CACHE = tempfile.TemporaryDirectory(prefix="temper-test-cache-")
os.environ["TEMPER_CACHE_DIR"] = _CACHE.name
