"""Small parts of tt-torch and tt-xla that their test tools import, and those that stay refused."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any, NoReturn

from temper.compat.missing import note
from temper.compat.tt_torch_profile import run_profiled
from temper.errors import UsageError

# Where tt-torch's conftest keeps the properties of a test that may crash.
crashsafe_suffix = "_crashsafe.xml"


def refused(name: str, why: str, *ways: str) -> Callable[..., NoReturn]:
    """A function of that name that says why it cannot work here."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{name} is not in Temper: {why}", try_=list(ways) or None)

    refuse.__name__ = name
    return refuse


_SPMD = "it spreads a model over several chips, and Temper models a single one"
setup_xla_spmd_environment = refused("setup_xla_spmd_environment", _SPMD)
create_device_mesh = refused("create_device_mesh", _SPMD)
run_selected_fusion_passes = refused(
    "run_selected_fusion_passes", "it is a part of tt-xla's compiler that its backend chooses from",
    "temper passes MODEL shows ours",
)  # fmt: skip


_BRIDGE = "it works on the graphs of XLA's tracer, which Temper does not have"
aot_backend = refused("aot_backend", _BRIDGE, 'torch.compile(model, backend="tt")')
fw_compiler = refused("fw_compiler", _BRIDGE, 'torch.compile(model, backend="tt")')
bw_compiler = refused("bw_compiler", _BRIDGE, 'torch.compile(model, backend="tt")')
extract_compiled_graph = refused("extract_compiled_graph", _BRIDGE)
SparseMLP = refused("SparseMLP", _SPMD, "the model's own experts, which run on one chip")
A2aSparseMLP = refused("A2aSparseMLP", _SPMD, "the model's own experts, which run on one chip")
# tt-xla's mode that rewrites torch calls for its compiler; Temper's passes do that on graphs.
torch_function_override = contextlib.nullcontext()


def mark_sharding(tensor: Any, shard_spec: Any) -> None:
    """Accepted: on one chip every tensor is whole."""


def malloc_trim() -> bool:
    """Give free memory back to the system; whether there was any."""
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError):  # not glibc
        return False


def enable_sparse_mlp(model: Any, *_: Any, **__: Any) -> Any:
    """The model as it is: the sparse form computes the same numbers over several chips."""
    note("enable_sparse_mlp", "enable_sparse_mlp leaves the model as it is on a single chip")
    return model


class GraphInputMatcher:
    """torch_xla's matcher of graph inputs; no graph of ours holds one."""


def profile(
    test_command: str, output_filename: str = "device_ops_perf_trace.csv", port: int = 8086
) -> None:
    """Run a command under the profiler; the report is in ``results/perf``."""

    run_profiled(test_command, output_filename, port)
