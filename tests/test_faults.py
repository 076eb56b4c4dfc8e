"""Small deliberate faults, and the check that notices each.

A check states something about Temper's figures that comes from outside the code: arithmetic,
a published number, eager torch. Each is run twice: as the code stands it passes, with the fault
put in it must fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx, nn

import temper
from temper.chips import get
from temper.compiler.pipeline import compile_model
from temper.cost import estimate, families, host, model
from temper.cost.records import Context
from temper.cost.work import Work
from temper.formats.measures import agreement
from temper.options import Options
from temper.passes import batch_norm
from temper.program import Op, Program, TensorSpec
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder
from temper.report import summary
from temper.report.advice import Advice
from temper.report.advise_run import advise_run
from temper.run.calls import ALL
from temper.run.logs import run_from_logs
from temper.run.opening import profile_of_run
from temper.run.records import Run

N150 = get("n150")


def decode(layers: int = 4) -> Program:
    """One token through wide layers: every matmul waits for its 32 MiB of weights."""
    values = {"x0": TensorSpec((32, 4096))}
    ops, weights = [], {}
    for i in range(layers):
        values |= {f"w{i}": TensorSpec((4096, 4096)), f"x{i + 1}": TensorSpec((32, 4096))}
        ops.append(Op("Matmul", (f"x{i}", f"w{i}"), (f"x{i + 1}",), {"fidelity": "HiFi2"}))
        weights[f"w{i}"] = f"layers.{i}.weight"
    return Program("decode", "n150", values, tuple(ops), ("x0",), (f"x{layers}",), weights)


def small_ops(count: int) -> Program:
    values = {f"x{i}": TensorSpec((32, 32)) for i in range(count + 1)}
    relu = {"functions": [["relu"]]}
    ops = tuple(Op("Unary", (f"x{i}",), (f"x{i + 1}",), relu) for i in range(count))
    return Program("small", "n150", values, ops, ("x0",), (f"x{count}",))


def recorded(program: Program) -> Run:
    log = ProcessLog()
    recorder = Recorder(log)
    meta = {"options": {"optimization_level": [1, "options"]}}
    handle = recorder.begin_program(program, estimate(program), meta)
    for i in range(4):
        recorder.record_call(handle, 1000 * i, 1000 * i + 500, traced=False, replay=i)
    recorder.flush()
    return run_from_logs([log])


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(64, 32)), nn.Parameter(torch.randn(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w + self.b


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


def block() -> tuple[Block, torch.Tensor]:
    torch.manual_seed(0)
    return Block().eval().bfloat16(), torch.randn(2, 8, 16, 16).bfloat16()


def check_noc_of_a_convolution() -> None:
    """3x3, 64 to 64 channels, 56x56: 3,136 positions are 98 tiles, two a core on 64 cores.

    Each of a core's 64 positions is read in 3 rows of 3 x 64 x 2 B = 384 B: 13.5 ns at 28.4 GB/s,
    less than the 18.5 ns that one request takes to issue. 64 x 3 x 18.5 ns = 3,552 ns.
    """
    attrs = {"kernel": [3, 3], "padding": [1, 1, 1, 1], "in_h": 56, "in_w": 56}
    attrs |= {"in_channels": 64, "out_channels": 64}
    op = Op("Conv2d", ("x", "w"), ("y",), attrs)
    tensor = TensorSpec((1, 1, 3136, 64))
    work = Work(op, (tensor, TensorSpec((64, 64, 3, 3))), (tensor,), N150, Context())
    assert families.physics(work).overlap["noc"] == pytest.approx(3552.0)


def check_dispatch() -> None:
    """Wormhole enqueues an untraced program in 44 us (public GEMM tables, traced less untraced)."""
    more, fewer = (estimate(small_ops(n)).call_ns for n in (60, 40))
    assert (more - fewer) / 20 == pytest.approx(44_000, rel=0.15)


def check_band_beyond_what_was_measured() -> None:
    """4 G values are far beyond any public row: the band is wider than that of 1 M values."""
    op = Op("Unary", ("x",), ("y",), {"functions": [["relu"]]})

    def width(side: int) -> float:
        tensor = TensorSpec((side, side))
        cost = model._estimate(op, (tensor,), (tensor,), N150, Context())
        return math.log(cost.high_ns / cost.kernel_ns)

    assert width(65_536) > 1.3 * width(1024)


def check_memory_of_a_report() -> None:
    """Four weights of 32 MiB stay; beside them at most three activations of 256 KiB."""
    shown = summary.summarise(profile_of_run(recorded(decode()), "decode", ALL))
    dram = next(high for high in shown.memory if "dram" in high.pool.lower())
    assert 4 * 2**25 <= dram.size_bytes <= 1.01 * (4 * 2**25 + 3 * 2**18)


def check_gain_of_advice() -> None:
    """Time cannot fall further than bytes: bfloat8_b weights have 1,088 of 2,048 B a tile."""
    found = next(item for item in advise_run(recorded(decode())) if "bfloat8_b" in item.title)
    assert 0 < found.gain_ns <= 1.02 * (1 - 1088 / 2048) * found.now_ns


def check_fusion_option() -> None:
    """A matmul and its bias written by hand are one op with the pass, two without."""
    torch.manual_seed(0)
    x = torch.randn(32, 64).bfloat16()
    counts = {}
    for on in (True, False):
        options = {"optimization_level": 1, "tt_enable_torch_fx_fusion_pass": on}
        made = compile_model(Biased().eval().bfloat16(), (x,), options=options)
        counts[on] = len(made.graphs[0].program.ops)
    assert counts == {True: 1, False: 2}


def check_scale_of_a_batch_norm() -> None:
    net, x = block()
    with torch.no_grad():
        expected = net.float()(x.float())
    found = agreement(temper.compile(net.bfloat16(), level=1)(x).float(), expected)
    assert found.scale == pytest.approx(1.0, abs=0.02)


def noc_times_3(patch: pytest.MonkeyPatch) -> None:
    right = families.PHYSICS["conv2d"]

    def wrong(work: Work) -> Any:
        terms = right(work)
        return replace(terms, overlap={**terms.overlap, "noc": 3 * terms.overlap["noc"]})

    patch.setitem(families.PHYSICS, "conv2d", wrong)  # type: ignore[arg-type]


def dispatch_times_2(patch: pytest.MonkeyPatch) -> None:
    right = host.dispatch_ns
    patch.setattr(host, "dispatch_ns", lambda *args: 2 * right(*args))


def no_widening(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model, "EXTRAPOLATED", 1.0)


def memory_times_2(patch: pytest.MonkeyPatch) -> None:
    right = summary._memory
    patch.setattr(
        summary,
        "_memory",
        lambda run: [replace(high, size_bytes=2 * high.size_bytes) for high in right(run)],
    )


def gain_times_10(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Advice, "gain_ns", property(lambda s: 10 * (s.now_ns - s.then_ns)))


def fusion_ignored(patch: pytest.MonkeyPatch) -> None:
    right = Options.__getitem__

    def read(options: Options, name: str) -> Any:
        return True if name == "tt_enable_torch_fx_fusion_pass" else right(options, name)

    patch.setattr(Options, "__getitem__", read)


def batch_norm_times_2(patch: pytest.MonkeyPatch) -> None:
    right = batch_norm._fold

    def wrong(graph: fx.Graph, node: fx.Node, conv: fx.Node) -> None:
        # The fresh variance is 1: this eps makes 1 / sqrt(var + eps) twice as large.
        node.args = (*node.args[:-1], (1 + float(node.args[-1])) / 4 - 1)  # type: ignore[arg-type]
        right(graph, node, conv)

    patch.setattr(batch_norm, "_fold", wrong)


FAULTS: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "convolution NoC time times 3": (check_noc_of_a_convolution, noc_times_3),
    "host dispatch times 2": (check_dispatch, dispatch_times_2),
    "band widening off": (check_band_beyond_what_was_measured, no_widening),
    "report memory times 2": (check_memory_of_a_report, memory_times_2),
    "advice gain times 10": (check_gain_of_advice, gain_times_10),
    "fusion option ignored": (check_fusion_option, fusion_ignored),
    "batch norm times 2": (check_scale_of_a_batch_norm, batch_norm_times_2),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_small_fault_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TEMPER_CACHE", "0")
    check, fault = FAULTS[name]
    check()
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check()
