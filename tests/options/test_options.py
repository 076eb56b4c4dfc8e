"""Compile options: parsing, precedence, provenance and mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import temper
from temper.errors import UsageError
from temper.options import (
    OPTIONS,
    clear_custom_compile_options,
    resolve,
    set_custom_compile_options,
)

# tt-xla's names (compile_options.h), with the dashes that it mixes in.
TT_XLA = [
    "optimization_level", "experimental_weight_dtype", "experimental-kv-cache-dtype",
    "enable_activation_dtype_lowering", "math_fidelity", "fp32_dest_acc_en",
    "experimental_enable_fusing_conv2d_with_multiply_pattern", "backend", "enable_trace",
    "export_path", "export_model_name", "export_tensors", "enable_const_eval",
    "enable_const_eval_on_cpu", "enable_const_eval_inputs_to_system_memory",
    "experimental_enable_permute_matmul_fusion",
    "experimental-enable-dram-space-saving-optimization", "enable_create_d2m_subgraphs",
    "codegen_try_recover_structure", "codegen_split_files", "ttnn_perf_metrics_enabled",
    "ttnn_perf_metrics_output_file", "dry_run", "target_module", "tt_enable_torch_fx_fusion_pass",
    "tt_enable_composite_ops", "tt_experimental_compile", "tt_legacy_compile",
    "tt_lazy_execution", "tt_use_aot_autograd",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for option in OPTIONS:
        if option.env:
            monkeypatch.delenv(option.env, raising=False)
    clear_custom_compile_options()
    yield
    clear_custom_compile_options()


@pytest.mark.parametrize("name", TT_XLA)
def test_every_name_of_tt_xla_is_known_in_both_spellings(name: str) -> None:
    options = resolve()
    assert options[name] == options[name.replace("-", "_")] == options[name.replace("_", "-")]


@pytest.mark.parametrize("text", ["true", "1", "YES", "On", True, 1])
def test_true_is_written_as_tt_xla_accepts_it(text: object) -> None:
    assert resolve({"enable_trace": text})["enable_trace"] is True


@pytest.mark.parametrize("text", ["false", "0", "no", "OFF", False, 0])
def test_false_is_written_as_tt_xla_accepts_it(text: object) -> None:
    assert resolve({"enable_trace": text})["enable_trace"] is False


@pytest.mark.parametrize(("name", "value", "word"), [
    ("enable_trace", "maybe", "true/1/yes/on"),
    ("optimization_level", 3, "from 0 to 2"),
    ("optimization_level", "fast", "whole number"),
    ("math_fidelity", "hifi5", "HiFi2"),
    ("experimental_weight_dtype", "int8", "bfloat8_b"),
    ("trace_region_size", -1, "at least 0"),
])  # fmt: skip
def test_a_bad_value_says_what_is_allowed(name: str, value: object, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        resolve({name: value})


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="optimization_level"):
        resolve({"optimisation_level": 1})


def test_the_same_option_twice_is_an_error() -> None:
    with pytest.raises(UsageError, match="twice"):
        resolve({"level": 1, "optimization_level": 2})


@pytest.mark.parametrize("spelling", ["bfp_bf8", "bfloat8_b", "BFLOAT8_B", "Bfp8_b", "bfp8"])
def test_every_spelling_of_a_format_is_stored_as_one(spelling: str) -> None:
    assert resolve({"experimental_weight_dtype": spelling})["weight_dtype"] == "bfloat8_b"


@pytest.mark.parametrize("spelling", ["hifi2", "HiFi2", "HIFI2"])
def test_every_spelling_of_a_fidelity_is_stored_as_one(spelling: str) -> None:
    assert resolve({"math_fidelity": spelling})["math_fidelity"] == "HiFi2"


def test_precedence_is_call_process_environment_level_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resolve().origin("trace_region_size") == "default"
    monkeypatch.setenv("TT_RUNTIME_TRACE_REGION_SIZE", "10000000")
    options = resolve()
    assert options["trace_region_size"] == 10_000_000
    assert options.origin("trace_region_size") == "environment TT_RUNTIME_TRACE_REGION_SIZE"
    set_custom_compile_options({"trace_region_size": "20000000"})
    assert resolve().origin("trace_region_size") == "set_custom_compile_options"
    options = resolve({"trace-region-size": 5})
    assert (options["trace_region_size"], options.origin("trace_region_size")) == (5, "options")


def test_a_level_sets_defaults_and_an_explicit_value_wins() -> None:
    assert resolve()["math_fidelity"] == "HiFi4"
    level = resolve({"optimization_level": "2"})
    assert level["enable_sram"] is True
    assert level.origin("enable_sram") == "level 2"
    assert resolve({"level": 2, "enable_sram": "off"})["enable_sram"] is False


def test_replace_keeps_what_was_explicit_and_lets_level_defaults_follow() -> None:
    options = resolve({"level": 2, "enable_fusing": False}).replace(optimization_level=0)
    assert options["enable_sram"] is False
    assert options["enable_fusing"] is False


def test_code_generation_is_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match="export_path"):
        resolve({"backend": "codegen_py"})


def test_options_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(UsageError, match="mapping"):
        resolve([("level", 1)])  # type: ignore[arg-type]


def test_an_option_is_read_somewhere_or_says_why_it_has_no_effect() -> None:
    """Found by looking for the quoted name in every room but those that only translate names."""
    source = Path(temper.__file__).parent
    rooms = [p for p in source.rglob("*.py") if p.relative_to(source).parts[0] != "compat"]
    table = source / "options" / "table.py"
    text = "".join(path.read_text(encoding="utf-8") for path in rooms if path != table)
    named = set(re.findall(r"""["']([a-z_0-9]+)["']""", text))
    unread = {option.name for option in OPTIONS} - named
    assert unread == {option.name for option in OPTIONS if option.without_effect}
