"""Accuracy of a language model in given settings: perplexity, likeliest tokens, correlation.

The text is the model's own: sampled from it in float32, so that its perplexity means something
whether the weights are trained or random. The first part is read as a prompt, the rest token by
token, so that the format of the cache counts too. Truth is eager torch in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from transformers import DynamicCache

from temper.errors import UsageError
from temper.formats.measures import pcc
from temper.frontdoor.compiled import compile as compile_on_chip
from temper.frontdoor.language.folder import is_folder, load_folder, read_config, shallow
from temper.frontdoor.loader import load
from temper.tuning.accuracy import CHIP_SUMS

# Larger models would keep the host busy for hours; their accuracy is not measured here.
MOST_PARAMETERS = 300_000_000
_USERS, _PROMPT, _TOKENS = 8, 24, 16


@dataclass(frozen=True)
class LanguageAccuracy:
    """Measured against float32 on ``tokens`` tokens of text."""

    perplexity_ratio: float  # perplexity over float32's
    top1: float  # share of places where the likeliest token is float32's
    pcc: float  # of the logits
    tokens: int

    @property
    def text(self) -> str:
        """Perplexity and agreement, as a cell of a table."""
        return f"×{self.perplexity_ratio:.3f}, {self.top1:.0%}"


@dataclass(frozen=True)
class LanguageFloor:
    """What must be kept: a ratio of perplexities, an agreement and a correlation."""

    perplexity_ratio: float = 1.05
    top1: float = 0.0
    pcc: float = 0.99

    def met(self, found: LanguageAccuracy) -> bool:
        """Whether all three are kept."""
        return (
            found.perplexity_ratio <= self.perplexity_ratio
            and found.top1 >= self.top1
            and found.pcc >= self.pcc
        )

    @property
    def text(self) -> str:
        """The floor in words."""
        least = f" and top-1 at least {self.top1:g}" if self.top1 else ""
        return f"perplexity at most ×{self.perplexity_ratio:g}, pcc at least {self.pcc:g}{least}"


class LanguageSample:
    """A model with a text of its own, and what float32 says of it."""

    def __init__(self, argument: str) -> None:
        model: Any
        if is_folder(argument):
            config = read_config(argument)
            _check_size(shallow(config, config.num_hidden_layers))  # takes no memory
            model = load_folder(argument)
        else:
            model = load(argument).model
            _check_size(model)
        self.model = model.to(torch.bfloat16).eval()
        truth = copy.deepcopy(self.model).float()
        self.ids = _text(truth)
        with torch.no_grad():
            self._logits = truth(self.ids).logits[:, _PROMPT - 1 : -1].float()
            own = self.model(self.ids).logits[:, _PROMPT - 1 : -1].float()
        self.eager = self._judged(own)  # what bfloat16 alone costs

    def judge(self, options: Mapping[str, Any]) -> LanguageAccuracy:
        """The accuracy with these compile options, sums as on the chip."""
        compiled = compile_on_chip(self.model, **{**options, **CHIP_SUMS})
        cache = DynamicCache()
        with torch.no_grad():
            first = compiled(self.ids[:, :_PROMPT], past_key_values=cache, logits_to_keep=1)
            rows = [first.logits[:, -1:]]
            rows += [
                compiled(self.ids[:, at : at + 1], past_key_values=cache).logits
                for at in range(_PROMPT, self.ids.shape[1] - 1)
            ]
        return self._judged(torch.cat(rows, dim=1).float())

    def _judged(self, logits: torch.Tensor) -> LanguageAccuracy:
        said = self.ids[:, _PROMPT:].flatten()
        losses = [float(F.cross_entropy(x.flatten(0, 1), said)) for x in (logits, self._logits)]
        return LanguageAccuracy(
            float(torch.tensor(losses[0] - losses[1]).exp()),
            float((logits.argmax(-1) == self._logits.argmax(-1)).float().mean()),
            pcc(logits.numpy(), self._logits.numpy()),
            int(said.numel()),
        )


def _check_size(model: torch.nn.Module) -> None:
    count = sum(p.numel() for p in model.parameters())
    if count > MOST_PARAMETERS:
        raise UsageError(
            f"the accuracy of {count / 1e9:.1f} billion parameters is not measured on this host "
            f"(at most {MOST_PARAMETERS / 1e9:g} billion)",
            try_=["temper explain --llm, which tells times alone", "a smaller model of the family"],
        )


def _text(truth: Any) -> torch.Tensor:
    """Random tokens, and what the model says after them, sampled."""
    words = int(truth.get_input_embeddings().weight.shape[0])
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, words, (_USERS, _PROMPT), generator=generator)
    cache, given = DynamicCache(), ids
    with torch.no_grad():
        for _ in range(_TOKENS):
            logits = truth(given, past_key_values=cache, use_cache=True).logits[:, -1]
            given = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            ids = torch.cat([ids, given], dim=1)
    return ids
