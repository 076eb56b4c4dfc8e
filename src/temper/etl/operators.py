"""The operators of a preprocessing pipeline, as records; they say what is done, not how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from temper.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Operator:
    """``columns`` names what it applies to; None means every column of its usual role."""

    columns: tuple[str, ...] | None = None
    role: ClassVar[str] = "dense"
    stateful: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What pipeline files call it."""
        return type(self).__name__

    def as_dict(self) -> dict[str, Any]:
        return {"operator": self.name, **asdict(self)}


@dataclass(frozen=True)
class Neg2Zero(Operator):
    """Negative values become zero."""


@dataclass(frozen=True)
class Logarithm(Operator):
    """``log``: log(x + epsilon), the argument formed in float32; ``log1p``: log(1 + x)."""

    mode: str = "log"
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        if self.mode not in ("log", "log1p"):
            raise UsageError(f"Logarithm has no mode {self.mode!r}", allowed=["log", "log1p"])
        if not self.epsilon >= 0:
            raise UsageError(f"Logarithm's epsilon is {self.epsilon}; it must not be negative")


@dataclass(frozen=True)
class Clip(Operator):
    """Values below ``low`` become ``low``, above ``high`` become ``high``; None leaves a side."""

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise UsageError("Clip needs low, high or both")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise UsageError(f"Clip's low {self.low} is above its high {self.high}")


@dataclass(frozen=True)
class Bucketize(Operator):
    """The number of edges below the value, as ``torch.bucketize`` counts (right=False)."""

    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if not self.edges or any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise UsageError("Bucketize needs edges that grow strictly")


@dataclass(frozen=True)
class Hex2Int(Operator):
    """Hexadecimal text of up to 16 digits, either case, to an integer."""

    role: ClassVar[str] = "category"


@dataclass(frozen=True)
class Hash(Operator):
    """Text of any kind to 64 unsigned bits, the same on every machine; two texts may meet in one.

    Vocabularies keep these numbers, not the words.
    """

    role: ClassVar[str] = "category"


@dataclass(frozen=True)
class Modulus(Operator):
    """The remainder in [0, divisor), also of negative integers."""

    divisor: int = 0
    role: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        if not 1 <= self.divisor <= 2**53:
            raise UsageError(f"Modulus' divisor is {self.divisor}", allowed=["1 to 2^53"])


@dataclass(frozen=True)
class VocabGen(Operator):
    """Builds a vocabulary over the stream.

    Kept are the values seen at least ``min_count`` times; of these at most ``max_size``, the most
    frequent (the earlier on a tie). Identifiers follow ``order``: first appearance or frequency.
    ``max_tracked`` bounds the distinct values held while counting, so that memory stays bounded.
    """

    min_count: int = 1
    max_size: int | None = None
    order: str = "appearance"
    max_tracked: int = 4_000_000
    role: ClassVar[str] = "category"
    stateful: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.order not in ("appearance", "frequency"):
            raise UsageError(
                f"VocabGen has no order {self.order!r}", allowed=["appearance", "frequency"]
            )
        sizes = (self.min_count, self.max_tracked, 1 if self.max_size is None else self.max_size)
        if min(sizes) < 1:
            raise UsageError("VocabGen's min_count, max_size and max_tracked start at 1")


@dataclass(frozen=True)
class VocabMap(Operator):
    """Values to identifiers. ``oov`` 0: unseen is 0, others start at 1; -1: others start at 0."""

    oov: int = 0
    role: ClassVar[str] = "category"
    stateful: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.oov not in (0, -1):
            raise UsageError(f"VocabMap's oov is {self.oov}", allowed=["0", "-1"])


@dataclass(frozen=True)
class OneHot(Operator):
    """An integer to ``size`` zeros and ones; a value outside [0, size) gives zeros only."""

    size: int = 0
    role: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 65536:
            raise UsageError(f"OneHot's size is {self.size}", allowed=["1 to 65536"])


@dataclass(frozen=True)
class EmbeddingLookup(Operator):
    """Identifiers to rows of a table, given as rows of numbers; outside the table gives zeros."""

    table: Any = None
    role: ClassVar[str] = "category"
    stateful: ClassVar[bool] = True

    def __post_init__(self) -> None:
        import numpy as np

        table = np.ascontiguousarray(np.asarray(self.table, dtype=np.float32))
        if table.ndim != 2 or 0 in table.shape:
            raise UsageError(f"EmbeddingLookup's table has shape {table.shape}; it needs two sides")
        object.__setattr__(self, "table", table)

    def as_dict(self) -> dict[str, Any]:
        import hashlib

        digest = hashlib.sha256(self.table.tobytes()).hexdigest()
        return {"operator": self.name, "columns": self.columns, "table_sha256": digest,
                "shape": list(self.table.shape)}  # fmt: skip


OPERATORS: Mapping[str, type[Operator]] = {
    kind.__name__: kind
    for kind in (
        Neg2Zero, Logarithm, Clip, Bucketize, Hex2Int, Hash, Modulus, VocabGen, VocabMap, OneHot,
        EmbeddingLookup,
    )
}  # fmt: skip


def operator_from_dict(value: Mapping[str, Any]) -> Operator:
    """One operator of a pipeline file: ``{"operator": "Modulus", "divisor": 100000}``."""
    given = dict(value)
    name = given.pop("operator", None)
    if name not in OPERATORS:
        raise UsageError(f"no operator {name!r}", allowed=sorted(OPERATORS))
    kind = OPERATORS[name]
    allowed = [item.name for item in fields(kind)]
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise UsageError(f"{name} has no setting {unknown[0]!r}", allowed=allowed)
    for key, item in given.items():
        if isinstance(item, Sequence) and not isinstance(item, str) and key != "table":
            given[key] = tuple(item)
    return kind(**given)
