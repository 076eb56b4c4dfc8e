"""Rewrites of the graph, one file a pass; each level is a list of passes."""
