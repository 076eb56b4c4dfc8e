"""Writers of the run folder's files."""

from temper.profiler.writers.ops_csv import write_ops_csv

__all__ = ["write_ops_csv"]
