"""The protocol between a loaded graph and what runs it."""

from __future__ import annotations

import torch

import temper
from temper.options import resolve
from temper.program import Op, Program, TensorSpec
from temper.targets.protocol import Load, Target, phase_of
from temper.targets.virtual.target import VirtualTarget


def doubled() -> Program:
    spec = TensorSpec((4, 32))
    return Program(
        "doubled",
        "n150",
        {"x": spec, "w": spec, "y": spec},
        (Op("BinaryNg", ("x", "w"), ("y",), {"function": "mul"}),),
        inputs=("x",),
        outputs=("y",),
        weights={"w": "scale"},
    )


def test_a_traced_program_goes_through_first_capture_and_replay() -> None:
    assert [phase_of(call, traced=True) for call in range(4)] == [
        "first",
        "capture",
        "replay",
        "replay",
    ]
    assert [phase_of(call, traced=False) for call in range(3)] == ["first", "warm", "warm"]


def test_the_virtual_chip_says_that_its_times_are_modelled_and_reads_weights_back() -> None:
    target: Target = VirtualTarget()
    program = doubled()
    scale = torch.full((4, 32), 2.0 + 2**-12)
    running = target.load(Load(program, {"scale": scale}, [torch.float32], resolve({})))
    running.prepare()
    (y,) = running.run([torch.ones(4, 32)], "first")
    assert target.timing == "modelled"
    assert torch.equal(y, torch.full((4, 32), 2.0))  # bfloat16 holds 2, not 2 + 2**-12
    assert torch.equal(running.read(["scale"])["scale"], scale.bfloat16().float())
    running.set_weights({"scale": torch.full((4, 32), 3.0)})
    assert running.run([torch.ones(4, 32)], "warm")[0][0, 0] == 3.0
    assert running.cost("warm").call_ns > running.cost("replay").call_ns > 0


def test_a_compiled_model_names_the_target_that_runs_it() -> None:
    compiled = temper.compile(torch.nn.Linear(32, 32).eval())
    compiled(torch.randn(2, 32))
    assert [graph.target.name for graph in compiled.loaded] == ["virtual"]
