"""The operators as torch modules, for models and for the chip; the records are in operators.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from temper.errors import UsageError
from temper.etl import operators as ops
from temper.program.tensor import ceil_div


class Neg2Zero(nn.Module):
    """Negative values become zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, min=0)


class Logarithm(nn.Module):
    """log(x + epsilon), or log(1 + x)."""

    def __init__(self, mode: str = "log", epsilon: float = 1e-7) -> None:
        super().__init__()
        self.settings = ops.Logarithm(mode, epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.settings.mode == "log1p":
            return torch.log1p(x)
        return torch.log(x + self.settings.epsilon)


class Clip(nn.Module):
    """Values held between low and high."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        super().__init__()
        self.settings = ops.Clip(low, high)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, self.settings.low, self.settings.high)


class Bucketize(nn.Module):
    """How many edges lie below each value: comparisons and a sum, which the chip has."""

    edges: torch.Tensor

    def __init__(self, edges: Sequence[float]) -> None:
        super().__init__()
        settings = ops.Bucketize(tuple(edges))
        self.register_buffer("edges", torch.tensor(settings.edges, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        above = x.unsqueeze(-1) > self.edges
        return above.to(torch.float32).sum(-1).to(torch.int32)


class Hex2Int(nn.Module):
    """Rows of ASCII codes (..., digits), either case, to integers; no checks, unlike the host.

    Comparisons, multiplications and additions only, which the chip has for int32: seven digits
    are exact there, any number of them on the host.
    """

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        # '0'-'9' are 48-57, 'A'-'F' 65-70, 'a'-'f' 97-102.
        digits = codes - 48 - 7 * (codes >= 65).to(codes.dtype) - 32 * (codes >= 97).to(codes.dtype)
        value = digits[..., 0]
        for place in range(1, codes.shape[-1]):
            value = value * 16 + digits[..., place]
        return value


class Modulus(nn.Module):
    """The remainder in [0, divisor)."""

    def __init__(self, divisor: int) -> None:
        super().__init__()
        self.settings = ops.Modulus(divisor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.remainder(x, self.settings.divisor)


class OneHot(nn.Module):
    """Zeros and ones; a value outside [0, size) gives zeros only."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.settings = ops.OneHot(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = torch.arange(self.settings.size, device=x.device, dtype=x.dtype)
        return (x.unsqueeze(-1) == values).to(torch.float32)


class VocabGen(nn.Module):
    """Counts keys in [0, size) over a stream; ``vocabulary`` are the kept ones by identifier."""

    counts: torch.Tensor
    first: torch.Tensor

    def __init__(
        self, size: int, *, min_count: int = 1, max_size: int | None = None,
        order: str = "appearance",
    ) -> None:  # fmt: skip
        super().__init__()
        self.settings = ops.VocabGen(min_count, max_size, order)
        self.register_buffer("counts", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("first", torch.full((size,), -1, dtype=torch.int64))
        self.seen = 0

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """Counts the keys and passes them on."""
        flat = keys.detach().cpu().to(torch.int64).flatten()
        self.counts += torch.bincount(flat, minlength=len(self.counts))
        places = torch.arange(self.seen, self.seen + len(flat))
        earliest = torch.full_like(self.first, 2**62)
        earliest.scatter_reduce_(0, flat, places, "amin")
        new = (self.first < 0) & (earliest < 2**62)
        self.first[new] = earliest[new]
        self.seen += len(flat)
        return keys

    @property
    def vocabulary(self) -> torch.Tensor:
        gen = self.settings
        kept = torch.nonzero(self.counts >= gen.min_count).flatten()
        kept = kept[self.first[kept] >= 0]
        kept = kept[torch.argsort(self.first[kept])]
        by_count = kept[torch.argsort(self.counts[kept], descending=True, stable=True)]
        by_count = by_count[: gen.max_size]
        if gen.order == "frequency":
            return by_count
        return by_count[torch.argsort(self.first[by_count])]


class VocabMap(nn.Module):
    """Keys in [0, size) to identifiers through a table; unseen keys give ``oov``."""

    table: torch.Tensor

    def __init__(self, vocabulary: torch.Tensor, size: int, oov: int = 0) -> None:
        super().__init__()
        base = ops.VocabMap(oov).oov + 1
        table = torch.full((size, 1), float(oov))
        table[vocabulary, 0] = torch.arange(base, base + len(vocabulary), dtype=torch.float32)
        # float32 holds identifiers below 2^24 exactly, and embedding tables are float.
        if base + len(vocabulary) > 1 << 24:
            raise UsageError(f"a vocabulary of {len(vocabulary):,} keys is beyond 2^24")
        self.register_buffer("table", table)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(keys, self.table).squeeze(-1).to(torch.int32)


class EmbeddingLookup(nn.Module):
    """Rows of a table. ``splits`` > 1 holds it as several smaller tables, each its own operator.

    A part that fits the chip's SRAM can stay there; the price is one lookup and one addition a
    part. Rows outside of a part are taken as its last row, which is zero.
    """

    def __init__(self, rows: int, width: int, *, splits: int = 1) -> None:
        super().__init__()
        if not 1 <= splits <= rows:
            raise UsageError(f"a table of {rows} rows cannot be split in {splits}")
        self.rows, self.width = rows, width
        self.part_rows = ceil_div(rows, splits)
        extra = 0 if splits == 1 else 1
        self.parts = nn.ModuleList(
            nn.Embedding(min(self.part_rows, rows - start) + extra, width)
            for start in range(0, rows, self.part_rows)
        )
        for part in self.parts[:] if extra else []:
            nn.init.zeros_(cast(nn.Embedding, part).weight[-1].detach())

    @classmethod
    def from_table(cls, table: torch.Tensor, *, splits: int = 1) -> EmbeddingLookup:
        """The same rows as ``table``, whatever the number of parts."""
        made = cls(table.shape[0], table.shape[1], splits=splits)
        with torch.no_grad():
            for number, part in enumerate(made.parts):
                rows = table[number * made.part_rows : (number + 1) * made.part_rows]
                cast(nn.Embedding, part).weight[: len(rows)] = rows
        return made

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if len(self.parts) == 1:
            return cast(torch.Tensor, self.parts[0](ids))
        total: torch.Tensor | None = None
        for number, part in enumerate(self.parts):
            last = cast(nn.Embedding, part).num_embeddings - 1
            local = ids - number * self.part_rows
            inside = (local >= 0) & (local < last)
            found = part(torch.where(inside, local, last))
            total = found if total is None else total + found
        assert total is not None
        return total


def stateless_module(operators: Sequence[ops.Operator]) -> nn.Sequential:
    """A run of stateless records as one torch module, for the chip."""
    made: list[nn.Module] = []
    for operator in operators:
        if isinstance(operator, ops.Neg2Zero):
            made.append(Neg2Zero())
        elif isinstance(operator, ops.Logarithm):
            made.append(Logarithm(operator.mode, operator.epsilon))
        elif isinstance(operator, ops.Clip):
            made.append(Clip(operator.low, operator.high))
        elif isinstance(operator, ops.Bucketize):
            made.append(Bucketize(operator.edges))
        elif isinstance(operator, ops.Hex2Int):
            made.append(Hex2Int())
        elif isinstance(operator, ops.Modulus):
            made.append(Modulus(operator.divisor))
        elif isinstance(operator, ops.OneHot):
            made.append(OneHot(operator.size))
        else:
            raise UsageError(f"{operator.name} keeps state; it is no part of a stateless module")
    return nn.Sequential(*made)
