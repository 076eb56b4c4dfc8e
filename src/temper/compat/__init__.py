"""torch_xla, tt_torch, pybuda and tracy names for scripts written for them."""
