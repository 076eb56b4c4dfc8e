"""Compiled models in long-lived processes: bounds, threads, copies, gradients, reloads."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import temper
from temper.errors import UsageError
from temper.frontdoor import region


@pytest.fixture(autouse=True)
def _no_variants_of_other_tests() -> None:
    """Dynamo keeps variants by code, and gives up on the ninth."""
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.scale = nn.Linear(16, 32), nn.Linear(32, 4), 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(torch.relu(self.first(x))) * self.scale
        return made


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, atol=2e-2)


def test_variants_of_a_model_are_bounded_and_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(region, "KEPT_VARIANTS", 2)
    model, x = Net().eval(), torch.randn(2, 16)
    compiled = temper.compile(model)
    with torch.no_grad():
        for scale in (1, 2, 3, 4, 3):
            model.scale = scale
            assert close(compiled(x), model(x))
            assert len(compiled.loaded) <= 2
    assert compiled._graphs.count == 4  # the last was still there


def test_what_a_model_compiled_goes_with_it() -> None:
    model, x = Net().eval(), torch.randn(2, 16)
    graphs = []
    for _ in range(2):
        compiled = temper.compile(model)
        compiled(x)
        graphs.append(compiled._graphs)
        del compiled
    assert [kept.alive() for kept in graphs] == [[], []]


@pytest.mark.parametrize("way", [temper.compile, lambda m: torch.compile(m, backend="tt")])
def test_threads_call_known_shapes_while_others_compile(way: Callable[[Any], Any]) -> None:
    model = Net().eval()
    compiled = way(model)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        made = torch.Generator().manual_seed(seed)
        try:
            with torch.no_grad():
                for _ in range(12):
                    rows = int(torch.randint(1, 5, (1,), generator=made))
                    x = torch.randn(rows, 16, generator=made)
                    if not close(compiled(x), model(x)):
                        wrong.append((seed, rows))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # torch 2.13's own annotations of what it traces are one dictionary for all threads.
    assert not [item for item in wrong if repr(item) != "KeyError('custom')"]


@pytest.mark.parametrize("way", [temper.compile, lambda m: torch.compile(m, backend="tt")])
@pytest.mark.filterwarnings("ignore:the model is in training mode")
def test_backward_through_a_compiled_model_says_what_to_do(way: Callable[[Any], Any]) -> None:
    model = Net().train()
    made = way(model)(torch.randn(2, 16))
    assert made.requires_grad
    made.add_(1)  # allowed in eager torch too
    with pytest.raises(UsageError, match="gives no gradients"):
        made.sum().backward()


def test_copies_of_a_compiled_model_have_weights_of_their_own() -> None:
    model, x = Net().eval(), torch.randn(2, 16)
    compiled = temper.compile(model, level=1)
    with torch.no_grad():
        expected = compiled(x)
        for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
            assert copied.options["optimization_level"] == 1
            copied.last.bias.add_(1)
            assert close(copied(x), expected + 1)
        assert torch.equal(compiled(x), expected)


def test_weights_written_behind_every_counter_are_read_again_when_asked() -> None:
    layer, x = nn.Linear(256, 256).eval(), torch.randn(1, 256)
    compiled = temper.compile(layer)
    with torch.no_grad():
        compiled(x)
        layer.weight.data.numpy()[3] = 0.0  # one row of many
        compiled.reload_weights()
        assert close(compiled(x), layer(x))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers_run_on_the_chip_under_torch_compile(layer: type[nn.Module]) -> None:
    torch._dynamo.reset()
    model, x = layer(8, 8, batch_first=True).eval(), torch.randn(2, 3, 8)
    with torch.no_grad():
        found, expected = torch.compile(model, backend="tt")(x)[0], model(x)[0]
    assert torch.allclose(found, expected, atol=2e-2)
    assert temper.stats(model)["device_ops"] > 10


def test_a_transformer_with_a_mask_is_one_graph_on_the_chip() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    given = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    compiled = temper.compile(model)
    with torch.no_grad():
        assert close(compiled(*given, tgt_mask=mask), model(*given, tgt_mask=mask))
    assert len(compiled.loaded) == 1
    assert temper.stats(compiled)["host_ops"] == 0
