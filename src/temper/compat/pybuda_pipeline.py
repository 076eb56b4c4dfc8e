"""``pybuda.transformers.pipeline``: Hugging Face's pipelines with the model on the virtual chip."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import torch

from temper.compat.pybuda_device import Device, TTDevice

# PyBuda's own default: every step of a generation has this many tokens, so one program does all.
_LENGTH = 256


def pipeline(pipeline_type: str, *args: Any, **kwargs: Any) -> Any:
    """``transformers.pipeline``; the forward pass of its model is compiled."""
    transformers: Any = importlib.import_module("transformers")
    length = kwargs.pop("pybuda_max_length", None) or _LENGTH
    kwargs.pop("forward_fn", None)
    made = transformers.pipeline(pipeline_type, *args, **kwargs)
    _put_on_chip(made.model, length, getattr(made.tokenizer, "pad_token_id", None) or 0)
    return made


class _Forward(torch.nn.Module):
    """The model's own forward, which outlives its replacement."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self._forward = model.forward

    def forward(self, **kwargs: Any) -> Any:
        return self._forward(**kwargs)


def _put_on_chip(model: Any, length: int, pad: int) -> None:
    inner = _Forward(model)
    device = TTDevice("tt0", module=inner)
    Device.all.remove(device)
    names = list(inspect.signature(model.forward).parameters)
    generates = bool(getattr(model, "can_generate", lambda: False)())

    @functools.wraps(model.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        given = {name: value for name, value in given.items() if value is not None}
        if not generates:
            return device.call(inner, (), given, None)
        return _one_step(lambda step: device.call(inner, (), step, None), given, length, pad)

    model.forward = forward
    if generates:
        # PyBuda's pipelines compute every step anew, without a cache.
        model.config.use_cache = False
        model.generation_config.use_cache = False


def _one_step(call: Any, given: dict[str, Any], length: int, pad: int) -> Any:
    """Tokens padded on the right, where a causal model cannot look; logits of the real ones."""
    outputs: Any = importlib.import_module("transformers.modeling_outputs")
    decodes = "decoder_input_ids" in given
    key = "decoder_input_ids" if decodes else "input_ids"
    tokens = given[key]
    count = tokens.shape[1]
    room = max(0, length - count)
    step: dict[str, Any] = {
        name: given[name]
        for name in ("attention_mask", "encoder_outputs", "input_ids", "decoder_input_ids")
        if name in given
    }
    step[key] = torch.nn.functional.pad(tokens, (0, room), value=pad)
    if not decodes:
        mask = given.get("attention_mask")
        mask = torch.ones_like(tokens) if mask is None else mask
        step["attention_mask"] = torch.nn.functional.pad(mask, (0, room), value=0)
    found = call({**step, "use_cache": False})
    logits = (found["logits"] if hasattr(found, "keys") else found[0])[:, :count]
    if not decodes:
        return outputs.CausalLMOutputWithPast(logits=logits)
    return outputs.Seq2SeqLMOutput(
        logits=logits, encoder_last_hidden_state=given["encoder_outputs"][0]
    )
