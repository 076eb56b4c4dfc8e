"""Helpers that tests of several packages share are imported by name."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "profiles"), str(HERE / "program")]
