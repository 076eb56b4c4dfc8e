"""What capture hands to the passes: the graph, its arguments, and patterns over it."""
