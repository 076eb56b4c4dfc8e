"""The list of passes, what switches each on, and the report of what each did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from temper.options import Options
from temper.passes.attention import simplify_attention
from temper.passes.bags import open_bags
from temper.passes.batch_norm import fold_batch_norm
from temper.passes.canonical import canonicalise
from temper.passes.constants import fold_constants
from temper.passes.fuse_activations import fuse_activations
from temper.passes.fuse_attention import fuse_attention, fuse_rotary
from temper.passes.fuse_decode import fuse_decode
from temper.passes.fuse_linear import fuse_linear, fuse_transposes
from temper.passes.fuse_norms import fuse_norms, fuse_softmax
from temper.passes.heads import fuse_heads
from temper.passes.join_columns import join_columns
from temper.passes.join_lookups import join_lookups
from temper.passes.pad_windows import pad_windows
from temper.passes.pairwise import fuse_pairwise
from temper.passes.program_chains import fuse_chains
from temper.passes.program_dead import remove_dead
from temper.passes.program_epilogues import fuse_epilogues
from temper.passes.program_joins import join_rows
from temper.passes.program_rows import flatten_rows
from temper.passes.program_views import settle_views
from temper.passes.shuffle_channels import shuffle_channels
from temper.passes.views import cancel_views
from temper.passes.weight_formats import assign_weight_formats

T = TypeVar("T")


@dataclass(frozen=True)
class Pass:
    """A named rewrite. ``option`` switches it; an empty one means: needed for correctness."""

    name: str
    run: Callable[[Any, Options], int]
    option: str
    meaning: str


@dataclass(frozen=True)
class PassReport:
    """What one pass did: how often it hit, and how long it took."""

    name: str
    hits: int
    seconds: float
    enabled: bool
    meaning: str


# In order. Graph passes change the captured graph in place and return the number of hits.
GRAPH_PASSES: tuple[Pass, ...] = (
    Pass("canonicalise", canonicalise, "", "identities and duplicates removed"),
    Pass("fold-constants", fold_constants, "", "what depends on no input or weight computed now"),
    Pass("open-bags", open_bags, "", "embedding bags of equal length to lookups and sums"),
    Pass("fold-batch-norm", fold_batch_norm,
         "experimental_enable_fusing_conv2d_with_multiply_pattern",
         "batch norm folded into the convolution before it"),
    Pass("fuse-activations", fuse_activations, "enable_fusing",
         "gelu, silu, mish, hard sigmoid and hard swish written out by hand"),
    Pass("fuse-softmax", fuse_softmax, "enable_fusing", "softmax written out by hand"),
    Pass("fuse-norms", fuse_norms, "enable_fusing", "layer and rms norm written out by hand"),
    Pass("fuse-linear", fuse_linear, "enable_fusing", "matmul and bias to linear"),
    Pass("shuffle-channels", shuffle_channels, "enable_layout_optimization",
         "channels of a pixel shuffle put together in the convolution's weight"),
    Pass("fuse-pairwise", fuse_pairwise, "enable_fusing",
         "dot products of embedded features: one lookup, the choice of pairs in the weight"),
    Pass("join-lookups", join_lookups, "enable_fusing",
         "rows of several tables side by side: one lookup for all"),
    Pass("fuse-rotary", fuse_rotary, "enable_fusing", "rotary position embedding"),
    Pass("join-views", cancel_views, "enable_layout_optimization",
         "the same views as below, so that what stands between them is seen side by side"),
    Pass("fuse-attention", fuse_attention, "enable_fusing",
         "scaled dot-product attention written out by hand"),
    Pass("fuse-joined-rotary", fuse_rotary, "enable_fusing",
         "the same, where other views stood in between"),
    Pass("assign-weight-formats", assign_weight_formats, "",
         "weight formats and overrides put on matmul and linear weights"),
    Pass("simplify-attention", simplify_attention, "enable_fusing",
         "masks that hide nothing or the future, scales, repeated key heads"),
    Pass("cancel-views", cancel_views, "enable_layout_optimization",
         "chains of reshapes, permutes and slices joined, moved past row-wise ops and cancelled"),
    Pass("join-columns", join_columns, "enable_layout_optimization",
         "rows of one value side by side, such as merged patches: one lookup for all"),
    Pass("fuse-decode", fuse_decode, "enable_fusing",
         "heads of a decode step: rotations behind their turns, one split and one join"),
    Pass("fuse-heads", fuse_heads, "enable_fusing",
         "query, key and value to one matmul and the heads op, in any spelling"),
    Pass("pad-windows", pad_windows, "enable_layout_optimization",
         "attention windows that are no whole tiles: padded between the picks of their rows"),
    Pass("fuse-transposes", fuse_transposes, "experimental_enable_permute_matmul_fusion",
         "a transpose before a matmul to its flag"),
)  # fmt: skip

# Program passes take a mutable draft of the program's ops.
PROGRAM_PASSES: tuple[Pass, ...] = (
    Pass("flatten-rows", flatten_rows, "enable_layout_optimization",
         "norms, linear layers and elementwise ops on flat rows where batches are no whole tiles"),
    Pass("join-rows", join_rows, "enable_layout_optimization",
         "rows that end inside a tile are joined as rows"),
    Pass("settle-views", settle_views, "enable_layout_optimization",
         "what is left of reshapes, permutes, slices and layout changes, done the cheapest way"),
    Pass("fuse-epilogues", fuse_epilogues, "enable_fusing",
         "activation into the matmul or convolution before it, residual into the norm after it"),
    Pass("fuse-chains", fuse_chains, "enable_fusing",
         "elementwise chains: unary into unary, unary around binary"),
    Pass("remove-dead", remove_dead, "", "ops whose result nobody reads"),
)  # fmt: skip

# What tt_enable_torch_fx_fusion_pass switches: fusion on the graph, not on the program.
_FX_FUSION = frozenset(one.name for one in GRAPH_PASSES if one.option == "enable_fusing")


def run_passes(passes: Sequence[Pass], subject: Any, options: Options) -> list[PassReport]:
    """Run those passes that are switched on."""
    reports = []
    for one in passes:
        enabled = not one.option or bool(options[one.option])
        if one.name in _FX_FUSION and not options["tt_enable_torch_fx_fusion_pass"]:
            enabled = False
        started = time.perf_counter()
        hits = one.run(subject, options) if enabled else 0
        reports.append(
            PassReport(one.name, hits, time.perf_counter() - started, enabled, one.meaning)
        )
    return reports
