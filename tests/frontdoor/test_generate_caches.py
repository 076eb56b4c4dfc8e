"""Caches that grow, change their users, or are shared by texts of many lengths."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import DynamicCache

import temper
from temper.frontdoor.language.programs import StepKind, build_step
from temper.frontdoor.language.step import layer_shapes
from temper.options import resolve

from .language_models import model, prompt

_NEXT = torch.tensor([[5]])


def _logits(net: Any, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    with torch.no_grad():
        made: torch.Tensor = net(ids, past_key_values=cache, use_cache=True).logits[:, -1]
    return made


def test_a_text_that_has_grown_is_not_mixed_up_with_a_later_short_one() -> None:
    compiled = temper.compile(model("llama"))
    ids = prompt(1, 60)["input_ids"]
    alone, long_, short = DynamicCache(), DynamicCache(), DynamicCache()
    for cache in (alone, long_):
        for part in (ids, *[_NEXT] * 72):  # beyond the first 128 slots
            _logits(compiled, part, cache)
    _logits(compiled, ids, short)
    before = long_.layers[1].keys
    assert before.shape[2] == 132
    torch.testing.assert_close(before, alone.layers[1].keys, rtol=0, atol=0)
    long_.batch_repeat_interleave(2)  # read from wherever it lies now
    twice = _logits(compiled, _NEXT.repeat(2, 1), long_)
    torch.testing.assert_close(twice[1:], _logits(compiled, _NEXT, alone), rtol=0.02, atol=0.05)


def test_users_that_come_and_go_keep_their_own_texts() -> None:
    net = model("llama")
    compiled = temper.compile(net)
    made = []
    for one in (compiled, net):
        cache = DynamicCache()
        _logits(one, prompt(1)["input_ids"], cache)
        cache.batch_repeat_interleave(3)
        _logits(one, torch.tensor([[3], [4], [250]]), cache)
        cache.batch_select_indices(torch.tensor([2]))  # as many users as at the start
        made.append(_logits(one, _NEXT, cache).float())
    torch.testing.assert_close(made[0], made[1], rtol=0.05, atol=0.1)


def test_beams_are_reordered_on_the_device_and_score_what_their_text_scores() -> None:
    net, given, beams, tokens = model("llama"), prompt(2), 4, 8
    exact = copy.deepcopy(net).float()
    compiled = temper.compile(net, level=1)
    made = compiled.generate(
        **given, max_new_tokens=tokens, num_beams=beams, num_return_sequences=beams,
        do_sample=False, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    for index, text in enumerate(made.sequences):
        real = given["attention_mask"][index // beams].bool()
        ids = torch.cat([text[: len(real)][real], text[len(real) :]])[None]
        with torch.no_grad():
            chances = torch.log_softmax(exact(ids).logits[0], -1)[-tokens - 1 : -1]
        wanted = chances.gather(1, ids[0, -tokens:, None]).mean()
        # A beam with another one's cache is off by a tenth and more.
        assert float(made.sequences_scores[index]) == pytest.approx(float(wanted), abs=0.01)
    (moved,) = [g for g in compiled.loaded if g.program.name.endswith("_reorder")]
    assert moved.stats.calls == tokens
    assert moved.stats.device_ns > 0
    assert not moved.program.host_ops


def test_texts_of_many_lengths_share_two_programs() -> None:
    compiled = temper.compile(model("llama"))
    for length, tokens in ((20, 4), (8, 40), (30, 3)):
        compiled.generate(**prompt(1, length), max_new_tokens=tokens, do_sample=False)
    assert compiled.compiles == 2


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_step_of_one_user_is_that_of_many(family: str) -> None:
    net = model(family)
    kinds = []
    for users in (1, 3):
        built = build_step(
            net, layer_shapes(net), StepKind(users, 128), resolve({"optimization_level": 1})
        )
        kinds.append(sorted(op.kind for op in built.program.ops))
    assert kinds[0] == kinds[1]
    assert "RotaryEmbedding" in kinds[0]


def test_products_of_a_step_are_whole_where_that_costs_nothing_and_nobody_chose() -> None:
    net = model("llama")

    def cut(**given: Any) -> set[str]:
        options = resolve({"optimization_level": 2, **given})
        program = build_step(net, layer_shapes(net), StepKind(4, 128), options).program
        return {str(op.attrs["fidelity"]) for op in program.ops if op.kind == "Matmul"}

    assert cut() <= {"HiFi3", "HiFi4"}
    assert cut(math_fidelity="ttnn_default") == {"HiFi2"}
    assert "HiFi2" in cut(experimental_weight_dtype="bfp_bf8")


def test_a_turn_of_many_tokens_is_read_at_once_with_what_came_before() -> None:
    net = model("llama")
    compiled = temper.compile(net)
    turns = [prompt(1, 20)["input_ids"], _NEXT, prompt(1, 12)["input_ids"], _NEXT]
    caches = [DynamicCache(), DynamicCache()]
    calls = []
    for turn in turns:
        got, wanted = (_logits(m, turn, c) for m, c in zip((compiled, net), caches, strict=True))
        torch.testing.assert_close(got, wanted, rtol=0.05, atol=0.1)
        calls.append(sum(graph.stats.calls for graph in compiled.loaded))
    assert calls == [1, 2, 3, 4]  # the twelve are one call
    keys = [cache.layers[1].keys for cache in caches]
    torch.testing.assert_close(keys[0], keys[1], rtol=0.05, atol=0.05)
