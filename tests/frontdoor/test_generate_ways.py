"""Ways to generate, and families with an attention, positions or experts of their own."""

from __future__ import annotations

import pytest
import torch

import temper
from temper.frontdoor.language import attention, runtime
from temper.frontdoor.language.runtime import LanguageRuntime
from temper.options import resolve

from .language_models import OTHERS, differences, model, prompt


@pytest.mark.parametrize("family", OTHERS)
def test_steps_of_a_family_give_what_its_model_gives(family: str) -> None:
    assert LanguageRuntime(model(family), resolve({})).unfit() == ""


def test_steps_that_show_a_token_too_much_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(count: int, queries: torch.Tensor, window: int | None) -> torch.Tensor:
        return torch.ones(queries.shape[0], count, dtype=torch.bool)

    monkeypatch.setattr(attention, "_places", everything)
    net = model("gemma2")
    assert "steps differ" in LanguageRuntime(net, resolve({})).unfit()
    compiled = temper.compile(net)
    given = prompt(1, 4)
    with pytest.warns(UserWarning, match="steps differ from it by"):
        got = compiled.generate(**given, max_new_tokens=1, do_sample=False)
    assert torch.equal(got, net.generate(**given, max_new_tokens=1, do_sample=False))


def test_a_model_that_fails_in_steps_without_a_word_is_told_by_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> float:
        raise AssertionError

    monkeypatch.setattr(runtime, "step_error", fails)  # as RWKV's own code does
    assert "(AssertionError)" in LanguageRuntime(model("llama"), resolve({})).unfit()


@pytest.mark.parametrize("family", ["longrope", "dynamic rope"])
def test_angles_that_change_with_the_text_change_as_in_eager_torch(family: str) -> None:
    net = model(family)
    given = prompt(2, 28)  # the thirty-third token is where both begin to stretch
    wanted = net.generate(**given, max_new_tokens=10, do_sample=False)
    got = temper.compile(net).generate(**given, max_new_tokens=10, do_sample=False)
    parted = (wanted != got).any(dim=0).nonzero()
    assert not len(parted) or int(parted[0]) > 33


def test_a_model_compiled_in_place_generates_by_its_programs() -> None:
    net = model("llama")
    given = prompt(2)
    wanted = net.generate(**given, max_new_tokens=6, do_sample=False)
    net.compile(backend="tt")
    before = temper.stats()
    got = net.generate(**given, max_new_tokens=6, do_sample=False)
    after = temper.stats()
    assert not differences(net, given, wanted, got)
    assert after["calls"] - before["calls"] == 6
    assert after["graphs"] - before["graphs"] == 2


def test_an_assistant_s_candidates_are_judged_by_every_row() -> None:
    net, given = model("llama"), prompt(1)
    compiled = temper.compile(net)
    plain = compiled.generate(**given, max_new_tokens=10, do_sample=False)
    for more in ({"assistant_model": model("mistral")}, {"prompt_lookup_num_tokens": 3}):
        got = compiled.generate(**given, max_new_tokens=10, do_sample=False, **more)
        assert torch.equal(got, plain)


def test_what_no_step_gives_is_computed_with_a_cache_of_eager_torch() -> None:
    net, given = model("llama"), prompt(2, 6)
    compiled = temper.compile(net)
    more = {"output_hidden_states": True, "return_dict_in_generate": True}
    with pytest.warns(UserWarning, match="output_hidden_states"):
        got = compiled.generate(**given, max_new_tokens=2, do_sample=False, **more)
    wanted = net.generate(**given, max_new_tokens=2, do_sample=False, **more)
    assert torch.equal(got.sequences, wanted.sequences)
    assert len(got.hidden_states) == 2


def test_a_loop_without_a_cache_compiles_one_program() -> None:
    net, given = model("llama"), prompt(2)
    compiled = temper.compile(net)
    got = compiled.generate(**given, max_new_tokens=4, do_sample=False, use_cache=False)
    wanted = net.generate(**given, max_new_tokens=4, do_sample=False)
    assert not differences(net, given, wanted, got)
    assert compiled.compiles == 1
