"""Records of attention, the heads around it, and rotary embeddings."""

from __future__ import annotations

from typing import Any

from temper.chips import Chip
from temper.program.attention_config import buffer_bytes
from temper.program.compute_config import compute_attrs
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import COMPUTE, entry_bytes, matrix, width_tiles


def _sdpa_products(op: Op, inputs: Specs, outputs: Specs, padded: bool) -> float:
    if len(inputs) < 2:
        return 0.0
    batch, rows, width = matrix(inputs[0], padded)
    keys = matrix(inputs[1], padded)[1]
    return float(2 * batch * rows * keys * width)


def _sdpa_compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    return compute_attrs("HiFi2", approx=True)


def _split(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two rows of a head's tiles, at least two tiles wide."""
    return 2 * max(2, *(width_tiles(spec) for spec in outputs)) * entry_bytes(outputs[0])


def _join(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two rows of all heads."""
    return 2 * width_tiles(outputs[0]) * entry_bytes(outputs[0])


def _rope(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Rows of x, its rotated half, cos, sin and the sum; a scalar and three products."""
    width, tile = width_tiles(inputs[0]), entry_bytes(outputs[0])
    rows = 2 * width * sum(entry_bytes(spec) for spec in inputs)
    rotated = 2 * width if width > 1 else 0
    return rows + (2 * width + rotated + 4) * tile


register(
    # config: None for blocks of one tile, or ttnn's SDPAProgramConfig as a mapping: "name", grid
    # [x, y], q_chunk_size, k_chunk_size. Blocks change the time, not the values.
    OpKind(
        "Sdpa",
        "sdpa",
        "SDPAOperation",
        ("q", "k", "v", "mask?"),
        {"scale": None, "causal": False, "config": None, **COMPUTE},
        matrix=True,
        buffers=buffer_bytes,
        products=_sdpa_products,
        compute=_sdpa_compute,
        vendor_model=True,
    ),
    # (B, S, 3*H) -> q, k, v (B, h, S, d)
    OpKind(
        "CreateQkvHeads",
        "heads",
        "NlpCreateHeadsDeviceOperation",
        ("x",),
        {"heads": 1, "kv_heads": 1, "transpose_k": False},
        results=(3, 3),
        buffers=_split,
    ),
    # (B, h, S, d) -> (B, S, h*d)
    OpKind("ConcatHeads", "heads", "NLPConcatHeadsDeviceOperation", ("x",), buffers=_join),
    # x * cos + rotate_half(x) * sin, rounded once.
    OpKind("RotaryEmbedding", "rope", "RotaryEmbedding", ("x", "cos", "sin"), buffers=_rope),
)
