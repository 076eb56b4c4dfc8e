"""The virtual chip: memory, program cache, queue, trace replay, host kernels."""
