"""Whether a step gives what the model gives, tried once in eager torch before it is compiled.

Steps replace a model's attention function, its mask and its cache. A model that has its own idea of
one of them would give wrong text and no error; so a few tokens go both ways first.
"""

from __future__ import annotations

from typing import Any

import torch

from temper.frontdoor.language.rotary import call_angles
from temper.frontdoor.language.step import LanguageStep, LayerShape

# Tokens of the trial prompt, and those that follow one by one.
_PROMPT, _MORE = 9, 2
# Roundings of bfloat16 leave a hundredth; a mask or a position that is off leaves a third or more.
_MOST = 0.1


def step_error(
    model: torch.nn.Module, layers: list[LayerShape], capacity: int, named: bool
) -> float:
    """Relative error of the logits of a prompt and of the tokens after it, the worse of the two.

    The median over rows: experts that tie may fall either way in a row.
    """
    net: Any = model
    generator = torch.Generator().manual_seed(0)
    words = int(net.get_input_embeddings().weight.shape[0])
    ids = torch.randint(0, words, (1, _PROMPT + _MORE), generator=generator)
    with torch.no_grad():
        # Not through __call__: that may be a compiled one.
        wanted = net.forward(input_ids=ids, use_cache=False).logits[0].float()
        got = _in_steps(net, layers, capacity, named, ids).float()
    errors = (got - wanted).norm(dim=1) / wanted.norm(dim=1).clamp(min=1e-30)
    return float(max(errors[:_PROMPT].median(), errors[_PROMPT:].median()))


def agrees(error: float) -> bool:
    """Whether that error is one of roundings."""
    return error < _MOST


def _in_steps(
    net: Any, layers: list[LayerShape], capacity: int, named: bool, ids: torch.Tensor
) -> torch.Tensor:
    made: dict[bool, LanguageStep] = {}
    for decode in (False, True):
        made[decode] = LanguageStep(
            net, layers, users=1, length=capacity, decode=decode, named=named, every_row=True
        )
    for path, buffer in made[False].cache.named_buffers():
        made[True].cache.register_buffer(path, buffer.zero_())

    def run(decode: bool, start: int, stop: int, place: int) -> torch.Tensor:
        where = torch.arange(start, stop)[None]
        slot = torch.tensor([place], dtype=torch.int32)
        out: torch.Tensor = made[decode](ids[:, start:stop], where, slot, *call_angles(net, where))
        return out.reshape(-1, out.shape[-1])

    rows = [run(False, 0, _PROMPT, _PROMPT - 1)]
    rows += [run(True, place, place + 1, place) for place in range(_PROMPT, _PROMPT + _MORE)]
    return torch.cat(rows)
