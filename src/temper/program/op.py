"""One device operation of a program, the record of its kind, and where in the source it came from.

Numbers: unless a kind says otherwise, an op computes in float32 on its inputs' exact values and
rounds each output once to its format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from temper.chips import Chip
from temper.program.tensor import TensorSpec

Specs: TypeAlias = Sequence[TensorSpec]


@dataclass(frozen=True, slots=True)
class Source:
    """The user's line that made an op: module path in the model, file and line."""

    module: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Op:
    """A device operation: values by name, attributes as JSON."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    source: Source = Source()

    @property
    def info(self) -> OpKind:
        return KINDS[self.kind]

    def attr(self, name: str) -> Any:
        """The attribute, or its default from the op table."""
        return self.attrs[name] if name in self.attrs else self.info.attrs[name]

    def with_attrs(self, **changes: Any) -> Op:
        return replace(self, attrs={**self.attrs, **changes})


def on_host(op: Op, inputs: Specs) -> bool:
    """Whether the host does it: an op without a lowering, or one on the way up to the chip."""
    from_host = bool(inputs) and inputs[0].memory.buffer == "host"
    kind = KINDS.get(op.kind)  # rows of other people's programs have ops that we do not know
    return (kind is not None and kind.family == "host") or (op.kind == "Reshape" and from_host)


ShapeRule: TypeAlias = Callable[[Op, Specs, Specs], Iterator[str]]
BufferRule: TypeAlias = Callable[[Op, Specs, Specs, Chip], int]
ProductRule: TypeAlias = Callable[[Op, Specs, Specs, bool], float]
ComputeRule: TypeAlias = Callable[[Specs, Specs, str, int, str], dict[str, Any]]
WordRule: TypeAlias = Callable[[Op, Specs, Specs, Chip], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OpKind:
    """Everything that an op says of itself.

    ``family`` selects the cost model, ``code`` is the profiler's OP CODE. ``operands`` name the
    inputs in order (``?`` optional, ``*`` any number). ``attrs`` give each attribute's default;
    the meaning stands beside it in the table. The rules take the op with the specs of its inputs
    and outputs.
    """

    name: str
    family: str
    code: str
    operands: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    matrix: bool = False  # runs on the matrix engine: fidelity masks and the accumulator apply
    in_place: bool = False  # the result is the first operand's own memory: a write to state
    results: tuple[int, int | None] = (1, 1)  # least and most; None is any number
    # What cannot be true of these operands and results.
    shapes: ShapeRule | None = None
    # Bytes per core of circular buffers; None: two tiles of every operand and result.
    buffers: BufferRule | None = None
    # Bytes per core of sharded tensors that the op makes and drops by itself; None: none.
    inside: BufferRule | None = None
    # Multiply-adds of logical or of padded shapes; None: no arithmetic to speak of.
    products: ProductRule | None = None
    # What ttnn chooses from level 1 on, by (inputs, outputs, architecture, length of the sums,
    # norm); None: HiFi4 and a bfloat16 accumulator.
    compute: ComputeRule | None = None
    # The attributes as tt-metal's profiler prints them; None: as they are.
    words: WordRule | None = None
    # Whether tt-metal has a performance model for it: the PM columns; others show 1, 1, 1.
    vendor_model: bool = False


# The op table: each file of `table` enters its family.
KINDS: dict[str, OpKind] = {}


def register(*kinds: OpKind) -> None:
    """Enter records into the table; a name is taken once."""
    for kind in kinds:
        if kind.name in KINDS:
            raise ValueError(f"the op {kind.name} is in the table already")
        KINDS[kind.name] = kind
