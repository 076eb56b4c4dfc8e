"""Ways in, outputs, changes and mistakes of compiled models."""

from __future__ import annotations

import copy
import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import temper
from temper.errors import CompileError, OutOfMemoryError, UsageError
from temper.formats import pcc
from temper.options import clear_custom_compile_options


class Net(nn.Module):
    """A small model with a convolution, a buffer and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 10)
        self.register_buffer("offset", torch.arange(10.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = F.max_pool2d(x, 2)
        return self.fc(x.flatten(1)) + self.offset


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    clear_custom_compile_options()
    yield
    clear_custom_compile_options()
    torch._dynamo.reset()


def make() -> tuple[nn.Module, torch.Tensor]:
    return Net().eval().to(torch.bfloat16), torch.randn(2, 3, 8, 8, dtype=torch.bfloat16)


def reference(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The same weights in float32, by eager torch."""
    with torch.no_grad():
        return copy.deepcopy(model).float()(x.float())


@pytest.mark.parametrize("level", [0, 1, 2])
def test_torch_compile_finds_the_backend_without_an_import_of_ours(level: int) -> None:
    model, x = make()
    compiled = torch.compile(model, backend="tt", options={"optimization_level": level})
    with torch.no_grad():
        out = compiled(x)
    assert out.dtype is torch.bfloat16
    assert pcc(reference(model, x), out.float()) > 0.999


def test_model_compile_in_place_works() -> None:
    model, x = make()
    expected = reference(model, x)
    model.compile(backend="tt")
    with torch.no_grad():
        assert pcc(expected, model(x).float()) > 0.999


def test_process_wide_options_reach_torch_compile() -> None:
    model, x = make()
    temper.set_custom_compile_options({"optimization_level": "2", "chip": "p150"})
    with torch.no_grad():
        torch.compile(model, backend="tt")(x)
    from temper.frontdoor.loaded import loaded_graphs

    assert loaded_graphs()[-1].program.chip == "p150"


@pytest.mark.parametrize("chip", ["e75", "e150", "n150", "n300", "p100", "p150"])
def test_every_chip_runs_the_model(chip: str) -> None:
    model, x = make()
    compiled = temper.compile(model, chip=chip, level=2)
    assert pcc(reference(model, x), compiled(x).float()) > 0.999
    assert compiled.loaded[0].cost().call_ns > 0


def test_the_third_call_replays_the_trace_and_results_stay_the_same() -> None:
    model, x = make()
    compiled = temper.compile(model, level=2, enable_trace=True)
    outputs = [compiled(x) for _ in range(4)]
    assert all(torch.equal(outputs[0], o) for o in outputs)
    stats = temper.stats(compiled)
    assert (stats["calls"], stats["replays"]) == (4, 2)
    assert stats["trace_bytes"] > 0


def test_warmup_runs_the_given_number_of_iterations() -> None:
    model, x = make()
    compiled = temper.compile(model)
    temper.warmup(compiled, x, iterations=3)
    assert temper.stats(compiled)["calls"] == 3
    with pytest.raises(UsageError):
        temper.warmup(compiled, x, iterations=0)


def test_each_shape_is_compiled_once_and_counted() -> None:
    model, _ = make()
    compiled = temper.compile(model, level=1)
    for batch in (2, 5, 2, 5, 1):
        assert compiled(torch.randn(batch, 3, 8, 8, dtype=torch.bfloat16)).shape == (batch, 10)
    assert compiled.compiles == 3


def test_dynamic_batches_work_through_torch_compile() -> None:
    model, _ = make()
    compiled = torch.compile(model, backend="tt")
    with torch.no_grad():
        for batch in (2, 3, 4, 7):
            x = torch.randn(batch, 3, 8, 8, dtype=torch.bfloat16)
            assert pcc(reference(model, x), compiled(x).float()) > 0.999


class Structured(nn.Module):
    """Returns a dict, takes keywords and a flag."""

    def forward(self, a: torch.Tensor, *, b: torch.Tensor, twice: bool = False) -> dict[str, Any]:
        total = a + b
        return {"sum": total * 2 if twice else total, "parts": (a, [b * 3]), "note": "text"}


def test_structures_keywords_and_flags_come_back_as_they_are() -> None:
    compiled = temper.compile(Structured().eval())
    a, b = torch.ones(4, 4), torch.full((4, 4), 2.0)
    out = compiled(a, b=b)
    assert out["note"] == "text"
    assert torch.equal(out["sum"], a + b)
    assert torch.equal(out["parts"][1][0], b * 3)
    assert torch.equal(compiled(a, b=b, twice=True)["sum"], 2 * (a + b))


@dataclasses.dataclass
class Answer:
    value: torch.Tensor
    count: int


class ReturnsDataclass(nn.Module):
    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(x * 2, 3)


def test_a_dataclass_output_works_through_torch_compile() -> None:
    with torch.no_grad():
        answer = torch.compile(ReturnsDataclass(), backend="tt")(torch.ones(3))
    assert answer.count == 3
    assert torch.equal(answer.value, torch.full((3,), 2.0))


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, 0] = 7
        x.add_(1)
        view = x[1:]
        view.mul_(2)
        return x


