"""torch_xla, tt_torch, pybuda and tracy names for scripts written for them.

Nothing here changes a plain import: ``temper run`` installs the stand-ins in its own process.
"""
