"""Names that a call did not find and a later one does: compiled functions follow eager Python."""

from __future__ import annotations

import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import temper

Step = Callable[[], Any]


class Plain:
    rate = 2

    @classmethod
    def made(cls) -> int:
        return 3


class Derived(Plain):
    """Has nothing of its own."""


class Fallback:
    def __getattr__(self, name: str) -> int:
        return 4


class Slotted:
    __slots__ = ("value",)


def helper() -> int:
    return 2


def attempt(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (AttributeError, KeyError):
        return 40


class Absent:
    """Objects that lack something at first, and what then gives it to them."""

    def __init__(self) -> None:
        self.table: dict[str, int] = {}
        self.plain, self.derived, self.fallback = Plain(), Derived(), Fallback()
        self.slotted, self.layer, self.tensor = Slotted(), nn.Linear(2, 2), torch.ones(2)
        self.module = types.ModuleType("absent")
        self.weak: Any = weakref.WeakKeyDictionary()
        self.undo: list[Step] = []

    def cases(self) -> dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[Step]]]:
        def given(target: Any, name: str, value: Any = 9) -> Step:
            return lambda: setattr(target, name, value)

        table, plain, derived, fallback = self.table, self.plain, self.derived, self.fallback
        slotted, layer, tensor, module, weak = (
            self.slotted, self.layer, self.tensor, self.module, self.weak)  # fmt: skip
        space = sys.modules[__name__].__dict__
        again = lambda value: lambda: space.__setitem__("len", lambda _: value)  # noqa: E731
        self.undo = [
            lambda: space.pop("len", None),
            lambda: os.environ.pop("TT_ABSENT", None),
            lambda: setattr(Plain, "made", classmethod(lambda cls: 3)),
            lambda: vars(helper).pop("extra", None),
            *(lambda name=n: name in vars(Plain) and delattr(Plain, name) for n in ("later",)),  # type: ignore[misc]
            lambda: "rate" in vars(Derived) and delattr(Derived, "rate"),
        ]
        return {
            "key": (lambda x: x * attempt(lambda: table["a"]),
                    [lambda: table.update(a=5), lambda: table.update(a=6), table.clear]),
            "environment": (lambda x: x * int(os.environ.get("TT_ABSENT", "1")),
                            [lambda: os.environ.update(TT_ABSENT="3")]),
            "in environment": (lambda x: x * (2 if "TT_ABSENT" in os.environ else 3),
                               [lambda: os.environ.update(TT_ABSENT="3")]),
            "weak key": (lambda x: x * weak.get(plain, 2), [lambda: weak.update({plain: 7})]),
            "attribute": (lambda x: x * attempt(lambda: plain.new), [given(plain, "new")]),  # type: ignore[attr-defined]
            "behind __getattr__": (lambda x: x * fallback.any, [given(fallback, "any")]),
            "slot": (lambda x: x * attempt(lambda: slotted.value),  # type: ignore[attr-defined]
                     [given(slotted, "value"), lambda: delattr(slotted, "value")]),
            "of a layer": (lambda x: x * attempt(lambda: layer.new), [given(layer, "new")]),
            "of a tensor": (lambda x: x * attempt(lambda: tensor.new_), [given(tensor, "new_")]),
            "of a class": (lambda x: x * attempt(lambda: Plain.later), [given(Plain, "later")]),  # type: ignore[attr-defined]
            "of a module": (lambda x: x * getattr(module, "new", 2), [given(module, "new")]),
            "hasattr": (lambda x: x * (2 + hasattr(module, "it")), [given(module, "it")]),
            "of a function": (lambda x: x * getattr(helper, "extra", 2), [given(helper, "extra")]),
            "class in front": (lambda x: x * derived.rate, [given(Derived, "rate")]),
            "class method": (lambda x: x * Plain.made(),
                             [given(Plain, "made", classmethod(lambda cls: 8))]),
            "builtin": (lambda x: x * len([1, 2]), [again(9), again(11), lambda: space.pop("len")]),
            "__dict__": (lambda x: x * plain.__dict__.get("u", 2), [given(plain, "u")]),
            "in __dict__": (lambda x: x * (2 + ("v" in plain.__dict__)), [given(plain, "v")]),
            "vars": (lambda x: x * len(vars(plain)), [given(plain, "w"), given(plain, "q")]),
        }  # fmt: skip


class Called(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.forward = function


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "way"),
    [(name, "torch") for name in Absent().cases()]
    + [(name, "temper") for name in ("key", "attribute", "class in front", "builtin")],
)
def test_what_was_missing_at_one_call_is_found_by_the_next(name: str, way: str) -> None:
    torch._dynamo.reset()
    absent = Absent()
    function, steps = absent.cases()[name]
    compiled: Any = (
        temper.compile(Called(function).eval())
        if way == "temper"
        else torch.compile(function, backend="tt")
    )
    try:
        for step in [lambda: None, *steps]:
            step()
            assert compiled(torch.ones(2)).tolist() == function(torch.ones(2)).tolist()
    finally:
        for undo in absent.undo:
            undo()
