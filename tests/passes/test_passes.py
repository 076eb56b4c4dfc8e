"""Each pass: what it turns a hand-written pattern into, and that the numbers stay."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.compiler.pipeline import Built, compile_model
from temper.formats import pcc
from temper.targets.virtual.executor import Executor

Forward = Callable[[torch.Tensor], torch.Tensor]


class Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[..., Any], **parameters: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def build(model: nn.Module, *args: torch.Tensor, level: int = 1, **options: Any) -> Built:
    torch.manual_seed(0)
    made = copy.deepcopy(model).eval().bfloat16()
    inputs = tuple(a.bfloat16() if a.is_floating_point() else a for a in args)
    compiled = compile_model(made, inputs, options={"optimization_level": level, **options})
    return compiled.graphs[0]


def kinds(built: Built) -> Counter[str]:
    return Counter(op.kind for op in built.program.ops)


def hits(built: Built, name: str) -> int:
    return next(p.hits for p in built.passes if p.name == name)


def agrees(built: Built, model: nn.Module, *args: torch.Tensor, at_least: float = 0.999) -> None:
    inputs = [a.bfloat16() if a.is_floating_point() else a for a in args]
    out = Executor(built.program, built.weights).run(inputs)[0]
    with torch.no_grad():
        expected = copy.deepcopy(model).eval().float()(*[a.float() for a in args])
    assert pcc(expected, out.float()) > at_least


X = torch.randn(4, 40, 64, generator=torch.Generator().manual_seed(1))


def gelu_erf(self: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(self: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * x


def mish(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(F.softplus(x))


def hardswish(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * F.relu6(x + 3) / 6


@pytest.mark.parametrize(
    ("function", "name"),
    [(gelu_erf, "gelu"), (gelu_tanh, "gelu_tanh"), (silu, "silu"), (mish, "mish"),
     (hardswish, "hardswish")],
)  # fmt: skip
def test_an_activation_written_by_hand_becomes_one_op(function: Any, name: str) -> None:
    model = Function(function)
    built = build(model, X)
    assert [op.attr("functions") for op in built.program.ops] == [[[name]]]
    agrees(built, model, X)


def softmax(self: Any, x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def layer_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(
        ((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5
    ) * self.w + self.b


def layer_norm_var(self: Any, x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * self.w + self.b


def rms_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return self.w * wide.to(x.dtype)


@pytest.mark.parametrize(
    ("function", "kind"),
    [(softmax, "Softmax"), (layer_norm, "LayerNorm"), (layer_norm_var, "LayerNorm"),
     (rms_norm, "LayerNorm")],
)  # fmt: skip
def test_a_norm_written_by_hand_becomes_one_op(function: Any, kind: str) -> None:
    model = Function(function, w=torch.rand(64) + 0.5, b=torch.randn(64))
    built = build(model, X)
    assert kinds(built) == {kind: 1}
    agrees(built, model, X)


def test_a_sample_variance_is_no_layer_norm() -> None:
    def unbiased(self: Any, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)

    model = Function(unbiased)
    built = build(model, X)
    assert kinds(built)["LayerNorm"] == 0
    agrees(built, model, X)


class Attention(nn.Module):
    """Attention written out, with separate projections."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, _ = x.shape
        q, k, v = (
            layer(x).view(batch, rows, 4, 16).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-2, -1) / 4.0
        mask = torch.triu(torch.full((rows, rows), float("-inf"), dtype=x.dtype), 1)
        mixed = F.softmax(scores + mask, dim=-1) @ v
        return self.o(mixed.transpose(1, 2).reshape(batch, rows, 64))


def test_attention_becomes_projection_heads_sdpa_heads_projection() -> None:
    model = Attention()
    built = build(model, X)
    assert [op.kind for op in built.program.ops] == [
        "Matmul", "CreateQkvHeads", "Sdpa", "ConcatHeads", "Matmul",
    ]  # fmt: skip
    agrees(built, model, X)


