"""Small generative models with random weights, and how their tokens are compared with eager's."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf

_COMMON = {
    "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 256, "initializer_range": 0.1,
}  # fmt: skip
_GROUPED = {**_COMMON, "intermediate_size": 128, "num_key_value_heads": 2}


_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_LATENT = {
    **_COMMON, "intermediate_size": 128, "num_key_value_heads": 4, "q_lora_rank": 32,
    "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
_GPT = {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256,
        "initializer_range": 0.1}  # fmt: skip


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, "rope_type": kind, **more}}


# Families beside the first ones: what their attention, positions or experts have of their own.
OTHERS: dict[str, Any] = {
    "bloom": lambda: hf.BloomForCausalLM(
        hf.BloomConfig(vocab_size=256, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.1)
    ),
    "mpt": lambda: hf.MptForCausalLM(
        hf.MptConfig(vocab_size=256, d_model=64, n_layers=2, n_heads=4, max_seq_len=256)
    ),
    "falcon with slopes": lambda: hf.FalconForCausalLM(
        hf.FalconConfig(vocab_size=256, hidden_size=64, num_hidden_layers=2, alibi=True,
                        num_attention_heads=4, multi_query=False, parallel_attn=False)
    ),
    "gpt-neo": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4, window_size=16,
                        attention_types=[[["global", "local"], 1]], max_position_embeddings=256)
    ),
    "gpt-j": lambda: hf.GPTJForCausalLM(hf.GPTJConfig(**_GPT, rotary_dim=8)),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**_COMMON, intermediate_size=128)),
    "phi": lambda: hf.PhiForCausalLM(hf.PhiConfig(**_GROUPED)),
    "stablelm": lambda: hf.StableLmForCausalLM(hf.StableLmConfig(**_GROUPED)),
    "olmo3": lambda: hf.Olmo3ForCausalLM(hf.Olmo3Config(**_GROUPED, sliding_window=16)),
    "granite": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**_GROUPED)),
    "cohere2": lambda: hf.Cohere2ForCausalLM(hf.Cohere2Config(**_GROUPED, sliding_window=16)),
    "starcoder2": lambda: hf.Starcoder2ForCausalLM(hf.Starcoder2Config(**_GROUPED)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**_GROUPED, head_dim=16)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(**_GROUPED, head_dim=16, sliding_window=16, query_pre_attn_scalar=16)
    ),
    "qwen3-moe": lambda: hf.Qwen3MoeForCausalLM(
        hf.Qwen3MoeConfig(**_GROUPED, **_EXPERTS, head_dim=16)
    ),
    "deepseek-v2": lambda: hf.DeepseekV2ForCausalLM(
        hf.DeepseekV2Config(**_LATENT, topk_method="greedy")
    ),
    "deepseek-v3": lambda: hf.DeepseekV3ForCausalLM(
        hf.DeepseekV3Config(**_LATENT, n_group=2, topk_group=1)
    ),
    "gpt-oss": lambda: hf.GptOssForCausalLM(
        hf.GptOssConfig(**_GROUPED, head_dim=16, num_local_experts=4, num_experts_per_tok=2)
    ),
    "dynamic rope": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(**{**_GROUPED, "max_position_embeddings": 32},
                       **_rope("dynamic", factor=4.0))
    ),
    "yarn": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(**_GROUPED,
                       **_rope("yarn", factor=4.0, original_max_position_embeddings=64))
    ),
    "longrope": lambda: hf.Phi3ForCausalLM(
        hf.Phi3Config(**_GROUPED, pad_token_id=0, original_max_position_embeddings=32,
                      **_rope("longrope", original_max_position_embeddings=32,
                              short_factor=[1.0] * 8, long_factor=[2.0 + i for i in range(8)]))
    ),
}  # fmt: skip


def model(family: str) -> Any:
    """A model of that family in bfloat16, seeded, without an end token."""
    torch.manual_seed(0)
    build = {
        **OTHERS,
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_GROUPED)),
        "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**_GROUPED, sliding_window=16)),
        "gemma2": lambda: hf.Gemma2ForCausalLM(
            hf.Gemma2Config(**_GROUPED, head_dim=16, sliding_window=16, query_pre_attn_scalar=16)
        ),
        "mixtral": lambda: hf.MixtralForCausalLM(
            hf.MixtralConfig(**_GROUPED, num_local_experts=4, num_experts_per_tok=2)
        ),
        "bart": lambda: hf.BartForConditionalGeneration(
            hf.BartConfig(vocab_size=256, d_model=64, encoder_layers=1, decoder_layers=2,
                          encoder_attention_heads=4, decoder_attention_heads=4,
                          encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128,
                          init_std=0.1, decoder_start_token_id=2, forced_eos_token_id=None)
        ),
    }[family]  # fmt: skip
    made: Any = build().to(torch.bfloat16).eval()
    made.generation_config.pad_token_id = 0
    made.generation_config.eos_token_id = None
    made.generation_config.forced_eos_token_id = None
    return made


def prompt(users: int, length: int = 20) -> dict[str, torch.Tensor]:
    """Random tokens; every user but the first is padded at the left."""
    generator = torch.Generator().manual_seed(users)
    ids = torch.randint(1, 256, (users, length), generator=generator)
    mask = torch.ones_like(ids)
    for user in range(1, users):
        mask[user, : 2 * user] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


# Eager bfloat16 does not agree with itself closer than this between a prompt and single tokens.
NEAR_TIE_STEPS = 4


def differences(
    net: Any, given: dict[str, torch.Tensor], wanted: torch.Tensor, got: torch.Tensor
) -> list[str]:
    """For each user whose texts part: where, and by how many steps of bfloat16 eager preferred."""
    found = []
    length = given["input_ids"].shape[1]
    for user in range(wanted.shape[0]):
        apart = (wanted[user] != got[user]).nonzero()
        if not len(apart):
            continue
        place = int(apart[0])
        real = torch.ones(place, dtype=torch.bool)
        real[:length] = given["attention_mask"][user].bool()
        with torch.no_grad():
            logits = net(wanted[user, :place][real][None]).logits[0, -1].float()
        step = 2.0 ** (torch.floor(torch.log2(logits.abs().max())) - 7)
        gap = float(logits[wanted[user, place]] - logits[got[user, place]]) / float(step)
        if gap > NEAR_TIE_STEPS:
            found.append(f"user {user}, token {place - length}: {gap:.1f} steps")
    return found
