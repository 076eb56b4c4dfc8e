"""Ways to run each op, and the choice among them by modelled time against the real allocator."""