def test_projections_with_different_formats_are_not_merged() -> None:
    built = build(Attention(), X, weight_dtype_overrides={"q.weight": "bfp_bf8"})
    formats = sorted(
        built.program.spec(op.inputs[1]).format for op in built.program.ops if op.kind == "Matmul"
    )
    assert formats == ["bfloat16", "bfloat16", "bfloat16", "bfloat8_b"]


def rotary(self: Any, x: torch.Tensor) -> torch.Tensor:
    angle = torch.arange(40).unsqueeze(1) * torch.arange(64).unsqueeze(0) * 0.01
    cos, sin = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    turned = torch.cat((-x[..., 32:], x[..., :32]), dim=-1)
    return x * cos + turned * sin


def test_rotary_embedding_becomes_one_op_with_baked_tables() -> None:
    model = Function(rotary)
    built = build(model, X)
    assert kinds(built) == {"RotaryEmbedding": 1}
    agrees(built, model, X)


class ConvBlock(nn.Module):
    """Convolution, batch norm, activation, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, bias=False)
        self.na, self.nb = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
        for norm in (self.na, self.nb):
            norm.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
            norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
            nn.init.uniform_(norm.weight, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))))


IMAGE = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(2))


def test_batch_norm_is_folded_and_nothing_is_permuted_between_convolutions() -> None:
    model = ConvBlock()
    built = build(model, IMAGE)
    assert kinds(built)["BatchNorm"] == 0
    assert hits(built, "fold-batch-norm") == 2
    assert kinds(built)["Permute"] == 1  # out at the end; the host folds what comes in
    assert all(
        op.attr("activations") == [["relu"]] for op in built.program.ops if op.kind == "Conv2d"
    )
    agrees(built, model, IMAGE)


def test_level_0_keeps_batch_norm_and_prepares_weights_at_every_call() -> None:
    model = ConvBlock()
    built = build(model, IMAGE, level=0)
    assert kinds(built)["BatchNorm"] == 2
    assert kinds(built)["PrepareConvWeight"] == 2
    assert all(
        not p.hits
        for p in built.passes
        if p.name.startswith("fuse-") and p.enabled and p.name != "fuse-transposes"
    )
    agrees(built, model, IMAGE)


def test_an_explicit_option_wins_over_the_level() -> None:
    built = build(ConvBlock(), IMAGE, level=1, enable_fusing=False)
    assert all(not op.attr("activations") for op in built.program.ops if op.kind == "Conv2d")


def test_elementwise_chains_join_and_round_once() -> None:
    def chain(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.clamp(x, min=0.0) + 1e-7)

    model = Function(chain)
    built = build(model, X)
    assert [op.attr("functions") for op in built.program.ops] == [
        [["clamp", 0.0, None], ["add", 1e-7], ["log"]]
    ]
    assert len(build(model, X, enable_fusing=False).program.ops) == 3


def test_a_residual_before_a_norm_is_fused_into_it() -> None:
    def block(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x + y, (64,), self.w, self.b)

    model = Function(block, w=torch.ones(64), b=torch.zeros(64))
    built = build(model, X, X.flip(0))
    assert kinds(built) == {"LayerNorm": 1}
    agrees(built, model, X, X.flip(0))


def test_matmul_and_bias_written_by_hand_become_one_matmul_with_its_activation() -> None:
    def linear(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x @ self.w + self.b)

    model = Function(linear, w=torch.randn(64, 32), b=torch.randn(32))
    built = build(model, X)
    assert kinds(built) == {"Matmul": 1}
    assert built.program.ops[0].attr("activations") == [["relu"]]
    agrees(built, model, X)


def test_weights_are_transposed_and_converted_once() -> None:
    built = build(nn.Linear(64, 32), X, experimental_weight_dtype="bfp_bf8")
    assert [op.kind for op in built.program.const_ops] == ["Transpose", "Typecast"]
    assert built.program.spec(built.program.ops[0].inputs[1]).format == "bfloat8_b"


def test_without_const_eval_everything_is_done_at_every_call() -> None:
    built = build(
        nn.Linear(64, 32), X, enable_const_eval=False, experimental_weight_dtype="bfp_bf8"
    )
    assert not built.program.const_ops
    assert kinds(built)["Typecast"] == 1


def test_duplicates_and_identities_disappear() -> None:
    def twice(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).clone() + torch.exp(x).to(x.dtype).view(x.shape)

    assert kinds(build(Function(twice), X))["Unary"] <= 1


def test_inverse_permutes_cancel() -> None:
    def there_and_back(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).transpose(1, 2) + 1

    assert kinds(build(Function(there_and_back), X))["Transpose"] == 0


def test_tokens_made_an_image_and_back_are_not_moved() -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.conv = nn.Conv2d(64, 64, 3, padding=1, groups=64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            image = x.transpose(1, 2).view(x.shape[0], 64, 5, 8)
            return self.conv(image).flatten(2).transpose(1, 2)

    built = build(Mixer(), X)
    assert {"Permute", "Transpose"}.isdisjoint(kinds(built))
    agrees(built, Mixer(), X)


def test_a_movement_that_changes_the_order_stays() -> None:
    def turned(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).reshape(4, 40, 64) + 1

    built = build(Function(turned), X)
    assert kinds(built)["Transpose"] + kinds(built)["Permute"] == 1
    agrees(built, Function(turned), X)


def test_indexing_with_constant_neighbours_is_a_slice() -> None:
    def last_rows(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x[:, [-2, -1]] + x[:, [3]]

    built = build(Function(last_rows), X)
    assert kinds(built)["Host"] == 0
    assert kinds(built)["Slice"] == 2
    agrees(built, Function(last_rows), X)


def test_indexing_in_another_order_is_no_slice() -> None:
    def mixed(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x[:, [5, 2, 3]] + 1

    built = build(Function(mixed), X)
    assert kinds(built)["Embeddings"] > 0
    agrees(built, Function(mixed), X)


def test_one_projection_for_all_queries_and_one_key_is_split_into_heads_at_once() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.project = nn.Linear(64, (4 + 2) * 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = self.project(x).view(x.shape[0], x.shape[1], 6, 32)
            q, k, v = (
                t.transpose(1, 2) for t in (heads[:, :, :4], heads[:, :, [4]], heads[:, :, 5:])
            )
            y = F.scaled_dot_product_attention(q, k, v)
            return y.permute(0, 2, 1, 3).reshape(*x.shape[:2], 128)

    built = build(Attention(), X)
    found = kinds(built)
    assert (found["CreateQkvHeads"], found["Sdpa"], found["ConcatHeads"]) == (1, 1, 1)
    assert found["Repeat"] == found["Transpose"] == found["Host"] == 0
    agrees(built, Attention(), X)


def test_a_report_says_which_formats_took_effect_and_why_others_did_not() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(400, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.conv(x).flatten(1))

    built = build(Both(), IMAGE, weight_dtype_overrides={"*.weight": "bfp_bf4"})
    entries = {e.parameter: e for e in built.weight_report}
    assert entries["fc.weight"].took_effect
    assert not entries["conv.weight"].took_effect
    assert "only matmul and linear" in entries["conv.weight"].reason


def test_a_float32_model_with_block_weights_is_told_to_cast() -> None:
    with pytest.warns(UserWarning, match="bfloat16"):
        compile_model(
            nn.Linear(8, 8).eval(),
            (torch.randn(2, 8),),
            options={"experimental_weight_dtype": "bfp_bf8"},
        )


def test_source_lines_point_into_the_users_file() -> None:
    built = build(Attention(), X)
    sources = [op.source for op in built.program.ops]
    assert all(s.file.endswith("test_passes.py") and s.line > 0 for s in sources)
    assert sources[-1].module == "o"


def test_a_pattern_that_matches_no_weight_is_said_with_the_nearest_name() -> None:
    with pytest.warns(UserWarning, match=r"q\.wieght.*q\.weight"):
        build(Attention(), X, weight_dtype_overrides={"q.wieght": "bfp_bf8"})
