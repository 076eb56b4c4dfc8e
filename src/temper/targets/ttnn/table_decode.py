"""Decoding with caches: writes in place, attention over a cache, heads by user."""

from __future__ import annotations

from typing import Any

from temper.targets.ttnn.expressions import Make
from temper.targets.ttnn.table import OpRow, call, compute_config


@call("FillCache")
def fill_cache(row: OpRow) -> Make:
    """``ttnn.fill_cache`` and its arguments."""
    return Make("ttnn.fill_cache", (row.ref(0), row.ref(1), row.attr("batch_index")))


@call("UpdateCache")
def update_cache(row: OpRow) -> Make:
    """The update of one row a user."""
    return Make("ttnn.experimental.paged_update_cache", (row.ref(0), row.ref(1)),
                {"update_idxs_tensor": row.ref(2)})  # fmt: skip


@call("SdpaDecode")
def attention_decode(row: OpRow) -> Make:
    """Decode attention and its arguments."""
    kwargs: dict[str, Any] = {
        "cur_pos_tensor": row.ref(3),
        "memory_config": row.memory,
        "compute_kernel_config": compute_config(row),
    }
    if row.attr("scale") is not None:
        kwargs["scale"] = float(row.attr("scale"))
    if row.attr("window"):
        kwargs["sliding_window_size"] = int(row.attr("window"))
    return Make(
        "ttnn.transformer.scaled_dot_product_attention_decode",
        (row.ref(0), row.ref(1), row.ref(2)),
        kwargs,
    )


@call("CreateQkvHeadsDecode")
def create_heads_decode(row: OpRow) -> Make:
    """Heads of a decode step."""
    rows = Make("ttnn.unsqueeze_to_4D", (row.ref(0),))
    return Make("ttnn.experimental.nlp_create_qkv_heads_decode", (rows,), {
        "num_heads": row.attr("heads"), "num_kv_heads": row.attr("kv_heads"),
        "memory_config": row.memory,
    })  # fmt: skip


@call("ConcatHeadsDecode")
def concat_heads_decode(row: OpRow) -> Make:
    """Heads of a decode step back into rows."""
    heads = row.inputs[0].shape[-2]
    made = Make("ttnn.experimental.nlp_concat_heads_decode", (row.ref(0),), {"num_heads": heads})
    return Make("ttnn.squeeze", (made, 0))