def test_in_place_ops_and_views_mean_what_they_mean_in_torch() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    assert torch.equal(temper.compile(InPlace().eval())(x), InPlace()(x))


class MutatesInput(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1


def test_a_mutated_input_is_written_back() -> None:
    x, y = torch.ones(4), torch.ones(4)
    out = temper.compile(MutatesInput().eval())(x)
    assert torch.equal(out, MutatesInput()(y))
    assert torch.equal(x, y)


class Integers(nn.Module):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = torch.where(mask, ids, torch.zeros_like(ids))
        return kept.sum(-1), kept.argmax(-1), mask.any(), ids % 3 == 0


def test_integers_and_booleans_are_exact() -> None:
    ids = torch.randint(0, 1000, (5, 37))
    mask = ids > 300
    for got, want in zip(
        temper.compile(Integers().eval())(ids, mask), Integers()(ids, mask), strict=True
    ):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)


class Breaks(nn.Module):
    """Python control flow on a value: no single graph."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        if float(y.sum()) > 1e9:
            y = y * 2
        return F.relu(y)


def test_a_model_that_needs_several_graphs_is_split() -> None:
    model = Breaks().eval()
    x = torch.randn(4, 8)
    compiled = temper.compile(model)
    with torch.no_grad():
        assert torch.allclose(compiled(x), model(x), atol=1e-2)
    assert len(compiled.loaded) == 2


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_both_inference_contexts_work(context: Any) -> None:
    model, x = make()
    compiled = torch.compile(model, backend="tt")
    with context():
        assert compiled(x).shape == (2, 10)


def test_training_mode_is_said() -> None:
    with pytest.warns(UserWarning, match="eval"):
        temper.compile(nn.Linear(4, 4).train())(torch.randn(2, 4))


class NoLowering(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x) + 1


def test_an_op_without_a_lowering_runs_on_the_host_and_is_shown() -> None:
    x = torch.eye(4) * 2
    compiled = temper.compile(NoLowering().eval())
    assert torch.allclose(compiled(x), NoLowering()(x))
    assert temper.stats(compiled)["host_ops"] >= 1


def test_with_fallback_off_it_is_an_error_naming_op_and_line() -> None:
    with pytest.raises(CompileError, match=r"linalg_inv.*\n.*test_compiled\.py"):
        temper.compile(NoLowering().eval(), fallback=False)(torch.eye(4))


def test_a_small_trace_region_is_an_error_with_the_bytes_needed() -> None:
    # The region is rounded up to 8 KiB a bank, 96 KiB on n150: it takes many ops to exceed it.
    layers = [m for _ in range(60) for m in (nn.Linear(32, 32), nn.Softmax(-1))]
    model = nn.Sequential(*layers).eval().bfloat16()
    with pytest.raises(OutOfMemoryError, match="trace"):
        temper.compile(model, enable_trace=True, trace_region_size=1024)(
            torch.randn(1, 32, dtype=torch.bfloat16)
        )


def test_a_model_larger_than_dram_is_refused_before_it_runs() -> None:
    with torch.device("meta"):
        model = nn.Linear(200_000, 60_000, bias=False, dtype=torch.bfloat16)
    model = model.to_empty(device="meta").eval()
    from temper.compiler.pipeline import compile_model

    with pytest.raises(OutOfMemoryError, match="DRAM"):
        compile_model(model, (torch.empty(1, 200_000, dtype=torch.bfloat16, device="meta"),))


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="enable_trace"):
        temper.compile(Net(), enable_tracing=True)


def test_threads_may_call_one_model() -> None:
    model, x = make()
    compiled = temper.compile(model, level=2)
    expected = compiled(x)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(10):
            if not torch.equal(compiled(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_dry_run_compiles_and_costs_but_returns_zeros() -> None:
    model, x = make()
    compiled = temper.compile(model, dry_run=True)
    assert not compiled(x).any()
    assert compiled.loaded[0].cost().call_ns > 0


def test_export_writes_program_and_counts(tmp_path: Path) -> None:
    model, x = make()
    counts = tmp_path / "metrics.json"
    temper.compile(
        model, level=2, export_path=str(tmp_path / "out"), export_model_name="net",
        export_tensors=True, ttnn_perf_metrics_enabled=True,
        ttnn_perf_metrics_output_file=str(counts),
    )(x)  # fmt: skip
    from temper.program.archive import load

    program, weights = load(tmp_path / "out" / "net_g0.temper")
    assert program.chip == "n150"
    assert "fc.weight" in weights
    written = json.loads((tmp_path / "metrics_0.json").read_text())
    assert written["total_ops"] == len(program.ops)


def test_the_device_tt_runs_compiled_graphs() -> None:
    model, x = make()
    expected = reference(model, x)
    moved = model.to("tt")
    with torch.no_grad():
        out = torch.compile(moved, backend="tt", options={"optimization_level": 1})(x.to("tt"))
    assert out.device.type == "tt"
    assert pcc(expected, out.cpu().float()) > 0.999
