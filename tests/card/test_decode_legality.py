"""Prompts and tokens of language models, as their steps are compiled, offered to the real ttnn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import temper
from temper.frontdoor.language.programs import StepKind, build_step
from temper.frontdoor.language.reorder import build_reorder
from temper.frontdoor.language.step import layer_shapes
from temper.options import resolve
from temper.program import Program
from temper.targets.ttnn.environment import find
from temper.targets.ttnn.legality import check

hf = pytest.importorskip("transformers")

_BASE = {
    "vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
USERS = 4


def _model(family: str) -> Any:
    torch.manual_seed(0)
    build = {
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_BASE)),
        "gemma2": lambda: hf.Gemma2ForCausalLM(
            hf.Gemma2Config(**_BASE, head_dim=32, sliding_window=64, query_pre_attn_scalar=32)
        ),
        "mixtral": lambda: hf.MixtralForCausalLM(
            hf.MixtralConfig(**_BASE, num_local_experts=4, num_experts_per_tok=2)
        ),
        "gpt2": lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=512, n_embd=256, n_layer=1, n_head=8, n_positions=256)
        ),
        "t5": lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(vocab_size=512, d_model=256, d_kv=32, d_ff=512, num_layers=1, num_heads=8,
                        decoder_start_token_id=0)
        ),
    }[family]  # fmt: skip
    return build().to(torch.bfloat16).eval()


def _programs(model: Any, options: dict[str, Any]) -> Iterator[Program]:
    if model.config.is_encoder_decoder:
        compiled = temper.compile(model, **options)
        compiled.generate(torch.randint(1, 500, (USERS, 20)), max_new_tokens=3, do_sample=False)
        yield from (graph.program for graph in compiled.loaded)
        return
    layers = layer_shapes(model)
    for kind in (StepKind(USERS, 128, 64), StepKind(USERS, 128, choose=True)):
        yield build_step(model, layers, kind, resolve(options)).program
    if model.config.model_type == "llama":
        yield build_step(model, layers, StepKind(1, 128), resolve(options)).program
        shapes = {f"cache.{name}_0": torch.Size((USERS, 4, 128, 32)) for name in ("keys", "values")}
        yield build_reorder(shapes, torch.bfloat16, resolve(options), "llama").program


_CASES = [(family, chip, 2) for family in ("llama", "gpt2", "gemma2", "mixtral", "t5")
          for chip in ("n150", "p150")]  # fmt: skip


@pytest.mark.parametrize(("family", "chip", "level"), [*_CASES, ("llama", "n150", 1)])
def test_ttnn_refuses_no_op_of_a_prompt_or_a_token(
    ttnn_here: Path, family: str, chip: str, level: int
) -> None:
    options = {"chip": chip, "optimization_level": level}
    found = [check(p, find(chip), resolve(options)) for p in _programs(_model(family), options)]
    assert len(found) >= 2
    wrong = [v for one in found for v in one.verdicts if v.verdict in ("refused", "differs")]
    assert not wrong, "\n".join(f"{v.kind} of {v.label}: {v.message}" for v in wrong)
    if family == "llama":  # and it runs as the very device ops that are charged
        assert {v.verdict for one in found for v in one.verdicts} == {"accepted"}
