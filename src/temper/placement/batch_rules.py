"""Which ops work on parts of a batch one by one: the parts of the result are the results of parts.

A value is cut along its first dimension that is not one, so that a part is a contiguous run of its
elements in the order of the logical shape. A rule says whether an op keeps such runs apart, and
which attributes its parts have. What no rule vouches for is never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temper.program.op import Op
from temper.program.tensor import TensorSpec

Attrs = Mapping[str, Any]


def first_dim(shape: Sequence[int]) -> int:
    """The dimension along which a value is cut; the rank where all are one."""
    return next((dim for dim, size in enumerate(shape) if size > 1), len(shape))


def part_shape(shape: Sequence[int], parts: int) -> tuple[int, ...] | None:
    """The shape of one of so many equal parts, None where there are none."""
    dim = first_dim(shape)
    if dim == len(shape) or shape[dim] % parts:
        return None
    return (*shape[:dim], shape[dim] // parts, *shape[dim + 1 :])


@dataclass(frozen=True)
class Cut:
    """An op whose operands are cut: ``cut`` says which, ``parts`` into how many."""

    op: Op
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    cut: Sequence[bool]
    parts: int

    @property
    def x(self) -> TensorSpec:
        return self.inputs[0]

    @property
    def out(self) -> TensorSpec:
        return self.outputs[0]

    @property
    def dim(self) -> int:
        """Where the first operand is cut."""
        return first_dim(self.x.shape)

    @property
    def only_first(self) -> bool:
        return self.cut[0] and not any(self.cut[1:])

    def inner(self, dims: Sequence[int]) -> bool:
        """Whether all these dimensions of the first operand lie inside a part."""
        rank = len(self.x.shape)
        return bool(dims) and all(d % rank > self.dim for d in dims)

    def aligned(self, start: int = 0) -> bool:
        """Whether operands broadcast to the result part by part: cut alike, or one for all."""
        wanted, rank = first_dim(self.out.shape), len(self.out.shape)
        for spec, cut in zip(self.inputs[start:], self.cut[start:], strict=True):
            shift = rank - len(spec.shape)
            if cut:
                dim = first_dim(spec.shape)
                if dim + shift != wanted or spec.shape[dim] != self.out.shape[wanted]:
                    return False
            elif any(size > 1 for size in spec.shape[: max(0, wanted + 1 - shift)]):
                return False
        return True


def part_attrs(cut: Cut) -> Attrs | None:
    """The attributes of the op's parts, None where it mixes parts."""
    rule = _RULES.get(cut.op.kind)
    if rule is None or any(part_shape(spec.shape, cut.parts) is None for spec in cut.outputs):
        return None
    changed = rule(cut)
    return None if changed is None else {**cut.op.attrs, **changed}


def _same(cut: Cut) -> Attrs | None:
    return {} if cut.only_first and cut.x.shape == cut.out.shape else None


def _broadcast(cut: Cut) -> Attrs | None:
    return {} if cut.aligned() else None


def _reshape(cut: Cut) -> Attrs | None:
    return {}


def _permute(cut: Cut) -> Attrs | None:
    rank = len(cut.x.shape)
    dims = [d % rank for d in cut.op.attr("dims")]
    if cut.op.kind == "Transpose":
        order = list(range(rank))
        order[dims[0]], order[dims[1]] = dims[1], dims[0]
        dims = order
    return {} if dims[first_dim(cut.out.shape)] == cut.dim else None


def _slice(cut: Cut) -> Attrs | None:
    begins, ends = list(cut.op.attr("begins")), list(cut.op.attr("ends"))
    steps = list(cut.op.attr("steps")) or [1] * len(begins)
    dim, size = cut.dim, cut.x.shape[cut.dim]
    if begins[dim] or ends[dim] != size or steps[dim] != 1 or first_dim(cut.out.shape) != dim:
        return None
    ends[dim] = size // cut.parts
    return {"ends": ends}


def _concat(cut: Cut) -> Attrs | None:
    same = all(first_dim(s.shape) == cut.dim for s in (*cut.inputs, cut.out))
    return {} if all(cut.cut) and same and cut.inner([cut.op.attr("dim")]) else None


def _pad(cut: Cut) -> Attrs | None:
    outer = cut.op.attr("pads")[: cut.dim + 1]
    return {} if cut.only_first and not any(a or b for a, b in outer) else None


