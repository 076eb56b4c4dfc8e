"""The device "tt" in eager torch."""

# First of all: torch's autoload imports modules of this package while torch is being imported, and
# must not meet one of them half done (autoload.py).
import torch  # noqa: F401
