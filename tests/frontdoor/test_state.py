"""State of every kind: temper.compile, torch.compile and eager torch agree, call by call."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import math
import os
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import temper

Call = tuple[Any, ...]
SETTINGS = {"rate": 1}


def ramp() -> torch.Tensor:
    return torch.arange(4.0)


class Case(nn.Module):
    """Four calls; something is changed before each."""

    def calls(self) -> Iterator[Call]:
        for step in range(4):
            self.change(step)
            with self.during(step):
                yield (ramp(),)

    def change(self, step: int) -> None:
        """What happens to the model between calls."""

    def during(self, step: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


class Counter(Case):
    count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


class Hidden(Case):
    hidden: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = x if self.hidden is None else self.hidden + x
        return self.hidden * 2


class Collected(Case):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []
        self.recent: collections.deque[torch.Tensor] = collections.deque(maxlen=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        self.recent.append(x)
        return sum(self.seen) + len(self.recent)  # type: ignore[return-value]


class PlainTensor(Case):
    def __init__(self) -> None:
        super().__init__()
        self.total, self.offset = torch.zeros(4), torch.zeros(4)

    def change(self, step: int) -> None:
        self.offset = torch.full((4,), float(step))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += 1
        return x + self.total + self.offset


class Attributes(Case):
    scale = 1

    def __init__(self) -> None:
        super().__init__()
        self._hidden, self.items, self.pair, self.table = 1.0, [1, 2], (1, 2), {"a": 1}
        self.config = SimpleNamespace(rate=1, inner=SimpleNamespace(depth=1))
        self.order = collections.OrderedDict(a=1, b=2)
        self.scaled = functools.partial(torch.mul, other=2)

    def change(self, step: int) -> None:
        kind = type(self)
        for act in (
            [lambda: setattr(self, "_hidden", 3.0), lambda: self.items.__setitem__(1, 7)],
            [lambda: setattr(self, "pair", (1, 5)), lambda: self.table.update(b=9)],
            [lambda: setattr(self.config.inner, "depth", 4), lambda: setattr(kind, "scale", 3)],
            [lambda: self.order.move_to_end("a"), lambda: SETTINGS.update(rate=6)],
        )[step]:
            act()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = self.items[1] + self.pair[1] + sum(self.table.values()) + SETTINGS["rate"]
        first = next(iter(self.order.values()))
        return (
            self.scaled(x) * self._hidden * self.scale + numbers + self.config.inner.depth * first
        )


class Patched(Case):
    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def change(self, step: int) -> None:
        if step == 1:
            type(self).step = lambda self, x: x * 7  # type: ignore[method-assign]
        if step == 2:
            self.step = lambda x: x * 9  # type: ignore[method-assign]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


class Randomness(Case):
    def __init__(self) -> None:
        super().__init__()
        random.seed(3)
        np.random.seed(3)
        self.own = random.Random(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * random.random() + np.random.randint(100)
        return x + torch.from_numpy(np.random.rand(4)).float() + self.own.random()


class Zeros(Case):
    rate = 0.0

    def calls(self) -> Iterator[Call]:
        for rate in (0.0, -0.0, 0.0):
            self.rate = rate
            yield torch.ones(4), -rate

    def forward(self, x: torch.Tensor, other: float) -> tuple[torch.Tensor, ...]:
        return 1 / (x * self.rate), 1 / (x * other)


class Floats(Case):
    def calls(self) -> Iterator[Call]:
        for step in range(5):
            yield ramp(), 0.3 * step

    def forward(self, x: torch.Tensor, rate: float) -> tuple[Any, ...]:
        return x * rate + math.exp(rate), torch.clamp(x, max=rate), rate * 2


class SameInputs(Case):
    def calls(self) -> Iterator[Call]:
        one = ramp()
        yield ramp(), ramp()
        yield one, one
        yield one, ramp()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a * 2 + b


class Overlapping(Case):
    def calls(self) -> Iterator[Call]:
        whole = torch.arange(8.0)
        yield ramp(), ramp()
        yield whole[:4], whole[2:6]
        yield whole[2:6], whole[:4]
        yield whole[:4], whole[4:]

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a[1:].add_(1)
        b.mul_(2)
        return a * 2 + b


class Views(Case):
    """What is returned shares memory with the input, and is changed by the caller."""

    def calls(self) -> Iterator[Call]:
        kept = ramp()
        for _ in range(3):
            yield (kept,)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = x * 2
        return x.view(2, 2), made, made.view(2, 2)[0]

    def after(self, outputs: tuple[torch.Tensor, ...]) -> None:
        outputs[0].add_(1)
        outputs[1].add_(100)


class Modes(Case):
    """Autocast, gradients, default dtype, determinism, environment."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        nn.init.constant_(self.layer.weight, 0.5)
        nn.init.zeros_(self.layer.bias)

    @contextlib.contextmanager
    def during(self, step: int) -> Iterator[None]:
        os.environ["TEMPER_TEST_STATE"] = str(step // 2)
        torch.use_deterministic_algorithms(step == 3)
        cast = torch.autocast("cpu", torch.bfloat16, enabled=step == 1)
        with cast, torch.set_grad_enabled(step == 2):
            yield
        torch.use_deterministic_algorithms(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 2 if torch.is_grad_enabled() else 3
        factor += 10 * torch.are_deterministic_algorithms_enabled()
        return self.layer(x) * factor + int(os.getenv("TEMPER_TEST_STATE", "9"))


class Hooks(Case):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ReLU()
        self.count = 0
        self.layer.register_forward_hook(self._seen)

    def _seen(self, module: nn.Module, given: Any, made: torch.Tensor) -> None:
        self.count += 1

    def change(self, step: int) -> None:
        if step == 1:
            self.handle = self.layer.register_forward_hook(lambda module, given, made: made * 2)
        if step == 2:
            self.register_forward_pre_hook(lambda module, given: (given[0] * 3,))
        if step == 3:
            self.handle.remove()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.count


class Buffers(Case):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        for layer in (self.a, self.b):
            nn.init.constant_(layer.weight, 0.5)

    def change(self, step: int) -> None:
        if step == 1:
            self.b.weight = self.a.weight
        if step == 2:
            with torch.no_grad():
                self.a.weight.mul_(2)
        if step == 3:
            self.register_buffer("late", torch.full((4,), 5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.b(self.a(x))
        return x + self.late if hasattr(self, "late") else x


def _closure() -> Callable[[torch.Tensor], torch.Tensor]:
    count = 0

    def scaled(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * count

    return scaled


@dataclasses.dataclass
class Record:
    rate: int = 1
    last: torch.Tensor | None = None


class Closures(Case):
    def __init__(self) -> None:
        super().__init__()
        self.scaled, self.numbers, self.record = _closure(), iter(range(9)), Record()

    def change(self, step: int) -> None:
        self.record.rate = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.record.last = x * self.record.rate
        return self.scaled(x) + self.record.last + next(self.numbers)


class Integers(Case):
    """int64 beyond the chip's 32 bits, inside the graph and out of it."""

    def calls(self) -> Iterator[Call]:
        for step in (3, 70_000, 2**31 - 2, 5):
            yield (torch.arange(2) + step - 1,)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hashed = (x * 2654435761 + 17) % 1000
        return x * x, hashed, x + 2, x.sum(), torch.where(x > 4, x, -1) - x, x[:1] + x


CASES = [Counter, Hidden, Collected, PlainTensor, Attributes, Patched, Randomness, Zeros, Floats,
         SameInputs, Overlapping, Views, Modes, Hooks, Buffers, Closures, Integers]  # fmt: skip


def drive(
    kind: type[Case], wrap: Callable[[nn.Module], Callable[..., Any]]
) -> list[list[torch.Tensor]]:
    """Everything that came out of each call, and what the call made of its inputs."""
    Attributes.scale, SETTINGS["rate"] = 1, 1
    Patched.step = lambda self, x: x + 1  # type: ignore[method-assign]
    model = kind().eval()
    call, seen = wrap(model), []
    for given in model.calls():
        outputs = call(*given)
        if hasattr(model, "after"):
            model.after(outputs)
        leaves = pytree.tree_leaves((outputs, given))
        seen.append([torch.as_tensor(leaf).detach().clone() for leaf in leaves])
    return seen


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("way", ["temper", "torch"])
def test_a_compiled_model_follows_every_change_as_eager_torch_does(
    kind: type[Case], way: str
) -> None:
    torch._dynamo.reset()
    expected = drive(kind, lambda model: model)
    found = drive(
        kind,
        temper.compile if way == "temper" else lambda m: torch.compile(m, backend="tt"),  # type: ignore[arg-type,return-value]
    )
    for number, (now, right) in enumerate(zip(found, expected, strict=True)):
        for made, wanted in zip(now, right, strict=True):
            assert made.dtype == wanted.dtype
            torch.testing.assert_close(
                made, wanted, rtol=1e-2, atol=1e-4, msg=f"call {number}: {made} for {wanted}"
            )
