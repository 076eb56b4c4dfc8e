"""Caches of language models on a worker: programs share them, and a dead worker's are told of."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import temper
from temper.targets.ttnn.client import WorkerDied

hf = pytest.importorskip("transformers")


def _compiled() -> Any:
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=256, hidden_size=128, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=256, max_position_embeddings=256,
    )  # fmt: skip
    model = hf.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    return temper.compile(model, target="ttnn", level=2)


def test_a_prompt_and_its_tokens_use_one_cache_whose_loss_is_told_once(ttnn_here: Path) -> None:
    model = _compiled()
    ids = torch.randint(1, 200, (1, 20))
    made = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert made.shape == (1, 23)
    steps = [graph._running for graph in model.loaded]
    assert len(steps) >= 2
    assert len({step._state.group for step in steps}) == 1
    (store,) = {id(step._load.state): step._load.state for step in steps}.values()
    worker = steps[0]._on
    names = worker.ask({"do": "read_state", "group": steps[0]._state.group})[0]["names"]
    assert sorted(names) == sorted(store)
    # The device's values are the newer ones (zeros, on a mock) until somebody looks.
    store.on_host(names[0]).fill_(1.0)
    assert store.newer is not None
    assert float(store[names[0]].abs().max()) == 0.0
    assert store.newer is None

    before = model(ids, use_cache=True).past_key_values
    os.kill(worker.pid, signal.SIGKILL)
    worker._process.wait()
    with pytest.raises(WorkerDied, match="caches"):
        model(ids[:, :1], past_key_values=before, use_cache=True)
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (1, 23)


def test_what_the_host_writes_reaches_the_device_before_the_next_call(ttnn_here: Path) -> None:
    model = _compiled()
    ids = torch.randint(1, 200, (1, 20))
    model.generate(ids, max_new_tokens=2, do_sample=False)
    step = next(graph._running for graph in model.loaded)
    store, worker, asked = step._load.state, step._on, []
    store.fetch()
    ask = worker.ask
    worker.ask = lambda message, *rest: asked.append(message) or ask(message, *rest)
    try:
        name = next(iter(store))
        step._state.send(step.program.state.values())
        assert asked == []
        store.on_host(name).add_(1.0)
        step._state.send(step.program.state.values())
        step._state.send(step.program.state.values())
    finally:
        del worker.ask
    assert [(m["do"], m["names"]) for m in asked] == [("write_state", [name])]
