"""Ops that a stranger's model uses: on the chip where it has a way, and with torch's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import temper
from temper.compiler.pipeline import compile_model
from temper.errors import CompileError, UsageError

Function = Callable[..., Any]


class Calls(nn.Module):
    """A function as a model, with a layer for those that need one."""

    def __init__(self, function: Function, *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.layers, *inputs)


def leaves(made: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]


def check(
    function: Function,
    *inputs: torch.Tensor,
    layers: tuple[nn.Module, ...] = (),
    host: bool = False,
) -> None:
    """The model in float32 at levels 0 and 2 against eager torch, without or with host ops."""
    model = Calls(function, *layers).eval()
    with torch.no_grad():
        expected = leaves(model(*[t.clone() for t in inputs]))
    for level in (0, 2):
        compiled = temper.compile(model, level=level, fallback=host, math_fidelity="HiFi4")
        got = leaves(compiled(*[t.clone() for t in inputs]))
        for want, have in zip(expected, got, strict=True):
            assert (have.shape, have.dtype) == (want.shape, want.dtype)
            if want.is_floating_point() or want.is_complex():
                scale = float(want.abs().max()) if want.numel() else 0.0
                assert torch.allclose(
                    have, want, rtol=0.01, atol=0.01 * scale + 1e-6, equal_nan=True
                )
            else:
                assert torch.equal(have, want)


IDS = torch.tensor([1, -2, 3])


def _index_put(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns, masked, added = x.clone(), x.clone(), x.clone(), x.clone()
    rows[IDS] = x[:3] * 2
    columns[:, IDS] = 7.0
    masked[x > 0] = -1.0
    added.index_put_((torch.tensor([1, 1, 2]),), x[:3], accumulate=True)
    return rows, columns, masked, added


def _slices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    middle, whole, last = x.clone(), x.clone(), x.clone()
    middle[:, 2:4] = 0
    whole[:] = 3
    last[-1] += 5
    return middle, whole, last


LOOKUPS: dict[str, Function] = {
    "rows": lambda x: x[IDS],
    "columns": lambda x: x[:, IDS],
    "pairs": lambda x: x[IDS, IDS],
    "apart": lambda x: x.view(6, 4, 2)[IDS, :, torch.tensor([0, 1, 1])],
    "grid": lambda x: x[IDS[:, None], IDS[None]],
    "index_select": lambda x: x.index_select(1, IDS.abs()),
    "flip": lambda x: x.flip(0, 1),
    "windows": lambda x: x.unfold(1, 3, 2),
    "diagonal": lambda x: (x.diagonal(), x.view(2, 3, 8).diagonal(1, 0, 2)),
    "reflect": lambda x: F.pad(x[None, None], (1, 2, 1, 0), mode="reflect"),
    "circular": lambda x: F.pad(x[None, None], (1, 1, 1, 1), mode="circular"),
    "negative pad": lambda x: F.pad(x, (-1, 2, 1, -2)),
    "scatter": lambda x: x.scatter(1, IDS.abs().expand(6, 3), x[:, :3] * 2),
    "scatter a number": lambda x: x.scatter(1, IDS.abs().expand(6, 3), 2.5),
    "scatter_add": lambda x: x.scatter_add(0, IDS.abs()[:, None].expand(3, 8), x[:3]),
    "scatter_reduce": lambda x: x.scatter_reduce(1, IDS.abs().expand(6, 3), x[:, :3], "amax"),
    "index_put": _index_put,
    "slices": _slices,
    "normalize": lambda x: (F.normalize(x, dim=1), x.norm(p=1, dim=0), x.norm(p=float("inf"))),
    "clamp by tensors": lambda x: x.clamp(min=x[0], max=x[1].abs() + x[0]),
    "var_mean": lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x)),
    "addmm of a matrix": lambda x: torch.addmm(x, x[:, :6], x),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_indexing_and_its_kin_stay_on_the_chip(name: str) -> None:
    torch.manual_seed(0)
    check(LOOKUPS[name], torch.randn(6, 8))


def test_an_index_that_is_an_input_may_be_negative() -> None:
    torch.manual_seed(0)
    check(lambda x, i: (x[i], x[:, i], x[i, i]), torch.randn(6, 8), IDS)


IMAGES: dict[str, Function] = {
    "bilinear to a size": lambda x: F.interpolate(x, size=(7, 11), mode="bilinear"),
    "bilinear by a half": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, size=(8, 9), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
    "nearest to a size": lambda x: F.interpolate(x, size=(7, 11)),
    "nearest-exact": lambda x: F.interpolate(x, size=(7, 11), mode="nearest-exact"),
    "uneven average pool": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive max pool": lambda x: F.adaptive_max_pool2d(x, (5, 3)),
    "instance norm": F.instance_norm,
    "group norm of rows": lambda x: F.group_norm(x.flatten(1)[:, :12], 3),
    "pools without a batch": lambda x: (F.max_pool2d(x[0], 2), F.avg_pool2d(x[0], 2)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_resizing_pools_and_norms_stay_on_the_chip(name: str) -> None:
    torch.manual_seed(0)
    check(IMAGES[name], torch.randn(2, 3, 5, 6))


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv3d": (lambda: nn.Conv3d(3, 8, 3, (1, 2, 2), 1, groups=1), (2, 3, 4, 8, 8)),
    "patches of a video": (lambda: nn.Conv3d(3, 8, (2, 4, 4), (2, 4, 4)), (1, 3, 4, 8, 8)),
    "dilated conv3d": (lambda: nn.Conv3d(4, 8, 2, dilation=(2, 1, 1), groups=2), (1, 4, 4, 5, 5)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(8, 6, 4, 2, 1, 1), (2, 8, 9)),
    "conv2d without a batch": (lambda: nn.Conv2d(3, 8, 3), (3, 9, 11)),
    "conv1d without a batch": (lambda: nn.Conv1d(3, 8, 3), (3, 9)),
    "grouped products of rows": (lambda: nn.Conv1d(12, 8, 1, groups=4), (2, 12, 9)),
    "grouped products of images": (lambda: nn.Conv2d(8, 12, 1, groups=2), (2, 8, 5, 3)),
    "batch norm of volumes": (lambda: nn.BatchNorm3d(3), (2, 3, 4, 5, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_other_ranks_stay_on_the_chip(name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    check(lambda layer, x: layer(x), torch.randn(shape), layers=(make(),))


def test_a_pointwise_convolution_with_groups_is_one_matmul_with_its_activation() -> None:
    model = nn.Sequential(nn.Conv1d(64, 128, 1, groups=4), nn.GELU()).eval()
    options = {"optimization_level": 1, "compile_cache": False}
    program = compile_model(model, (torch.randn(2, 64, 32),), options=options).programs[0]
    assert "Conv2d" not in {op.kind for op in program.ops}
    matmuls = [op for op in program.ops if op.kind == "Matmul"]
    assert [op.attr("activations") for op in matmuls] == [[["gelu"]]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ~(x > 0),
        lambda x: (~(x > 0)).sum(),
        lambda x: torch.where(~(x > 0), x, 0.0),
        lambda x: (x > 0) ^ (x < 1),
        lambda x: (x * 100).long().clamp(0, 255).to(torch.uint8) + 200,
        lambda x: ((x > 0).any().any(), x.sum().var(unbiased=False), (x[0, 0] > 9).sum()),
        lambda x: torch.where(x > 0, torch.tensor(2**25 + 1), 3),
    ],
)  # fmt: skip
def test_truth_values_and_integers_mean_what_they_mean_in_torch(function: Function) -> None:
    torch.manual_seed(0)
    check(function, torch.randn(4, 5), host=True)


def test_integers_keep_their_bits_and_wider_inputs_are_refused() -> None:
    compiled = temper.compile(Calls(lambda i: i * 2).eval())
    assert compiled(torch.tensor([2**30, -3])).tolist() == [2**31, -6]
    assert compiled(torch.tensor([2**30], dtype=torch.int32)).tolist() == [-(2**31)]
    with pytest.raises(UsageError, match="beyond int32"):
        compiled(torch.tensor([2**40, 1]))


def test_the_largest_int64_stays_the_largest_in_a_constant() -> None:
    none = torch.iinfo(torch.int64).max
    compiled = temper.compile(Calls(lambda i: torch.minimum(i, torch.tensor([none, none]))).eval())
    assert compiled(torch.tensor([5, -7])).tolist() == [5, -7]


COMPLEX: dict[str, Function] = {
    "rotation": lambda x: torch.view_as_real(
        torch.view_as_complex(x.view(4, 3, 2)) * torch.polar(torch.ones(3), torch.arange(3.0))
    ).flatten(1),
    "fft": lambda x: torch.fft.fft2(x).real,
    "spectrum": lambda x: torch.stft(
        x.flatten()[None], 8, 4, window=torch.hann_window(8), return_complex=True
    ).abs(),
    "result": lambda x: torch.complex(x, x).conj(),
    "eigenvalues": lambda x: torch.linalg.eigvals(x[:, :4]).abs().sum(),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_the_hosts(name: str) -> None:
    torch.manual_seed(0)
    check(COMPLEX[name], torch.randn(4, 6), host=True)


def test_complex_inputs_and_weights_come_and_go() -> None:
    torch.manual_seed(0)
    check(lambda x: (x * 2, x.abs()), torch.randn(3, 4, dtype=torch.complex64), host=True)
    layer = nn.Module()
    layer.register_buffer("turn", torch.randn(4, dtype=torch.complex64))
    check(lambda m, x: (x * m.turn).real, torch.randn(3, 4), layers=(layer,), host=True)


EMPTY: dict[str, Function] = {
    "elementwise": lambda x: (x + 1).relu(),
    "sums": lambda x: (x.sum(), x.sum(0)),
    "matmul": lambda x: x @ x.new_ones(5, 3),
    "concatenation": lambda x: (torch.cat([x, x.new_ones(2, 5)]), torch.cat([x[:, :2], x], 1)),
    "views": lambda x: (x.t(), x.reshape(5, 0), x[:, :2], x.softmax(-1)),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_are_nothing_special(name: str) -> None:
    check(EMPTY[name], torch.zeros(0, 5), host=True)


def test_an_operator_whose_other_results_nobody_reads_runs_on_the_host() -> None:
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(20, 8, mode="sum")
    check(
        lambda layer, ids, starts: layer(ids, starts),
        torch.randint(0, 20, (9,)),
        torch.tensor([0, 4]),
        layers=(bag,),
        host=True,
    )


def test_random_numbers_over_weights_are_drawn_at_every_call() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(8, 8, bias=False)
    drop = Calls(lambda m, x: F.linear(x, F.dropout(m.weight, 0.5, training=True)), layer).eval()
    compiled = temper.compile(drop)
    x = torch.ones(1, 8)
    assert not torch.equal(compiled(x), compiled(x))


def test_shapes_that_depend_on_data_split_the_model() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(5, 5)
    model = Calls(lambda m, x: m(x)[(x[:, 0] > 0).nonzero().squeeze(1)] * 2, layer).eval()
    compiled = temper.compile(model)
    for _ in range(12):  # more shapes than Dynamo compiles by itself
        x = torch.randn(int(torch.randint(4, 40, ())), 5)
        with torch.no_grad():
            assert torch.allclose(compiled(x), model(x), atol=0.05)
    assert len(compiled.loaded) >= 2


def test_a_model_of_which_nothing_can_be_captured_says_so() -> None:
    model = Calls(lambda x: sum(x * int(x[i].item() > 0) for i in range(3))).eval()
    with pytest.warns(UserWarning, match="eager torch on the host"):
        made = temper.compile(model)(torch.ones(3))
    assert made.tolist() == [3.0, 3.0, 3.0]


def test_with_fallback_off_a_complex_op_is_an_error_naming_it() -> None:
    compiled = temper.compile(Calls(lambda x: torch.fft.fft(x).abs()).eval(), fallback=False)
    with pytest.raises(CompileError, match="fft"):
        compiled(torch.ones(4))


def test_a_sparse_operand_is_left_to_torch() -> None:
    model = Calls(lambda a, x: torch.sparse.mm(a, x) + 1).eval()
    x = torch.randn(4, 3)
    made = temper.compile(model)(torch.eye(4).to_sparse(), x)
    assert torch.allclose(made, x + 1, atol=0.05)


def test_inputs_that_the_model_itself_refuses_are_told_without_the_compilers_stack() -> None:
    with pytest.raises(UsageError, match="without a compiler too") as caught:
        temper.compile(nn.Linear(8, 4).eval())(torch.ones(2, 9))
    assert "float32[2, 9]" in str(caught.value)


@pytest.mark.parametrize("first", [False, True])
def test_the_fused_encoder_layers_of_torch_are_taken_apart(first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, padding = torch.randn(2, 7, 32), torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    compiled = torch.compile(model, backend="tt", options={"fallback": False})
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        made = compiled(x, src_key_padding_mask=padding)
        pair = nn.MultiheadAttention(32, 4, batch_first=True).eval()
        wanted = pair(x, x, x, key_padding_mask=padding)
        split = torch.compile(pair, backend="tt", options={"fallback": False})
        given = split(x, x, x, key_padding_mask=padding)
    torch._dynamo.reset()
    for have, want in ((made, expected), *zip(given, wanted, strict=True)):
        assert torch.allclose(have, want, atol=0.05)


@pytest.mark.parametrize("level", [0, 2])
def test_bags_of_indices_read_their_own_column_of_one_table(level: int) -> None:
    """On the host such a column is a strided view; ``_embedding_bag`` reads bytes in a row."""
    tables = [nn.EmbeddingBag(50, 8, mode="sum") for _ in range(3)]

    def columns(first: Any, second: Any, third: Any, x: torch.Tensor) -> torch.Tensor:
        bags = (first, second, third)
        return torch.cat([bag(x[:, i : i + 1]) for i, bag in enumerate(bags)], 1)

    torch.manual_seed(0)
    model, x = Calls(columns, *tables).eval(), torch.randint(0, 50, (64, 3))
    with torch.no_grad():
        made = temper.compile(model, level=level)(x)
        wanted = torch.cat([t.weight[x[:, i]] for i, t in enumerate(tables)], 1)
    torch.testing.assert_close(made, wanted)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(("length", "ragged"), [(1, False), (3, False), (4, True)])
def test_bags_of_equal_length_are_lookups_and_others_the_hosts(
    mode: str, length: int, ragged: bool
) -> None:
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(50, 32, mode=mode)
    x, starts = torch.randint(0, 50, (64, 4)), torch.arange(0, 256, 4)

    def look_up(bag: Any, x: torch.Tensor) -> torch.Tensor:
        made = bag(x.flatten(), starts) if ragged else bag(x[:, 1 : 1 + length])
        return made * 2

    compiled = temper.compile(Calls(look_up, bag).eval(), level=2)
    with torch.no_grad():
        made = compiled(x)
        rows = bag.weight[x if ragged else x[:, 1 : 1 + length]]
    wanted = {"sum": rows.sum(1), "mean": rows.mean(1), "max": rows.amax(1)}[mode] * 2
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)
    kinds = {op.kind for op in compiled.loaded[0].program.ops}
    assert ("Host" in kinds) == (mode == "max" or ragged)  # offsets that vary are inputs


def test_unsigned_integers_keep_their_values_through_wider_ones() -> None:
    """A uint32 from 2**31 on leaves the chip's 32 signed bits where it becomes an int64."""

    class Widened(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.to(torch.int64) + 1, x.to(torch.float32), x.reshape(3, 1)

    x = torch.tensor([0, 2**31, 2**32 - 1]).to(torch.uint32)
    wide, floats, same = temper.compile(Widened().eval())(x)
    assert wide.tolist() == [1, 2**31 + 1, 2**32]
    assert floats.tolist() == [0.0, float(2**31), float(2**32)]
    assert same.dtype is torch.uint32
    assert same.flatten().to(torch.int64).tolist() == [0, 2**31, 2**32 - 1]


def test_a_dtype_without_a_format_runs_in_eager_torch_and_is_told_by_name() -> None:
    class Copied(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.int64)

    x = torch.tensor([1, 2**62 + 5]).to(torch.uint64)
    with pytest.warns(UserWarning, match=r"torch\.uint64, which no program holds"):
        assert temper.compile(Copied().eval())(x).tolist() == [1, 2**62 + 5]


def test_rows_wider_than_a_core_holds_are_looked_up_in_parts() -> None:
    """128 blocks of a paged cache by a page table: rows of 24 576 numbers did not fit in SRAM."""
    x, at = torch.randn(16, 4, 32, 192), torch.tensor([[3, 0, -1], [15, 2, 2]])
    check(lambda x, at: x[at], x, at)
    check(lambda x, at: x[:, at].sum(1), torch.randn(2, 16, 3 * 4099), at)
