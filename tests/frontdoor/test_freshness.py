"""A compiled model follows what happens to the model: weights, submodules, attributes, modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import temper
from temper.formats import pcc


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """A layer, a norm, a buffer, a dropout and a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.fc = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)
        self.scale = 1.0
        self.register_buffer("offset", torch.arange(10.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.relu(self.norm(self.first(x)))) * self.scale + self.offset


def make() -> tuple[Net, torch.Tensor]:
    return Net().eval().to(torch.bfloat16), torch.randn(2, 8, dtype=torch.bfloat16)


def test_a_weight_changed_in_place_is_noticed() -> None:
    model, x = make()
    compiled = temper.compile(model, level=2)
    compiled(x)
    with torch.no_grad():
        model.fc.weight.zero_()
        model.fc.bias.zero_()
    assert torch.equal(compiled(x), torch.arange(10.0).expand(2, 10).bfloat16())
    assert temper.stats(compiled)["weight_updates"] == 1


def test_a_weight_replaced_by_another_tensor_is_noticed() -> None:
    model, x = make()
    compiled = temper.compile(model)
    compiled(x)
    model.fc.weight = nn.Parameter(torch.zeros(10, 8, dtype=torch.bfloat16))
    model.fc.bias = nn.Parameter(torch.zeros(10, dtype=torch.bfloat16))
    assert torch.equal(compiled(x), torch.arange(10.0).expand(2, 10).bfloat16())


def test_weights_changed_under_torch_compile_are_noticed() -> None:
    model, x = make()
    compiled = torch.compile(model, backend="tt")
    with torch.no_grad():
        compiled(x)
        model.fc.weight.zero_()
        model.fc.bias.zero_()
        assert torch.equal(compiled(x), torch.arange(10.0).expand(2, 10).bfloat16())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


def test_tied_weights_follow_each_other() -> None:
    model = Tied().eval().bfloat16()
    ids = torch.randint(0, 50, (2, 5))
    compiled = temper.compile(model, level=2)
    compiled(ids)
    with torch.no_grad():
        model.embed.weight.mul_(2)
        expected = model(ids)
    assert pcc(expected.float(), compiled(ids).float()) > 0.999


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_a_buffer_that_forward_changes_keeps_its_new_value() -> None:
    model = Counts().eval()
    compiled = temper.compile(model)
    assert [float(compiled(torch.ones(1))) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert float(model.calls) == 3.0


def _through_data(net: Net) -> None:
    net.first.weight.data.mul_(3)


def _by_data(net: Net) -> None:
    net.first.weight.data = torch.randn(8, 8, dtype=torch.bfloat16)


def _through_numpy(net: Net) -> None:
    net.offset.view(torch.int16).numpy()[:] = 0x4000  # 2.0


def _submodule(net: Net) -> None:
    net.first = nn.Linear(8, 8).bfloat16()


def _number(net: Net) -> None:
    net.scale = 3.0


def _inner_number(net: Net) -> None:
    net.norm.eps = 1.0


def _inner_mode(net: Net) -> None:
    net.norm.train()


def _hook(net: Net) -> None:
    net.first.register_forward_hook(lambda module, given, made: made * 2)


def _method(net: Net) -> None:
    net.first.forward = lambda x: x * 5  # type: ignore[method-assign]


def _attribute_gone(net: Net) -> None:
    prune.random_unstructured(net.first, "weight", 0.5)


@pytest.mark.parametrize(
    "change",
    [_through_data, _by_data, _through_numpy, _submodule, _number, _inner_number, _inner_mode,
     _hook, _method, _attribute_gone],
)  # fmt: skip
def test_a_change_that_no_version_counter_tells_is_noticed(change: Callable[[Net], None]) -> None:
    model, x = make()
    compiled = temper.compile(model, level=1)
    with torch.no_grad():
        before = compiled(x)
        change(model)
        expected = model(x).float()
        after = compiled(x).float()
    assert not torch.equal(before.float(), after)
    assert (expected - after).abs().max() <= 0.05 * expected.abs().max()


@pytest.mark.parametrize(
    "change", [_through_data, _by_data, _through_numpy, _number, _inner_number]
)
def test_torch_compile_follows_such_changes_too(change: Callable[[Net], None]) -> None:
    model, x = make()
    compiled = torch.compile(model, backend="tt")
    with torch.no_grad():
        compiled(x)
        change(model)
        expected = model(x).float()
        assert (expected - compiled(x).float()).abs().max() <= 0.05 * expected.abs().max()


def test_another_dtype_of_the_weights_compiles_again() -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3)).eval()
    ids = torch.tensor([[1, 2, 3]])
    compiled = temper.compile(model)
    assert compiled(ids).dtype == torch.float32
    model.bfloat16()
    assert compiled(ids).dtype == torch.bfloat16
    model[0] = nn.Embedding(20, 8).bfloat16()
    assert compiled(ids + 10).shape == (1, 3, 3)


def test_an_unchanged_model_is_neither_compiled_nor_uploaded_again() -> None:
    model, x = make()
    compiled = temper.compile(model)
    for _ in range(3):
        compiled(x)
    assert len(compiled.loaded) == 1
    assert temper.stats(compiled)["weight_updates"] == 0