def _repeat(cut: Cut) -> Attrs | None:
    repeats = list(cut.op.attr("repeats"))
    kept = len(repeats) == len(cut.x.shape) and all(r == 1 for r in repeats[: cut.dim + 1])
    return {} if kept else None


def _along(cut: Cut) -> Attrs | None:
    """Sums, orders and the like along dimensions inside a part."""
    given = cut.op.attr("dims" if cut.op.kind == "Reduce" else "dim")
    dims = [] if given is None else [given] if isinstance(given, int) else list(given)
    return {} if cut.only_first and cut.inner(dims) else None


def _last_dim(cut: Cut) -> Attrs | None:
    """Norms of rows; a residual is cut as the operand is, weights are not."""
    names = list(cut.op.attr("operands"))
    for name, spec, part in zip(names, cut.inputs, cut.cut, strict=True):
        if part != (name in ("x", "residual")) or (part and spec.shape != cut.x.shape):
            return None
    return {} if cut.dim < len(cut.x.shape) - 1 else None


def _matmul(cut: Cut) -> Attrs | None:
    if cut.op.attrs.get("config") or len(cut.x.shape) < 2 or not cut.cut[0]:
        return None
    a, b = cut.inputs[:2]
    rank = len(a.shape)
    if len(cut.inputs) > 2 and (cut.cut[2] or cut.inputs[2].matrix[:2] != (1, 1)):
        return None
    if first_dim(cut.out.shape) != cut.dim + len(cut.out.shape) - rank:
        return None
    if cut.cut[1]:
        alike = len(b.shape) == rank and first_dim(b.shape) == cut.dim < rank - 2
        return {} if alike else None
    if cut.dim == rank - 2:
        return {} if b.matrix[0] == 1 and not cut.op.attr("transpose_a") else None
    outer = b.shape[: max(0, len(b.shape) - rank + cut.dim + 1)]
    return {} if cut.dim < rank - 2 and all(size == 1 for size in outer) else None


def _window(cut: Cut) -> Attrs | None:
    batch = int(cut.op.attr("batch"))
    flat = all(s.shape[:2] == (1, 1) and first_dim(s.shape) == 2 for s in (cut.x, cut.out))
    if not cut.only_first or not flat or batch % cut.parts:
        return None
    return {"batch": batch // cut.parts}


def _outer(cut: Cut) -> Attrs | None:
    """Ops whose outermost dimension is the batch."""
    return {} if cut.only_first and _batched(cut) else None


def _attention(cut: Cut) -> Attrs | None:
    if cut.op.attr("config") or not all(cut.cut[:3]) or not _batched(cut):
        return None
    masks = list(zip(cut.inputs, cut.cut, strict=True))[3:]
    return {} if all(part or mask.shape[0] == 1 for mask, part in masks) else None


def _rotary(cut: Cut) -> Attrs | None:
    tables = list(zip(cut.inputs, cut.cut, strict=True))[1:]
    shared = all(not part and table.shape[0] == 1 for table, part in tables)
    return {} if shared and _batched(cut) else None


def _batched(cut: Cut) -> bool:
    """Whether what is cut is cut along its outermost dimension, of one size in all."""
    sizes = {
        spec.shape[0]
        for spec, part in zip(
            (*cut.inputs, *cut.outputs), (*cut.cut, *(True for _ in cut.outputs)), strict=True
        )
        if part
    }
    return len(sizes) == 1 and 1 not in sizes


_Rule = Callable[[Cut], Attrs | None]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("Unary", "Typecast", "Tilize", "Untilize", "FillPad"), _same),
    **dict.fromkeys(("BinaryNg", "Ternary"), _broadcast),
    **dict.fromkeys(("Permute", "Transpose"), _permute),
    **dict.fromkeys(("Reduce", "ArgMax", "TopK", "Sort", "CumSum", "Softmax"), _along),
    **dict.fromkeys(("Conv2d", "ConvTranspose2d", "Pool2d"), _window),
    **dict.fromkeys(
        ("Upsample", "GroupNorm", "BatchNorm", "CreateQkvHeads", "ConcatHeads", "Embeddings"),
        _outer,
    ),
    "Reshape": _reshape,
    "Slice": _slice,
    "Concat": _concat,
    "Pad": _pad,
    "Repeat": _repeat,
    "LayerNorm": _last_dim,
    "Matmul": _matmul,
    "Sdpa": _attention,
    "RotaryEmbedding": _rotary,
}
