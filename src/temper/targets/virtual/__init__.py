"""The virtual chip: executor, host kernels and their slow reference, program cache."""
