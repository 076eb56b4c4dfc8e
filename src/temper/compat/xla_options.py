"""Compile options by the names that tt-xla gave up, for scripts that still use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temper.compat.missing import note

_CONV_FUSING = "experimental_enable_fusing_conv2d_with_multiply_pattern"
# Older name: the option of today and its value where the old one was switched on.
_OLD: dict[str, tuple[str, Any]] = {
    "dump_inputs": ("export_tensors", True),
    "enable_bfp8_conversion": ("experimental_weight_dtype", "bfp_bf8"),
    "enable_fusing_conv2d_with_multiply_pattern": (_CONV_FUSING, True),
    "enable_memory_layout_analysis": ("optimization_level", 2),
    "enable_optimizer": ("optimization_level", 1),
    "enable_sharding": ("optimization_level", 2),
    "experimental_enable_weight_bfp8_conversion": ("experimental_weight_dtype", "bfp_bf8"),
}
# Options of some tt-xla that decide nothing here: ops choose their own compute configuration.
_NO_EFFECT = (
    "dst_full_sync_en", "enable_l1_interleaved", "enable_prettify", "math_approx_mode",
    "packer_l1_acc",
)  # fmt: skip
_OFF = ("", "0", "false", "no", "none", "off")


def translate(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of today; the note says what an older name was taken for."""
    if not isinstance(options, Mapping):
        return options  # the options' own parser tells
    found: dict[str, Any] = {}
    for name, value in options.items():
        plain = str(name).replace("-", "_")
        if plain in _NO_EFFECT:
            note(f"option {plain}", f"the option {plain} of tt-xla has no effect here")
        elif plain in _OLD:
            today, meant = _OLD[plain]
            if str(value).lower() in _OFF:
                continue
            if today in options:
                taken = f"gives way to {today}"
            else:
                taken = f"is taken as {today}={meant}"
                found[today] = max(meant, found.get(today, meant))
            note(f"option {plain}", f"the option {plain} of older tt-xla {taken}")
        elif plain == "backend" and str(value).startswith("codegen") and value != "codegen_py":
            note("codegen", f"backend={value}: Temper writes Python alone (codegen_py); "
                 "export_path receives the compiled program")  # fmt: skip
        else:
            found[name] = value
    return found
