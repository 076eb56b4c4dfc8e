"""The verifier finds what is wrong with a program, and passes sound ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from random_programs import small_program

from temper.errors import CompileError
from temper.program import SRAM, Memory, Op, Program, TensorSpec, problems, verify


def with_value(name: str, spec: TensorSpec) -> Callable[[Program], Program]:
    return lambda p: p.replace(values={**p.values, name: spec})


def with_shards(
    name: str, shape: tuple[int, int], grid: tuple[int, int], shard: tuple[int, int]
) -> Callable[[Program], Program]:
    return with_value(name, TensorSpec(shape, memory=Memory("sram", "height", grid, shard)))


def with_op(index: int, **changes: Any) -> Callable[[Program], Program]:
    def change(p: Program) -> Program:
        ops = list(p.ops)
        ops[index] = replace(ops[index], **changes)
        return p.replace(ops=tuple(ops))

    return change


def single(kind: str, inputs: list[TensorSpec], output: TensorSpec, **attrs: Any) -> Program:
    names = tuple(f"in{i}" for i in range(len(inputs)))
    values = {**dict(zip(names, inputs, strict=True)), "out": output}
    return Program("p", "n150", values, (Op(kind, names, ("out",), attrs),), names, ("out",))


def test_a_sound_program_has_no_problems() -> None:
    assert problems(small_program()) == []
    verify(small_program())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p.replace(chip="n151"), "unknown chip 'n151'"),
        (lambda p: p.replace(inputs=()), "%x is used before it is defined"),
        (lambda p: p.replace(inputs=("x", "x")), "%x is given twice"),
        (lambda p: p.replace(outputs=("3",)), "returns %3, which nothing defines"),
        (lambda p: p.replace(ops=p.ops[::-1]), "%0 is used before it is defined"),
        (lambda p: p.replace(ops=(*p.ops, p.ops[0])), "%0 is defined twice"),
        (lambda p: p.replace(values={k: v for k, v in p.values.items() if k != "w"}), "no spec"),
        (
            lambda p: p.replace(const_ops=(Op("Typecast", ("x",), ("b2",)),)),
            "the const-eval part reads %x",
        ),
        (with_op(0, kind="MatMul"), "unknown kind of op 'MatMul'; near: Matmul"),
        (with_op(0, inputs=("x",)), "1 operands; Matmul takes 2 to 3"),
        (with_op(1, outputs=("1", "2", "4")), "3 results; TopK gives 1 to 2"),
        (with_op(0, attrs={"fidelty": "LoFi"}), "unknown attribute 'fidelty'; near: fidelity"),
        (with_op(0, attrs={"fidelity": "hifi2"}), "allowed are LoFi HiFi2 HiFi3 HiFi4"),
        (with_op(0, attrs={"transpose_a": 1}), "attribute transpose_a is 1; expected bool"),
        (with_op(1, attrs={"k": True}), "attribute k is True; expected int"),
        (with_value("w", TensorSpec((785, 128))), "inner sizes differ: 784 of [64, 784] and 785"),
        (with_value("b2", TensorSpec((64, 2))), "%b2 = Typecast: the result is [64, 2]"),
        (with_value("x", TensorSpec((64, -1))), "negative size"),
        (
            with_shards("0", (64, 128), (1, 1), (32, 128)),
            "shards cover 32x128 of 64x128",
        ),
        (
            with_shards("0", (64, 128), (9, 1), (32, 128)),
            "the grid 9x1 is larger than the chip's 8x8",
        ),
        (
            with_shards("0", (64, 128), (2, 2), (16, 128)),
            "not made of whole tiles",
        ),
        (
            with_shards("0", (64, 128), (0, 2), (32, 128)),
            "sizes of at least 1",
        ),
        (
            with_shards("1", (2048, 1024), (1, 1), (2048, 1024)),
            "B of SRAM a core",
        ),
        (with_value("1", TensorSpec((65536, 1024), memory=SRAM)), "B of SRAM"),
    ],
)
def test_each_mistake_is_named(change: Callable[[Program], Program], words: str) -> None:
    found = problems(change(small_program()))
    assert any(words in problem for problem in found), found
    with pytest.raises(CompileError, match="not well formed"):
        verify(change(small_program()))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            single("BinaryNg", [TensorSpec((3, 4)), TensorSpec((5, 4))], TensorSpec((3, 4))),
            "do not broadcast",
        ),
        (
            single("BinaryNg", [TensorSpec((3, 4)), TensorSpec((4,))], TensorSpec((4, 4))),
            "not [3, 4]",
        ),
        (single("Reshape", [TensorSpec((3, 4))], TensorSpec((5,))), "5 values, the operand 12"),
        (single("Concat", [TensorSpec((3,)), TensorSpec((4,))], TensorSpec((8,))), "operands 7"),
        (single("Permute", [TensorSpec((3, 4))], TensorSpec((4, 3)), dims=[0, 0]), "no order"),
        (single("Permute", [TensorSpec((3, 4))], TensorSpec((3, 4)), dims=[1, 0]), "not [4, 3]"),
        (
            single("Tilize", [TensorSpec((3,))], TensorSpec((3,), layout="row_major")),
            "not in tiles",
        ),
        (single("Untilize", [TensorSpec((3,))], TensorSpec((3,))), "not row-major"),
        (single("Reshard", [TensorSpec((3,))], TensorSpec((3,))), "is not sharded"),
        (
            single("Matmul", [TensorSpec((3, 4)), TensorSpec((4, 5))], TensorSpec((3, 6))),
            "6 wide, not 5",
        ),
    ],
)
def test_shapes_and_layouts_are_checked_by_kind(program: Program, words: str) -> None:
    assert any(words in problem for problem in problems(program)), problems(program)


def test_sound_ops_of_these_kinds_pass() -> None:
    row_major = TensorSpec((3, 4), layout="row_major")
    # A strided 1x1 window skips rows, so the halo need not hold all of them.
    shards = Memory("sram", "height", (2, 2), (111, 32))
    halo = TensorSpec((1, 1, 512, 32), layout="row_major", memory=shards)
    for program in (
        single("BinaryNg", [TensorSpec((3, 1)), TensorSpec((2, 1, 4))], TensorSpec((2, 3, 4))),
        single("Matmul", [TensorSpec((2, 3, 4)), TensorSpec((5, 4))], TensorSpec((2, 3, 5)),
               transpose_b=True),
        single("Permute", [TensorSpec((2, 3, 4))], TensorSpec((4, 2, 3)), dims=[-1, 0, 1]),
        single("Untilize", [TensorSpec((3, 4))], row_major),
        single("Concat", [row_major] * 5, TensorSpec((15, 4), layout="row_major")),
        single("Halo", [TensorSpec((1, 1, 512, 32))], halo, batch=1, in_h=16, in_w=32),
        single("Full", [], TensorSpec((7,)), value=float("-inf")),
    ):  # fmt: skip
        assert problems(program) == []


def test_many_problems_are_counted() -> None:
    broken = small_program().replace(inputs=(), weights={}, const_ops=(), outputs=("q", "r", "s"))
    with pytest.raises(CompileError, match="and 1 more"):
        verify(broken)
