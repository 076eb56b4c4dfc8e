"""The version, readable without importing anything else."""

__version__ = "0.2.0"
