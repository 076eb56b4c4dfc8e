"""Images that the host folds on their way up: the same numbers, less layout work on the chip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import temper
from temper.chips import get
from temper.compiler.pipeline import compile_model
from temper.cost import estimate
from temper.program.trace_size import op_trace_bytes

_LEVEL2 = {"optimization_level": 2, "enable_trace": True}


def _placed(conv: nn.Module, *shape: int, **options: object):
    x = torch.zeros(*shape, dtype=torch.bfloat16)
    model = conv.to(torch.bfloat16).eval()
    return compile_model(model, (x,), options={**_LEVEL2, **options}).programs[0]


@given(
    st.integers(1, 5), st.sampled_from([1, 2, 3, 4, 7]), st.integers(1, 4), st.integers(0, 3),
    st.integers(9, 17), st.integers(9, 17),
)  # fmt: skip
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_folded_stem_computes_what_torch_does(channels, kernel, stride, padding, height, width):
    torch.manual_seed(channels * 100 + kernel * 10 + stride)
    model = nn.Conv2d(channels, 8, kernel, stride, min(padding, kernel // 2)).eval()
    x = torch.randn(2, channels, height, width)
    got = temper.compile(model, optimization_level=1)(x)
    torch.testing.assert_close(got, model(x), rtol=2e-2, atol=2e-2)


def test_a_strided_stem_runs_on_folded_channels_without_a_permute():
    program = _placed(nn.Conv2d(3, 64, 7, 2, 3), 16, 3, 224, 224)
    kinds = [op.kind for op in program.ops]
    assert kinds[:4] == ["FoldImage", "Reshape", "Halo", "Conv2d"]
    conv = next(op for op in program.ops if op.kind == "Conv2d")
    assert (conv.attr("kernel"), conv.attr("stride")) == ([4, 4], [1, 1])
    assert conv.attr("in_channels") == 16
    # The host writes the convolution's shards; nothing is sharded on the chip.
    assert program.spec(program.ops[1].outputs[0]).memory.sharding == "height"


def test_patches_that_do_not_overlap_arrive_as_a_matrix():
    program = _placed(nn.Conv2d(3, 192, 16, 16), 4, 3, 224, 224)
    assert [op.kind for op in program.ops][:2] == ["FoldImage", "Matmul"]
    assert program.spec(program.ops[0].outputs[0]).shape == (1, 1, 4 * 14 * 14, 3 * 16 * 16)


def test_folding_is_charged_to_the_host_and_not_to_the_device():
    program = _placed(nn.Conv2d(3, 64, 7, 2, 3), 16, 3, 224, 224)
    cost = estimate(program, traced=True)
    fold = cost.ops[0]
    assert fold.bound == "host"
    assert fold.kernel_ns > 0
    assert cost.device_ns < cost.call_ns - fold.kernel_ns
    # 16 folded images of 115 x 115 x 16 bfloat16 values cross the link within the call.
    assert cost.call_ns > 16 * 115 * 115 * 16 * 2 / 32.0


def test_a_fold_is_counted_as_the_hosts_everywhere():
    """In rows of a profile, ``temper.stats``, the cost model and the size of the trace."""
    model = nn.Conv2d(3, 64, 7, 2, 3).eval().to(torch.bfloat16)
    compiled = temper.compile(model, **_LEVEL2)
    with torch.no_grad(), temper.profile() as session:
        compiled(torch.randn(1, 3, 64, 64, dtype=torch.bfloat16))
    program, cost = compiled.loaded[0].program, compiled.loaded[0].cost()
    host = [op for op, c in zip(program.ops, cost.ops, strict=True) if c.bound == "host"]
    assert "FoldImage" in {op.kind for op in host}
    assert program.host_ops == host
    assert temper.stats(compiled)["host_ops"] == len(host)
    assert temper.stats(compiled)["device_ops"] == len(program.ops) - len(host)
    assert sum(op.info.is_host for op in session.run.op_records()) == len(host)
    traced = [op_trace_bytes(op, program, get(program.chip)) > 0 for op in program.ops]
    assert traced == [c.bound != "host" for c in cost.ops]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_image_that_two_ops_read_stays_as_it_is(level):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(3, 8, 5, 2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) + self.b(x)

    torch.manual_seed(0)
    model, x = Two().eval(), torch.randn(1, 3, 32, 32)
    got = temper.compile(model, optimization_level=level)(x)
    torch.testing.assert_close(got, model(x), rtol=2e-2, atol=2e-2)
