"""What a Python that a script under ``temper run`` starts does first: the stand-ins, then its own.

This folder is on PYTHONPATH only in the environment of such processes (see compat.children).
"""

import os
import sys


def _start() -> None:
    try:
        from temper.compat import children
    except ImportError:  # another Python, without Temper
        return
    children.start()


def _chain() -> None:
    """Give way to the sitecustomize that this process would have had."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
_chain()
