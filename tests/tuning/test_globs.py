"""Override rules: fewest patterns, the same meaning."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from temper.tuning.globs import compress, meaning
from temper.weights.config import match_rules, read_config, weight_slots

NAMES = [
    f"encoder.layer.{i}.{part}.weight"
    for i in range(12)
    for part in ("attention.query", "attention.key", "mlp.up", "mlp.down")
]


def test_one_format_for_all_is_one_rule() -> None:
    assert len(compress(dict.fromkeys(NAMES, "bfp_bf8"))) == 1
    assert compress(dict.fromkeys(NAMES, "bf16")) == {}


def test_first_and_last_layer_exempt_take_a_rule_each_beside_the_base() -> None:
    formats = dict.fromkeys(NAMES, "bfp_bf8")
    for name in NAMES:
        if ".0." in name or ".11." in name:
            formats[name] = "bf16"
        elif "mlp.up" in name:
            formats[name] = "bfp_bf4"
    assert len(compress(formats)) == 4


def test_numbers_share_a_class_of_digits() -> None:
    formats = {n: "bfp_bf4" if n.split(".")[2] in "2367" else "bf16" for n in NAMES}
    assert len(compress(formats)) == 1


def test_names_with_glob_characters_are_matched_literally() -> None:
    formats = {"a[0].weight": "bfp_bf8", "a0.weight": "bf16", "b*.weight": "bfp_bf4"}
    assert meaning(compress(formats), formats) == formats


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["bf16", "bfp_bf8", "bfp_bf4"]), min_size=12, max_size=12))
def test_any_assignment_survives_compression(formats: list[str]) -> None:
    wanted = dict(zip(NAMES[:12], formats, strict=True))
    rules = compress(wanted)
    assert meaning(rules, wanted) == wanted
    assert len(rules) <= sum(f != "bf16" for f in formats) + 1


def test_rules_mean_the_same_to_the_model_itself() -> None:
    from tiny import make

    model, _ = make()
    wanted = {"0.weight": "bfp_bf4", "2.weight": "bf16", "4.weight": "bfp_bf4"}
    rules = read_config(compress(wanted))
    found = {m.slot.name: m.dtype for m in match_rules(weight_slots(model), rules)}
    assert {n: found.get(n, "bf16") for n in wanted} == wanted
