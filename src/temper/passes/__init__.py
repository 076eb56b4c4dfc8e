"""Rewrites of the graph and of the program; each level is a list of named passes."""

from temper.passes.manager import GRAPH_PASSES, PROGRAM_PASSES, Pass, PassReport, run_passes

__all__ = ["GRAPH_PASSES", "PROGRAM_PASSES", "Pass", "PassReport", "run_passes"]
