"""What a plan's uploads hold: constants evaluated once on this host, and ops of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from temper.program import Op, Program
from temper.targets.ttnn.plan import CallPlan
from temper.targets.virtual.executor import Executor


def evaluate(
    program: Program,
    weights: Mapping[str, torch.Tensor],
    plan: CallPlan,
) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers of every constant that the plan uploads, by value name.

    Const-eval runs in float32 on the host, as for the virtual chip. Weights that ttnn prepares
    are given raw. State is no constant.
    """
    wanted = dict.fromkeys(upload.value for upload in plan.constants)
    names = [name for name in wanted if name not in program.state]
    run_time = {out for op in program.ops if op.kind == "PrepareConvWeight" for out in op.outputs}
    late = tuple(
        op for op in program.ops if op.kind == "PrepareConvWeight" and set(op.outputs) & set(names)
    )
    const_ops = (*program.const_ops, *late) if run_time & set(names) else program.const_ops
    part = program.replace(ops=(), inputs=(), const_ops=const_ops, outputs=tuple(names), state={})
    values = Executor(part, weights).run([])
    return {name: array_of(value) for name, value in zip(names, values, strict=True)}


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor as the worker takes it: float32, or int32."""
    plain = tensor.detach()
    kind = torch.float32 if plain.is_floating_point() else torch.int32
    return plain.to(kind).contiguous().numpy()


def host_op_runner(program: Program) -> Callable[[int, list[Any]], list[Any]]:
    """Runs an op of the host on operands from the device, by the virtual chip's kernel."""
    made: dict[int, Executor] = {}

    def run(index: int, operands: list[Any]) -> list[Any]:
        if index not in made:
            made[index] = Executor(alone(program, program.ops[index]), {})
        results = made[index].run([torch.from_numpy(np.array(a)) for a in operands])
        return [array_of(result) for result in results]

    return run


def alone(program: Program, op: Op) -> Program:
    """A program of one op, whose operands are its inputs."""
    inputs = tuple(dict.fromkeys(op.inputs))
    values = {name: program.spec(name) for name in (*inputs, *op.outputs)}
    return Program(f"{program.name}: {op.kind}", program.chip, values, (op,), inputs, op.outputs)
