"""Hand-made programs and runs with known numbers, independent of the compiler and cost model."""

from __future__ import annotations

from typing import Any

from temper.cost.records import OpCost, ProgramCost
from temper.program import Memory, Op, Program, Source, TensorSpec
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder
from temper.run.logs import run_from_logs
from temper.run.records import Run

MODEL_FILE = "/home/user/model.py"


def mlp(
    chip: str = "n150", *, layers: int = 2, host_op: bool = False, view: bool = False
) -> Program:
    """Linear + gelu layers: 512 rows, 1024 wide, weights in bfloat16; a view if asked."""
    values = {"x0": TensorSpec((512, 1024))}
    ops: list[Op] = []
    weights = {}
    for i in range(layers):
        weight, hidden, out = f"w{i}", f"h{i}", f"x{i + 1}"
        values[weight] = TensorSpec((1024, 1024))
        values[hidden] = TensorSpec((512, 1024), memory=Memory("sram"))
        values[out] = TensorSpec((512, 1024))
        weights[weight] = f"layers.{i}.weight"
        config = {
            "name": "MatmulMultiCoreReuseMultiCast", "grid": [8, 8], "in0_block_w": 4,
            "out_subblock_h": 1, "out_subblock_w": 4, "per_core_m": 2, "per_core_n": 4,
        }  # fmt: skip
        source = Source(f"layers.{i}", MODEL_FILE, 10 + i)
        attrs = {"fidelity": "HiFi4", "config": config}
        ops.append(Op("Matmul", (f"x{i}", weight), (hidden,), attrs, source))
        gelu = Source(f"activations.{i}", MODEL_FILE, 20 + i)
        ops.append(Op("Unary", (hidden,), (out,), {"functions": [["gelu"]]}, gelu))
    last = f"x{layers}"
    if host_op:
        values["y"] = TensorSpec((512, 1024), layout="row_major", memory=Memory("host"))
        ops.append(
            Op("Host", (last,), ("y",), {"target": "aten.erfcx"}, Source("head", MODEL_FILE, 40))
        )
        last = "y"
    if view:
        values["v"] = TensorSpec((2, 256, 1024))
        ops.insert(2, Op("Reshape", ("x1",), ("v",), {}, Source("view", MODEL_FILE, 50)))
    return Program("mlp", chip, values, tuple(ops), ("x0",), (last,), weights)


def cost(program: Program, *, traced: bool = False) -> ProgramCost:
    """Matmuls 50 µs (DRAM bound), everything else 10 µs; bands of 10%."""
    ops = []
    for op in program.ops:
        if op.kind == "Reshape":  # the cost model's word for a view: nothing runs
            ops.append(OpCost(0.0, 0.0, 0.0, 0.0, "launch", 0))
            continue
        kernel = 50_000.0 if op.kind == "Matmul" else 10_000.0
        bound = "host" if op.kind == "Host" else "dram" if op.kind == "Matmul" else "sfpu"
        ops.append(
            OpCost(
                kernel, kernel * 0.9, kernel * 1.1, 700.0, bound, 64, {"dram": 0.7, "compute": 0.4}
            )
        )
    device = sum(op.kernel_ns + op.gap_ns for op in ops) - 700.0
    host = 5_000.0 if traced else 20_000.0 * sum(op.cores > 0 for op in ops)
    call = max(device, host) + 30_000.0
    return ProgramCost(
        tuple(ops), device, device * 0.9, device * 1.1, host, 20_000.0, 10_000.0,
        call, call * 0.9, call * 1.1, 5e6,
    )  # fmt: skip


def run(
    *,
    calls: int = 3,
    chip: str = "n150",
    layers: int = 2,
    host_op: bool = False,
    view: bool = False,
    **meta: Any,
) -> Run:
    """One process: first call, untraced calls, then as many traced replays."""
    log = ProcessLog()
    recorder = Recorder(log)
    program = mlp(chip, layers=layers, host_op=host_op, view=view)
    plain = recorder.begin_program(program, cost(program), {"options": {"optimization_level": 1}})
    traced = recorder.begin_program(program, cost(program, traced=True))
    now = 1_000_000_000
    recorder.span("capture", now - 900_000, now - 500_000, "compile")
    recorder.span("passes", now - 500_000, now - 100_000, "compile")
    for i in range(calls):
        recorder.transfer("in", 1 << 20, now, now + 1000, 75_000.0, "x0")
        recorder.record_call(plain, now + 1000, now + 400_000, first_call=i == 0)
        now += 500_000
    recorder._add(3, 0, recorder._name("steady"), now - 1, now - 1)  # type: ignore[arg-type]
    for i in range(calls):
        recorder.record_call(traced, now, now + 300_000, traced=True, replay=i + 1)
        now += 400_000
    recorder.memory("dram", 4 << 20, 0x1000, "layers.0.weight", now)
    recorder.flush()
    log.close()
    return run_from_logs([log], **meta)
