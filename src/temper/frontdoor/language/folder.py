"""Language models by their config: a folder with config.json, with real, random or no weights.

Times and memory need shapes alone. A model of a few layers whose weights were never written takes
no memory to speak of, and what a layer adds is the difference of two such models.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from temper.errors import UsageError
from temper.frontdoor.language.unwritten import unwritten


def is_folder(argument: str) -> bool:
    """Whether a model argument is a folder with a config.json."""
    return (Path(argument) / "config.json").is_file()


def read_config(folder: str) -> Any:
    """The config of a folder; nothing is ever downloaded."""
    path = Path(folder) / "config.json"
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}", cause=str(error)) from None
    kind = read.get("model_type") if isinstance(read, dict) else None
    if kind not in hf.CONFIG_MAPPING:
        near = difflib.get_close_matches(str(kind), list(hf.CONFIG_MAPPING), 3)
        raise UsageError(
            f"transformers {hf.__version__} does not know the model type {kind!r} of {path}",
            try_=[f'"model_type": "{name}"' for name in near] or ["a newer transformers"],
        )
    return _made(path, lambda: hf.AutoConfig.from_pretrained(folder, local_files_only=True))


def _made(path: Path, make: Callable[[], Any]) -> Any:
    """What transformers makes of a config; whatever it dislikes is told in its words."""
    try:
        return make()
    except Exception as error:  # configs check themselves in many ways
        cause = " ".join(str(error).split())
        raise UsageError(f"transformers makes no model of {path}", cause=cause[:300]) from None


def load_folder(folder: str) -> Any:
    """The model with its safetensors, or with seeded random weights where there are none."""
    config = read_config(folder)
    auto = hf.AutoModelForSeq2SeqLM if config.is_encoder_decoder else hf.AutoModelForCausalLM
    dtype = getattr(config, "dtype", None) or torch.bfloat16
    if any(Path(folder).glob("*.safetensors")):
        return auto.from_pretrained(folder, local_files_only=True, dtype=dtype).eval()
    torch.manual_seed(0)
    made = _made(Path(folder), lambda: auto.from_config(config))  # type: ignore[no-untyped-call]
    return made.to(dtype).eval()


def period(config: Any) -> int:
    """After how many layers the kinds of layers repeat."""
    kinds = getattr(config, "layer_types", None) or [None]
    for length in range(1, len(kinds) + 1):
        if all(kind == kinds[index % length] for index, kind in enumerate(kinds)):
            return length
    return len(kinds)


def shallow(config: Any, layers: int, make: Any = None) -> Any:
    """The model with this many layers and weights that nobody wrote."""
    cut = copy.deepcopy(config)
    cut.num_hidden_layers = layers
    if getattr(cut, "layer_types", None):
        cut.layer_types = list(cut.layer_types)[:layers]
    build = make or hf.AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model = _made(Path(cut.name_or_path), lambda: build(cut)).to(torch.bfloat16).eval()
    model = model._apply(lambda t: unwritten(t.shape, t.dtype))
    for name, module in list(model.named_modules()):
        if type(module).__name__.endswith("RotaryEmbedding"):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, type(module)(config=module.config))
    return model
