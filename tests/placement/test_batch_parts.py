"""Parts of a batch: the same numbers, only where ops keep images apart, and no cliff."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper import chips
from temper.compiler.pipeline import compile_model
from temper.cost import estimate
from temper.errors import OutOfMemoryError
from temper.placement.batch_parts import cut_batch
from temper.placement.place import place_with_report
from temper.program import verify
from temper.targets.fold import fold_inputs, sent_values
from temper.targets.virtual.executor import Executor

_BFP8 = {"activation_dtype": "bfloat8_b", "conv_weight_dtype": "bfloat8_b", "math_fidelity": "LoFi"}


class _Cnn(nn.Module):
    """Convolutions, a skip, squeeze and excitation, pools, an upsampling and a join."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.deep = nn.Conv2d(32, 32, 3, padding=1)
        self.wide = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.squeeze = nn.Linear(32, 32)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        x = x + F.max_pool2d(F.relu(self.deep(x)), 3, 1, 1)
        x = x * torch.sigmoid(self.squeeze(x.mean((2, 3))))[:, :, None, None]
        small = F.interpolate(F.avg_pool2d(self.wide(x), 2), scale_factor=2.0)
        return self.head(torch.cat([x, small], 1).mean((2, 3)))


class _Encoder(nn.Module):
    """A layer of torch's own kind, then logits of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 64)
        self.layer = nn.TransformerEncoderLayer(64, 2, 128, 0.0, batch_first=True)
        self.token = nn.Parameter(torch.randn(1, 1, 64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + torch.arange(32.0)[None, :, None].to(torch.bfloat16)
        return self.layer(torch.cat([self.token.expand(ids.shape[0], -1, -1), x], 1))


class _Mixed(nn.Module):
    """Its second line looks at all samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x) * 2
        x = x - x.mean(0, keepdim=True)
        return torch.sigmoid(x)


def _built(model: nn.Module, x: torch.Tensor, **options):
    return compile_model(
        model.eval().to(torch.bfloat16), (x,),
        options={"optimization_level": 1, "chip": "n150", "compile_cache": False, **options},
    ).graphs[0]  # fmt: skip


def _unplaced(model: nn.Module, x: torch.Tensor, *, means_apart: bool = False):
    """The program as placement gets it, and the model's weights.

    ``means_apart``: images are averaged by reductions, never by one matrix for the whole batch.
    """
    given = []

    def seen(program, *rest):
        given.append(program)
        return place_with_report(program, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("temper.compiler.pipeline.place_with_report", seen)
        if means_apart:
            patch.setattr("temper.lowering.averages._MOST", 0)
        built = _built(model, x)
    return given[0], built.weights


def _image(batch: int, size: int = 16) -> torch.Tensor:
    return torch.randn(batch, 3, size, size).to(torch.bfloat16)


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("name", ["cnn", "encoder"])
def test_every_cut_gives_the_same_numbers(name, parts):
    torch.manual_seed(0)
    model, x = (_Cnn(), _image(8)) if name == "cnn" else (_Encoder(), torch.randint(0, 50, (8, 32)))
    whole, weights = _unplaced(model, x, means_apart=True)
    wanted = Executor(whole, weights).run([x])
    found = cut_batch(whole, parts)
    assert found is not None
    assert found.stop == len(whole.ops)  # no op of these mixes samples
    ends = found.ends()
    assert len(ends) > 5
    for end in ends[:: max(1, len(ends) // 6)] + ends[-1:]:
        program = found.build(end)
        verify(program)
        for got, want in zip(Executor(program, weights).run([x]), wanted, strict=True):
            assert torch.equal(got, want)


def test_nothing_is_cut_from_the_op_on_that_looks_at_all_samples():
    whole, _ = _unplaced(_Mixed(), torch.randn(8, 64, 32).to(torch.bfloat16))
    found = cut_batch(whole, 2)
    assert found is not None
    kinds = [op.kind for op in whole.ops]
    assert kinds[found.stop] == "Reduce"
    assert all(kind != "Reduce" for kind in kinds[: found.stop])


def test_nothing_is_cut_from_the_matrix_on_that_averages_all_images():
    whole, weights = _unplaced(_Cnn(), x := _image(8))
    found = cut_batch(whole, 2)
    assert found is not None
    assert "average" in whole.ops[found.stop].inputs[0]
    program = found.build(found.ends()[-1])
    got, want = (Executor(p, weights).run([x])[0] for p in (program, whole))
    assert torch.equal(got, want)


def test_a_batch_that_is_no_multiple_is_not_cut():
    whole, _ = _unplaced(_Mixed(), torch.randn(9, 64, 32).to(torch.bfloat16))
    assert cut_batch(whole, 2) is None


def test_the_host_sends_each_part_of_an_image_by_itself():
    torch.manual_seed(0)
    x = _image(4)
    plain, _ = _unplaced(_Cnn(), x)
    found = cut_batch(plain, 2)
    assert found is not None
    program = found.build(found.ends()[-1])
    whole = fold_inputs(plain, [x.float().numpy()])[0]
    sent = fold_inputs(program, [x.float().numpy()])
    assert len(sent) == len(sent_values(program)) == 2
    rows = whole.shape[-2] // 2
    assert (sent[0].ravel() == whole[..., :rows, :].ravel()).all()
    assert (sent[1].ravel() == whole[..., rows:, :].ravel()).all()


def test_a_batch_too_large_for_sram_runs_in_parts_as_fast_as_one_that_fits():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1),
    )  # fmt: skip
    rates, reports = [], []
    for batch in (8, 32):
        built = _built(model, _image(batch, 224), optimization_level=2, enable_trace=True,
                       **_BFP8)  # fmt: skip
        rates.append(batch / estimate(built.program, traced=True).device_ns)
        reports.append(built.placement)
    assert reports[1].parts > 1
    assert f"{reports[1].parts} parts of the batch" in reports[1].headline
    assert rates[1] > 0.9 * rates[0]


def test_what_does_not_fit_is_named_with_its_cost():
    torch.manual_seed(0)
    whole, _ = _unplaced(_Cnn(), _image(8, 64))
    _, report = place_with_report(
        whole, chips.get("n150"), 2, {"sram_usage_cap": 0.03, "enable_trace": True}
    )
    if not report.fallback:
        assert report.short
        worst = report.short[0]
        assert worst.short_ns == max(value.short_ns for value in report.values)
        assert worst.name in report.headline
    assert report.headline


def test_a_plan_that_the_allocator_refuses_is_made_anew_with_room_to_spare(monkeypatch):
    torch.manual_seed(0)
    whole, _ = _unplaced(_Cnn(), _image(8, 64))
    walked = []

    def check(program, *rest):
        walked.append(program)
        if len(walked) == 1:
            raise OutOfMemoryError("stem does not fit in SRAM.")

    monkeypatch.setattr("temper.placement.place._check", check)
    _, report = place_with_report(whole, chips.get("n150"), 2, {"enable_trace": True})
    assert len(walked) == 3  # refused, planned anew, walked once more at the end
    assert not report.fallback
    assert report.in_sram
