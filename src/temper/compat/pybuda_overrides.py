"""PyBuda's functions for single ops: mixed precision that has a meaning here, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from temper.compat.missing import note
from temper.compat.pybuda_config import by_hand, global_compiler_config
from temper.compat.pybuda_formats import weight

_NAMES = (
    "add_cpu_fallback_ops", "add_schedule_constraint", "insert_buffering_nop",
    "insert_fracture_group", "insert_nop", "internal_override_output_buffer_multiplier",
    "override_dram_parameters", "override_dram_queue_placement", "override_fracture_factor",
    "override_input_buffer_multiplier", "override_multi_op_fracture_factor",
    "override_op_placement", "override_op_size", "override_t_stream_dir",
    "override_t_stream_shape", "override_u_kt", "set_auto_transposing_placement",
    "set_chip_break", "set_epoch_break", "set_num_repeated_patterns",
    "_internal_insert_fj_buffering_nop",
)  # fmt: skip


def _accepted(name: str) -> Callable[..., None]:
    def order(*_: Any, **__: Any) -> None:
        by_hand(name)

    order.__name__ = name
    return order


OVERRIDES: dict[str, Callable[..., None]] = {name: _accepted(name) for name in _NAMES}


def configure_mixed_precision(
    *, op_type: str | None = None, name_regex: str | None = None, math_fidelity: Any = None,
    input_df: Any = None, **others: Any,
) -> None:  # fmt: skip
    """Orders for all matmuls are followed: the weights' format, and a fidelity for every op."""
    config = global_compiler_config()
    matmuls = op_type == "matmul" or "matmul" in (name_regex or "")
    second = input_df.get(1) if isinstance(input_df, Mapping) else input_df
    form = second[0] if isinstance(second, (list, tuple)) else second
    followed = False
    if matmuls and form is not None and weight(form):
        config.set_weight_format(form)
        followed = True
    if math_fidelity is not None and (
        matmuls or (op_type, name_regex) in ((None, None), (None, ".*"))
    ):
        config.default_math_fidelity = math_fidelity
        followed = True
    if not followed:
        what = op_type or name_regex or "the graph"
        note(
            f"mixed precision {what}",
            f"configure_mixed_precision for {what} has no effect: Temper follows it for the "
            "weights and the fidelity of all matmuls",
        )


OVERRIDES["configure_mixed_precision"] = configure_mixed_precision
