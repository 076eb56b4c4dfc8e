"""Compiled models in long-lived processes: bounds, threads, copies, gradients, reloads."""

from __future__ import annotations

import collections
import contextvars
import copy
import gc
import pickle
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.guards import GuardManagerWrapper
from torch.fx import traceback as fx_traceback

import temper
from temper.capture.capture import capture
from temper.errors import UsageError
from temper.frontdoor import region
from temper.frontdoor.loaded import loaded_graphs


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


def test_recompiles_past_the_bound_leave_no_guards_stacks_or_context_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(region, "KEPT_VARIANTS", 2)
    model, x = Net().eval(), torch.randn(2, 16)
    compiled = temper.compile(model)

    def kept(scales: range) -> tuple[int, ...]:
        for scale in scales:
            model.scale = scale
            compiled(x)
        gc.collect()
        kinds = collections.Counter(map(type, gc.get_objects()))
        return (
            kinds[GuardManagerWrapper],
            kinds[traceback.StackSummary],
            kinds[weakref.finalize],
            len(contextvars.copy_context()),
        )

    with torch.no_grad():
        kept(range(2, 5))
        assert kept(range(5, 7)) == kept(range(7, 11))


def test_dynamo_is_as_careful_in_every_thread() -> None:
    seen: list[bool] = []
    work = threading.Thread(target=lambda: seen.append(bool(torch._dynamo.config.allow_rnn)))
    work.start()
    work.join()
    assert seen == [True]


def test_what_a_model_compiled_goes_with_it() -> None:
    model, x = Net().eval(), torch.randn(2, 16)
    graphs = []
    for _ in range(2):
        compiled = temper.compile(model)
        compiled(x)
        graphs.append(compiled._graphs)
        del compiled
    assert [kept.alive() for kept in graphs] == [[], []]


def test_weights_of_a_model_that_is_gone_are_given_back_and_its_program_serves_the_next() -> None:
    x, before = torch.randn(2, 16), set(map(id, loaded_graphs()))
    with torch.no_grad():
        for _ in range(2):
            model = Net().eval()
            compiled = torch.compile(model, backend="tt")
            model.first = nn.Linear(16, 32)
            assert close(compiled(x), model(x))
            made = [graph for graph in loaded_graphs() if id(graph) not in before]
            assert [graph.stats.calls for graph in made] == [1]
            assert made[0]._weights
            del model, compiled
            gc.collect()
            assert not made[0]._weights
            assert not made[0].built.weights
            assert made[0]._running is None


def test_two_models_of_one_class_in_threads_keep_their_own_weights() -> None:
    models = [Net().eval(), Net().eval()]
    models[1].last = nn.Linear(32, 4)
    wrong: list[int] = []
    x = torch.randn(2, 16)

    def work(index: int) -> None:
        with torch.no_grad():
            compiled, expected = torch.compile(models[index], backend="tt"), models[index](x)
            wrong.extend(index for _ in range(100) if not close(compiled(x), expected))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


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
    assert wrong == []


@pytest.mark.parametrize("way", [temper.compile, lambda m: torch.compile(m, backend="tt")])
def test_threads_that_race_to_a_new_shape_do_not_each_compile_it(way: Callable[[Any], Any]) -> None:
    model, x = Net().eval(), torch.randn(3, 16)
    compiled, start, made = way(model), threading.Barrier(12), []

    def work() -> None:
        start.wait()
        with torch.no_grad():
            made.append(compiled(x))

    before = set(map(id, loaded_graphs()))
    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 12
    assert all(close(found, model(x)) for found in made)
    graphs = [graph for graph in loaded_graphs() if id(graph) not in before]
    assert sum(graph.stats.calls for graph in graphs) == 12
    # Mostly one. A thread that looks just before torch enters the first one's may make a second.
    assert len(graphs) <= 2


def test_a_compiled_function_runs_while_another_thread_exports() -> None:
    """torch's flag of an export and its dictionary of annotations are one for all threads."""
    inside, go_on = threading.Event(), threading.Event()
    model, x = Net().eval(), torch.randn(2, 16)
    compiled = torch.compile(model, backend="tt")

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inside.set()
            go_on.wait(60)
            return x + 1

    with torch.no_grad():
        compiled(x)
        seen: list[Any] = []

        @torch._dynamo.disable
        def noted() -> None:
            seen.append(fx_traceback.current_meta.get("custom", {}))

        export = threading.Thread(target=capture, args=(Slow(), (torch.ones(2),)))
        export.start()
        assert inside.wait(60)
        noted()
        assert close(compiled(x), model(x))
        go_on.set()
        export.join()
    assert seen[0].get("_torchdynamo_disable_method") != "noted"


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


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])[0]


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="tt")
    return model


WAYS = [temper.compile, lambda m: torch.compile(m, backend="tt"), in_place]


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_no_graph_is_made_of_says_so_once(way: Callable[[Any], Any]) -> None:
    compiled, given = way(Packed().eval()), (torch.randn(2, 3, 8), torch.tensor([3, 2]))
    with torch.no_grad():
        with pytest.warns(UserWarning, match="no part of Packed could be captured") as told:
            compiled(*given)
        assert [w.filename for w in told if "no part of" in str(w.message)] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(*given)


def test_a_layer_of_torch_that_is_compiled_in_place_runs_on_the_chip() -> None:
    layer, x = nn.Linear(8, 4), torch.randn(2, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = layer(x)
        assert close(in_place(layer)(x), expected)
    assert temper.stats(layer)["calls"] == 1
