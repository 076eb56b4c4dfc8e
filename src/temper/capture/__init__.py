"""From a torch model to a graph, and the watch that says when the graph no longer holds."""
