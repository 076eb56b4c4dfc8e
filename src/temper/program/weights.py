"""Which operands of matmuls are weights that a format can change."""

from __future__ import annotations

from dataclasses import dataclass

from temper.program.program import Program

# What the compiler looks through from a matmul to its weight. Prepared or folded convolution
# weights are none that it converts, even where ttnn runs the convolution as a matmul.
_LAYOUT_ONLY = frozenset({"Transpose", "Permute", "Reshape", "Typecast", "Concat", "Repeat"})


@dataclass(frozen=True)
class MatmulWeight:
    """One operand of matmuls that comes from the model's parameters alone."""

    value: str
    paths: tuple[str, ...]  # parameters in it, several where projections were merged
    readers: tuple[int, ...]  # indices of the matmuls
    chain: tuple[int, ...]  # indices of the const ops that make it, in order


def matmul_weights(program: Program) -> list[MatmulWeight]:
    """In the order of use; vectors are no weights."""
    made = {name: i for i, op in enumerate(program.const_ops) for name in op.outputs}
    readers: dict[str, list[int]] = {}
    for index, op in enumerate(program.ops):
        if op.kind == "Matmul" and len(op.inputs) > 1:
            readers.setdefault(op.inputs[1], []).append(index)
    found = []
    for value, users in readers.items():
        traced = _trace(program, value, made)
        if traced is not None and len(program.spec(value).shape) >= 2:
            found.append(MatmulWeight(value, traced[0], tuple(users), traced[1]))
    return found


def _trace(
    program: Program, value: str, made: dict[str, int]
) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """Parameters and const ops behind a value, or None where anything else is."""
    chain: set[int] = set()
    paths: list[str] = []
    waiting = [value]
    while waiting:
        name = waiting.pop(0)
        if name in made:
            op = program.const_ops[made[name]]
            if op.kind not in _LAYOUT_ONLY:
                return None
            chain.add(made[name])
            waiting += op.inputs
        elif name in program.weights:
            paths.append(program.weights[name])
        else:
            return None
    return tuple(dict.fromkeys(paths)), tuple(sorted(chain))
