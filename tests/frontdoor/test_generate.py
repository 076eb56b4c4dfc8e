"""Text generation on the virtual chip against eager torch in bfloat16."""

from __future__ import annotations

import gc

import pytest
import torch
from transformers import DynamicCache, StaticCache

import temper
from temper.errors import OutOfMemoryError, UsageError

from .language_models import differences, model, prompt

TOKENS = 24


@pytest.mark.parametrize(("family", "cache"), [("llama", "static"), ("gemma2", "dynamic")])
def test_greedy_text_of_a_padded_batch_is_that_of_eager_torch(family: str, cache: str) -> None:
    net = model(family)
    given = prompt(4)
    extra = {"cache_implementation": "static"} if cache == "static" else {}
    wanted = net.generate(**given, max_new_tokens=TOKENS, do_sample=False)
    compiled = temper.compile(net)
    got = compiled.generate(**given, max_new_tokens=TOKENS, do_sample=False, **extra)
    assert got.shape == wanted.shape
    assert not differences(net, given, wanted, got)
    assert compiled.compiles == 2  # one prompt length, and one program for every token
    kinds = {op.kind for graph in compiled.loaded for op in graph.program.ops}
    assert "Host" not in kinds
    assert {"FillCache", "UpdateCache"} <= kinds
    again = compiled.generate(**given, max_new_tokens=TOKENS, do_sample=False, **extra)
    assert torch.equal(again, got)
    assert compiled.compiles == 2


def test_a_loop_by_hand_keeps_its_cache_on_the_device_and_reads_it_back() -> None:
    net = model("llama")
    compiled = temper.compile(net)
    ids = prompt(1)["input_ids"]
    eager_cache, cache = DynamicCache(), DynamicCache()
    for step in (ids, torch.tensor([[7]]), torch.tensor([[9, 11]])):
        with torch.no_grad():
            wanted = net(step, past_key_values=eager_cache, use_cache=True)
        got = compiled(step, past_key_values=cache, use_cache=True)
        assert got.past_key_values is cache
        assert got.logits.shape == wanted.logits.shape
        torch.testing.assert_close(got.logits, wanted.logits, rtol=0.05, atol=0.1)
        assert cache.get_seq_length() == eager_cache.get_seq_length()
    torch.testing.assert_close(
        cache.layers[1].keys, eager_cache.layers[1].keys, rtol=0.05, atol=0.05
    )


def test_two_conversations_take_turns_on_one_program() -> None:
    net = model("llama")
    compiled = temper.compile(net)
    texts = [prompt(1, 20)["input_ids"], prompt(1, 24)["input_ids"]]
    alone = []
    for ids in texts:
        cache = DynamicCache()
        compiled(ids, past_key_values=cache)
        alone.append(compiled(torch.tensor([[5]]), past_key_values=cache).logits)
    caches = [DynamicCache(), DynamicCache()]
    for ids, cache in zip(texts, caches, strict=True):
        compiled(ids, past_key_values=cache)
    for cache, wanted in zip(caches, alone, strict=True):
        torch.testing.assert_close(
            compiled(torch.tensor([[5]]), past_key_values=cache).logits, wanted, rtol=0, atol=0
        )


def test_a_static_cache_that_is_full_says_so() -> None:
    net = model("llama")
    compiled = temper.compile(net)
    cache = StaticCache(config=net.config, max_cache_len=20)
    compiled(prompt(1)["input_ids"], past_key_values=cache)
    with pytest.raises(UsageError, match="holds 20 tokens"):
        compiled(torch.tensor([[5]]), past_key_values=cache)


def test_a_cache_that_does_not_fit_is_told_before_anything_runs() -> None:
    net = model("llama")
    compiled = temper.compile(net, max_context=40_000_000)
    with pytest.raises(OutOfMemoryError, match="longest context that fits is") as raised:
        compiled(prompt(1)["input_ids"], past_key_values=DynamicCache())
    fits = int(str(raised.value).split("fits is ")[1].split(".")[0])
    # Two layers of two heads of 16 (a tile's 32), keys and values, in bfloat16: 512 B a token.
    assert 0.9 < fits * 512 / 12e9 <= 1.07
    assert not compiled.loaded


def test_the_wrapper_of_torch_compile_generates_on_the_chip_too() -> None:
    net = model("mistral")
    given = prompt(2)
    wanted = net.generate(**given, max_new_tokens=TOKENS, do_sample=False)
    wrapped = torch.compile(net, backend="tt")
    gc.collect()  # models of earlier tests leave the statistics with their graphs
    before = temper.stats()["calls"]
    got = wrapped.generate(**given, max_new_tokens=TOKENS, do_sample=False)
    assert not differences(net, given, wanted, got)
    assert temper.stats()["calls"] - before == TOKENS


def test_an_encoder_decoder_generates_with_beams_and_without() -> None:
    net = model("bart")
    ids = prompt(1, 11)["input_ids"].repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    compiled = temper.compile(net)
    for more in ({}, {"num_beams": 2}):
        given = {"input_ids": ids, "attention_mask": mask, "max_new_tokens": 8, **more}
        wanted = net.generate(**given, do_sample=False)
        assert torch.equal(compiled.generate(**given, do_sample=False), wanted)
    names = {graph.program.name for graph in compiled.loaded}
    assert {f"{type(net).__name__}_first32", f"{type(net).__name__}_decode"} <= names


class _Experts(torch.nn.Module):
    """Tokens that are sorted by expert, times their experts' matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.Parameter(torch.randn(4, 32, 48, dtype=torch.bfloat16))

    def forward(self, rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        counts = torch.histc(chosen.float(), bins=4, min=0, max=3)
        ends = counts.cumsum(0).to(torch.int32)
        return torch._grouped_mm(rows, self.experts, offs=ends)


def test_grouped_matmuls_of_experts_run_on_the_chip() -> None:
    torch.manual_seed(0)
    net = _Experts().eval()
    rows = torch.randn(20, 32, dtype=torch.bfloat16)
    chosen = torch.tensor([0] * 8 + [1] * 4 + [3] * 8)  # nobody chose the third expert
    compiled = temper.compile(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(rows, chosen), net(rows, chosen), rtol=0.02, atol=0.1)
    kinds = {op.kind for graph in compiled.loaded for op in graph.program.ops}
    assert "SparseMatmul" in kinds
    assert not {"Host", "Scatter"} & kinds
