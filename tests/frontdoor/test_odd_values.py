"""Memory, dtypes and operators that few models have: compiled functions follow eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import temper

Function = Callable[..., Any]


class Kept(nn.Module):
    """A buffer that is changed in place and given back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.total: torch.Tensor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x.add_(1)
        self.total.add_(x)
        return self.total, self.total[1:], x


@pytest.mark.parametrize("way", ["temper", "torch"])
def test_a_buffer_or_input_that_is_changed_and_returned_is_the_same_tensor(way: str) -> None:
    torch._dynamo.reset()
    model, given = Kept().eval(), torch.ones(4)
    call: Any = temper.compile(model) if way == "temper" else torch.compile(model, backend="tt")
    total, rest, x = call(given)
    assert total is model.total
    assert x is given
    total.add_(100)
    assert rest.tolist() == [102.0] * 3  # 1 + 1 + 100
    assert call(torch.zeros(4))[0].tolist() == [103.0] * 4


INTEGERS = torch.tensor([[70_000, 3], [-5, 2**20]])
CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "integer products": (
        lambda x: (x @ x, x @ x.T, nn.functional.linear(x, x), x[0] @ x[1], torch.addmm(x, x, x)),
        (INTEGERS,),
    ),
    "integer convolutions": (
        lambda x: (
            nn.functional.conv1d(x[:, :, 0], x[:, :, 0, :2]),
            nn.functional.conv2d(x, x[..., :2, :2]),
            nn.functional.conv_transpose2d(x, x[..., :2, :2]),
        ),
        (torch.arange(9).reshape(1, 1, 3, 3) * 100_000,),
    ),
    "scaled addition": (
        lambda f, i: (
            torch.sub(f, i, alpha=0.5),
            torch.add(f, i > 2, alpha=2.5),
            torch.add(i, i > 2, alpha=3),
        ),
        (torch.ones(4), torch.arange(1, 5)),
    ),
    "integer images": (
        lambda x: (
            nn.functional.avg_pool1d(x[0], 3),
            nn.functional.avg_pool2d(x, 2),
            nn.functional.max_pool2d(x, 2),
            nn.functional.interpolate(x.to(torch.uint8), scale_factor=2),
        ),
        (torch.arange(36).reshape(1, 1, 6, 6),),
    ),
    "windows over the edge": (
        lambda x: (
            nn.functional.avg_pool1d(x, 6, 3, padding=2, ceil_mode=True),
            nn.functional.max_pool2d(x[None], 2, 2, ceil_mode=True),
            nn.functional.max_pool2d(x[None], 3, 2, padding=1, ceil_mode=True),
        ),
        (torch.arange(27.0).reshape(1, 3, 9) * 6,),
    ),
    "bytes": (lambda x: x @ x.T, (torch.arange(9, dtype=torch.uint8).reshape(3, 3),)),
    "wide bits": (lambda x: ((x * x) | 1, (x * x) ^ 5, ~(x * x), torch.lcm(x * x, x)), (INTEGERS,)),
    "a complex number": (lambda x: (x * 1j, x + (2 - 1j)), (torch.ones(3, dtype=torch.complex64),)),
    "pairs as complex": (torch.view_as_complex, (torch.arange(10.0).view(5, 2),)),
    "complex as pairs": (lambda x: (torch.view_as_real(x), x.imag), (torch.ones(3) * (1 + 2j),)),
    "conjugate": (lambda x: (x.conj(), x.conj().imag, x.conj()[1:]), (torch.ones(3) * (1 + 2j),)),
    "bits as integers": (lambda x: x.view(torch.int32), (torch.arange(4.0),)),
    "unsigned": (lambda x: x.long() + 1, (torch.tensor([1, 3_000_000_000], dtype=torch.uint32),)),
    "a grid of a number": (
        lambda x, y: torch.meshgrid(x, y, indexing="ij"),
        (torch.arange(3).bfloat16(), torch.tensor(2.0).bfloat16()),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*runs in eager torch:UserWarning")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", [0, 2])
def test_values_are_those_of_eager_torch(name: str, level: int) -> None:
    torch._dynamo.reset()
    function, given = CASES[name]
    compiled = torch.compile(function, backend="tt", options={"optimization_level": level})
    made, wanted = map(pytree.tree_leaves, (compiled(*given), function(*given)))
    for now, right in zip(made, wanted, strict=True):
        assert now.dtype is right.dtype
        torch.testing.assert_close(now, right, rtol=0, atol=0, equal_nan=True)


@torch.library.custom_op("temper_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("temper_tests::add_one", mutates_args={"x"})
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


def test_operators_of_other_libraries_run_on_the_host() -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(lambda x: twice(x + 1) - 1, backend="tt")
    assert compiled(torch.ones(4)).tolist() == [3.0] * 4


def test_an_operator_that_changes_its_operand_runs_in_eager_torch_and_says_so() -> None:
    torch._dynamo.reset()

    def changed(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        add_one(x)
        return x

    compiled: Any = torch.compile(changed, backend="tt")
    with pytest.warns(UserWarning, match="no single operator"):
        assert compiled(torch.ones(4)).tolist() == [3.0] * 4


def asserted(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0, "sum"
    return x * 2


def asserted_later(x: torch.Tensor) -> torch.Tensor:
    torch._assert_async(x.sum() > 0)
    return x * 2


@pytest.mark.filterwarnings("ignore:.*in eager torch:UserWarning")
@pytest.mark.parametrize("function", [asserted, asserted_later])
def test_assertions_about_tensors_hold_at_every_call(function: Function) -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(function, backend="tt")
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises((AssertionError, RuntimeError)):
        compiled(-torch.ones(2))
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
