"""What the executor promises beyond single ops: memory, weights, threads, observers, host ops."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch

from temper.errors import CompileError, UsageError
from temper.program import Op, Program, TensorSpec
from temper.targets.virtual.executor import Executor

S = TensorSpec


def chain(*ops: Op, shape: tuple[int, ...] = (4, 33), **more: object) -> Program:
    """A program of ops over values of one shape; x is the input, the last output is the result."""
    names = {"x"} | {n for op in ops for n in (*op.inputs, *op.outputs)}
    values = {name: S(shape) for name in names}
    return Program("p", "n150", values, ops, ("x",), (ops[-1].outputs[0],), **more)  # type: ignore[arg-type]


def add(a: str, b: str, out: str) -> Op:
    return Op("BinaryNg", (a, b), (out,), {"function": "add"})


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).to(torch.bfloat16)


def test_results_are_not_overwritten_by_the_next_call() -> None:
    executor = Executor(chain(add("x", "x", "y")), {})
    first, second = bf16(4, 33), bf16(4, 33)
    (kept,) = executor.run([first])
    executor.run([second])
    assert torch.equal(kept, (first + first).float())


def test_an_output_that_is_an_input_is_a_copy() -> None:
    executor = Executor(chain(Op("Reshape", ("x",), ("y",))), {})
    x = torch.randn(4, 33)
    (y,) = executor.run([x])
    y.zero_()
    assert torch.equal(executor.run([x])[0], x.bfloat16().float())


def test_a_value_read_again_later_survives_the_reuse_of_memory() -> None:
    ops = [add("x", "x", "a"), add("a", "x", "b"), add("b", "a", "c"), add("c", "b", "y")]
    executor = Executor(chain(*ops), {})
    x = torch.ones(4, 33)
    assert executor.run([x])[0].unique().tolist() == [8.0]


def test_an_operand_is_not_overwritten_through_its_transpose() -> None:
    ops = (Op("Transpose", ("x",), ("t",)), add("x", "t", "y"))
    x = torch.arange(25.0).view(5, 5)
    (y,) = Executor(chain(*ops, shape=(5, 5)), {}).run([x])
    assert torch.equal(y, x + x.T)


def test_dead_values_give_their_memory_back() -> None:
    ops = [add(f"v{i}" if i else "x", "x", f"v{i + 1}") for i in range(50)]
    executor = Executor(chain(*ops, shape=(64, 1024)), {})
    assert executor.pool_bytes <= 4 * 64 * 1024 * 4


def test_inputs_are_rounded_to_their_format_at_the_edge() -> None:
    x = torch.tensor([[1.0 + 2**-9, 1.0 + 3 * 2**-9]])
    (y,) = Executor(chain(Op("Copy", ("x",), ("y",)), shape=(1, 2)), {}).run([x])
    assert y.tolist() == [[1.0, 1.0 + 2**-7]]


def test_outputs_come_in_the_dtypes_asked_for() -> None:
    program = chain(Op("Unary", ("x",), ("y",), {"functions": [["gt", 0.0]]}))
    (y,) = Executor(program, {}, output_dtypes=[torch.bool]).run([bf16(4, 33)])
    assert y.dtype == torch.bool


def test_changed_weights_run_the_constant_ops_again() -> None:
    program = Program(
        "p", "n150",
        {"x": S((4, 32)), "w": S((16, 32)), "t": S((32, 16)), "q": S((32, 16), "bfloat8_b"),
         "y": S((4, 16))},
        (Op("Matmul", ("x", "q"), ("y",), {"fidelity": "LoFi"}),), ("x",), ("y",),
        {"w": "fc.weight"},
        (Op("Permute", ("w",), ("t",), {"dims": [1, 0]}), Op("Typecast", ("t",), ("q",))),
    )  # fmt: skip
    x, one, two = bf16(4, 32), bf16(16, 32), bf16(16, 32)
    executor = Executor(program, {"fc.weight": one})
    before = executor.run([x])[0]
    executor.set_weights({"fc.weight": two})
    assert torch.equal(executor.run([x])[0], Executor(program, {"fc.weight": two}).run([x])[0])
    executor.set_weights({"fc.weight": one})
    assert torch.equal(executor.run([x])[0], before)


def test_a_weight_that_is_missing_is_named() -> None:
    program = chain(add("x", "w", "y"), weights={"w": "layer.weight"})
    with pytest.raises(UsageError, match=r"layer\.weight"):
        Executor(program, {})


def test_ops_over_constants_alone_do_not_run_at_every_call() -> None:
    program = chain(
        Op("Full", (), ("c",), {"value": 2.0}), add("c", "w", "d"), add("x", "d", "y"),
        weights={"w": "w"},
    )  # fmt: skip
    executor = Executor(program, {"w": torch.ones(4, 33)})
    assert len(executor._steps) == 1
    assert torch.equal(executor.run([torch.zeros(4, 33)])[0], torch.full((4, 33), 3.0))


def test_the_observer_sees_every_op_with_its_times() -> None:
    executor = Executor(chain(add("x", "x", "a"), Op("Reshape", ("a",), ("y",))), {})
    seen: list[tuple[int, str, bool]] = []
    executor.observer = lambda i, op, start, end: seen.append((i, op.kind, end >= start))
    executor.run([bf16(4, 33)])
    assert seen == [(0, "BinaryNg", True), (1, "Reshape", True)]
    executor.observer = None
    executor.run([bf16(4, 33)])
    assert len(seen) == 2


def test_calls_from_several_threads_do_not_mix() -> None:
    executor = Executor(chain(add("x", "x", "a"), add("a", "x", "y"), shape=(64, 256)), {})
    wrong: list[int] = []

    def work(number: int) -> None:
        x = torch.full((64, 256), float(number))
        for _ in range(50):
            if not bool((executor.run([x])[0] == 3 * number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_inference_mode_built_runs_outside_of_it_and_the_other_way_round() -> None:
    program = chain(add("x", "w", "a"), add("a", "w", "y"), weights={"w": "w"})
    x = torch.ones(4, 33)
    with torch.inference_mode():
        executor = Executor(program, {"w": torch.ones(4, 33)})
        executor.run([x])
    assert executor.run([x])[0].unique().tolist() == [3.0]
    executor.set_weights({"w": torch.zeros(4, 33)})
    with torch.inference_mode():
        assert executor.run([x])[0].unique().tolist() == [1.0]


def test_autocast_around_a_call_changes_nothing() -> None:
    program = Program(
        "p", "n150", {"x": S((4, 8)), "w": S((8, 8)), "y": S((4, 8))},
        (Op("Matmul", ("x", "w"), ("y",)),), ("x",), ("y",), {"w": "w"},
    )  # fmt: skip
    x, w = bf16(4, 8), bf16(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        (inside,) = Executor(program, {"w": w}).run([x])
    assert torch.equal(inside, Executor(program, {"w": w}).run([x])[0])


def test_a_host_op_calls_the_named_operator_with_its_arguments() -> None:
    host = Op(
        "Host", ("x",), ("y",),
        {"target": "aten.roll.default", "args": [{"input": 0}, [1], [1]], "kwargs": {}},
    )  # fmt: skip
    x = bf16(4, 33)
    assert torch.equal(Executor(chain(host), {}).run([x])[0], torch.roll(x.float(), 1, 1))


def test_a_host_op_converts_operands_and_names_dtypes() -> None:
    attrs = {
        "target": "aten.sum.dim_IntList",
        "args": [{"input": 0, "dtype": "bool"}, [0], True],
        "kwargs": {"dtype": {"dtype": "float32"}},
    }
    program = Program("p", "n150", {"x": S((4, 3)), "y": S((1, 3))},
                      (Op("Host", ("x",), ("y",), attrs),), ("x",), ("y",))  # fmt: skip
    (y,) = Executor(program, {}).run([torch.tensor([[2.0, 0, 1]] * 4)])
    assert y.tolist() == [[4.0, 0.0, 4.0]]


@pytest.mark.parametrize(
    "target", ["os.system", "aten.__class__", "prims.add", "aten.no_such_op", "aten"]
)
def test_a_host_op_reaches_operators_only(target: str) -> None:
    with pytest.raises(CompileError):
        Executor(chain(Op("Host", ("x",), ("y",), {"target": target, "args": []})), {})


def test_replay_overhead_is_below_five_microseconds_an_op() -> None:
    ops = [add(f"v{i}" if i else "x", "x", f"v{i + 1}") for i in range(400)]
    executor = Executor(chain(*ops, shape=(1, 8)), {})
    x = torch.zeros(1, 8)
    executor.run([x])
    best = min(_timed(executor, x) for _ in range(30))
    assert best / len(ops) < 5000


def _timed(executor: Executor, x: torch.Tensor) -> int:
    start = time.thread_time_ns()
    executor.run([x])
    return time.thread_time_ns() - start


def test_without_the_native_library_the_numbers_are_the_same() -> None:
    code = """
import torch
from tests.targets.op_cases import data, program
from tests.targets.op_cases_compute import COMPUTE
from tests.targets.op_cases_data import DATA
from temper.targets.virtual.executor import Executor
total = []
for case in [*COMPUTE, *DATA]:
    for y in Executor(program(case), {}).run([torch.from_numpy(a) for a in data(case)]):
        total.append(float(y.double().abs().nan_to_num(0, 0, 0).sum()))
print(total)
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"TEMPER_PURE": pure, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=True, cwd=_root(),
        ).stdout
        for pure in ("0", "1")
    ]  # fmt: skip
    native, pure = (torch.tensor(eval_floats(text)) for text in runs)
    assert torch.allclose(native, pure, rtol=2e-3)


def _root() -> str:
    from pathlib import Path

    return str(Path(__file__).parents[2])


def eval_floats(text: str) -> list[float]:
    return [float(word) for word in text.strip()[1:-1].split(",")]
