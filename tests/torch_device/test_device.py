"""The device "tt" against the CPU: the same numbers, the same rules, and every eager op counted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.frontdoor.loaded import loaded_graphs
from temper.torch_device import device

device.ensure_registered()


def on_tt(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    cpu = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return cpu, cpu.to("tt")


def test_tensors_move_there_and_back() -> None:
    cpu, tt = on_tt(3, 4)
    assert tt.device == torch.device("tt:0")
    assert tt.is_tt
    assert torch.equal(tt.cpu(), cpu)
    assert torch.equal(cpu.tt().to("cpu", non_blocking=True), cpu)
    assert tt.to("tt") is tt
    assert tt.cpu().data_ptr() != tt.data_ptr()


def test_registering_again_changes_nothing() -> None:
    device.ensure_registered()
    device.ensure_registered()
    assert torch.utils.backend_registration._privateuse1_backend_name == "tt"


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(2, 3, device=d),
        lambda d: torch.ones(2, dtype=torch.bfloat16, device=d),
        lambda d: torch.full((2,), 7, device=d),
        lambda d: torch.arange(5, device=d),
        lambda d: torch.arange(1.0, 2.0, 0.25, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
        lambda d: torch.tril_indices(3, 3, device=d),
        lambda d: torch.randn(4, device=d),
        lambda d: torch.rand(4, device=d),
        lambda d: torch.randint(0, 9, (4,), device=d),
        lambda d: torch.randperm(6, device=d),
        lambda d: torch.randn(4, device=d, generator=torch.Generator().manual_seed(3)),
    ],
)
def test_factories_give_what_the_cpu_gives(make: Callable[[str], torch.Tensor]) -> None:
    torch.manual_seed(1)
    there = make("tt")
    torch.manual_seed(1)
    here = make("cpu")
    assert there.device.type == "tt"
    assert there.dtype == here.dtype
    assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x + x * 2 - 1,
        lambda x: x @ x.mT,
        lambda x: x.softmax(-1),
        lambda x: x.sum(), lambda x: x.mean(1, keepdim=True), lambda x: x.amax(0),
        lambda x: x.max(dim=1).values, lambda x: x.argmax(), lambda x: x.topk(2).indices,
        lambda x: x.sort(descending=True).values, lambda x: x.cumsum(0),
        lambda x: torch.cat([x, x], 1), lambda x: torch.stack([x, x]), lambda x: x.chunk(2, 1)[1],
        lambda x: x.t().contiguous(), lambda x: x.permute(1, 0), lambda x: x.reshape(-1),
        lambda x: x.unsqueeze(0).expand(3, -1, -1), lambda x: x[1:, ::2], lambda x: x[x > 0],
        lambda x: x[[1, 0]], lambda x: x.index_select(0, torch.tensor([1], device=x.device)),
        lambda x: torch.where(x > 0, x, 0.0), lambda x: x.masked_fill(x < 0, 9.0),
        lambda x: x.to(torch.bfloat16).float(), lambda x: x.double(), lambda x: (x > 0).int(),
        lambda x: x.view(torch.int32), lambda x: torch.fft.rfft(x).abs(),
        lambda x: torch.einsum("ab,cb->ac", x, x), lambda x: x.unfold(1, 2, 1),
        lambda x: F.layer_norm(x, (x.size(1),)), torch.linalg.norm,
        lambda x: F.pad(x, (1, 1)), lambda x: torch.nonzero(x > 0), lambda x: torch.unique(x > 0),
        torch.vmap(lambda row: row.sum()), lambda x: x.roll(1, 0), lambda x: x.flip(1),
        lambda x: torch.view_as_complex(x.reshape(-1, 2)).conj() * 2,
        lambda x: torch.view_as_complex(x.reshape(-1, 2)).conj().imag,
        lambda x: torch.view_as_complex(x.reshape(2, 2, 2)).mH.clone(),
    ],
)  # fmt: skip
def test_ops_give_what_the_cpu_gives(op: Callable[[torch.Tensor], torch.Tensor]) -> None:
    cpu, tt = on_tt(2, 4)
    here, there = op(cpu), op(tt)
    assert there.device.type == "tt"
    assert there.shape == here.shape
    torch.testing.assert_close(there.cpu(), here)


def test_views_share_memory_and_in_place_ops_write_through() -> None:
    _, x = on_tt(2, 6)
    view = x.view(3, 4)
    view[0, 0] = 5
    x.t()[1].zero_()
    x += 1
    assert x[0, 0].item() == 6
    assert view[0, 1].item() == 1
    assert view._base is x
    assert x[:, 2:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    index = torch.tensor([0, 1], device="tt")
    x.index_put_((index, index), torch.tensor([8.0, 9.0], device="tt"))
    x.scatter_(1, torch.tensor([[5]], device="tt"), 3.0)
    assert [x[0, 0].item(), x[1, 1].item(), x[0, 5].item()] == [8, 9, 3]


def test_out_arguments_are_filled_and_grow() -> None:
    cpu, tt = on_tt(2, 3)
    empty = torch.empty(0, device="tt")
    assert torch.add(tt, tt, out=empty) is empty
    assert torch.equal(empty.cpu(), cpu + cpu)
    right = torch.empty(2, 3, device="tt")
    torch.mul(tt, 2, out=right)
    assert torch.equal(right.cpu(), cpu * 2)
    values, indices = torch.empty(0, device="tt"), torch.empty(0, dtype=torch.long, device="tt")
    torch.max(tt, 1, out=(values, indices))
    assert torch.equal(indices.cpu(), cpu.argmax(1))


def test_resizing_keeps_the_first_elements() -> None:
    x = torch.arange(4.0, device="tt")
    assert x.resize_(2, 3).flatten()[:4].tolist() == [0, 1, 2, 3]
    assert x.resize_(2).tolist() == [0, 1]


def test_scalars_lists_and_printing() -> None:
    x = torch.tensor([[1.5, 2.0]], device="tt")
    assert x[0, 0].item() == 1.5
    assert x.tolist() == [[1.5, 2.0]]
    assert repr(x) == "tensor([[1.5000, 2.0000]], device='tt:0')"
    assert bool((x > 0).all())
    assert int(x.sum()) == 3


def test_mixing_devices_follows_torch() -> None:
    cpu, tt = on_tt(2, 2)
    same = "Expected all tensors to be on the same device"
    for wrong in (lambda: tt + cpu, lambda: cpu + tt, lambda: cpu.add_(tt), lambda: cpu @ tt,
                  lambda: torch.cat([tt, cpu]), lambda: F.linear(cpu, tt)):  # fmt: skip
        with pytest.raises(RuntimeError, match=same):
            wrong()
    zero_dim = torch.tensor(2.0)
    assert torch.equal((tt * zero_dim).cpu(), cpu * 2)
    assert (zero_dim * tt).device.type == "tt"
    with pytest.raises(RuntimeError, match=r"cannot write|same device"):
        zero_dim.add_(tt.sum())
    with pytest.raises(RuntimeError, match=r"cannot write|same device"):
        torch.sum(tt, (0, 1), out=zero_dim)
    assert torch.equal(tt[torch.tensor([1])].cpu(), cpu[[1]])
    tt[torch.tensor([0])] = 4.0
    assert tt[0].tolist() == [4, 4]
    cpu.copy_(tt)
    assert torch.equal(cpu, tt.cpu())


def test_wrong_device_numbers_and_numpy_are_refused() -> None:
    with pytest.raises(RuntimeError, match="one device 'tt'"):
        torch.zeros(1, device="tt:1")
    with pytest.raises(RuntimeError, match="one device 'tt'"):
        torch.tt.set_device(3)
    with pytest.raises(TypeError, match="cpu"):
        torch.zeros(1, device="tt").numpy()


def test_host_view_and_wrap_share_memory() -> None:
    cpu, tt = on_tt(3, 4)
    seen = device.host_view(tt.t()[1:])
    assert seen.device.type == "cpu"
    assert torch.equal(seen, cpu.t()[1:])
    seen.zero_()
    assert tt[:, 1:].abs().sum().item() == 0
    wrapped = device.wrap(cpu)
    cpu.fill_(2)
    assert wrapped.sum().item() == 24
    assert wrapped.data_ptr() == cpu.data_ptr()
    part = device.wrap(cpu[1:, ::2])
    assert (part.shape, part.stride(), part.storage_offset()) == ((2, 2), (4, 2), 4)
    with pytest.raises(RuntimeError, match="dense CPU"):
        device.wrap(tt)


def test_memory_lives_as_long_as_any_view_of_it() -> None:
    view = torch.arange(1000.0).to("tt")[10:20]
    junk = [torch.randn(1000) for _ in range(20)]
    assert view.tolist() == list(range(10, 20))
    assert len(junk) == 20


def test_random_numbers_follow_the_seed() -> None:
    torch.tt.manual_seed(5)
    first = F.dropout(torch.ones(64, device="tt")).tolist()
    state = torch.tt.get_rng_state()
    second = torch.randn(3, device="tt").tolist()
    torch.manual_seed(5)
    assert F.dropout(torch.ones(64, device="tt")).tolist() == first
    torch.tt.set_rng_state(state)
    assert torch.randn(3, device="tt").tolist() == second


def test_the_module_answers_what_scripts_ask() -> None:
    assert torch.tt.is_available()
    assert torch.tt.device_count() == 1
    assert torch.tt.current_device() == 0
    torch.tt.synchronize()
    torch.tt.empty_cache()
    with torch.tt.device(0):
        pass
    assert torch.get_device_module("tt") is torch.tt
    assert torch.tt.is_bf16_supported()


def test_autocast_lowers_matmuls_and_keeps_losses_wide() -> None:
    _, x = on_tt(4, 4)
    with torch.autocast("tt", dtype=torch.bfloat16):
        product = x @ x
        assert product.dtype is torch.bfloat16
        assert nn.Linear(4, 2).to("tt")(x).dtype is torch.bfloat16
        assert (x + x).dtype is torch.float32
        assert F.mse_loss(product, x).dtype is torch.float32
        assert torch.cat([product, x]).dtype is torch.float32
    assert (x @ x).dtype is torch.float32


def test_a_data_loader_may_pin_memory() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)
    assert [batch.to("tt", non_blocking=True).tolist() for (batch,) in loader] == [[0, 1], [2, 3]]


def test_eager_ops_are_counted_and_observed() -> None:
    _, x = on_tt(2, 2)
    seen: list[tuple[str, int]] = []
    device.eager_ops.reset()
    before = device.set_observer(
        lambda name, start_ns, end_ns, inputs, outputs: (
            seen.append((name, len(inputs))) if end_ns >= start_ns else None
        )
    )
    try:
        x.add(x).relu()
        x.view(4)
        x.cpu()
    finally:
        device.set_observer(before)
    assert seen == [("aten::add", 2), ("aten::relu", 1), ("aten::_copy_from", 1)]
    assert device.eager_ops.total == 3
    x.relu()
    assert device.eager_ops.by_name["aten::relu"] == 2
    assert len(seen) == 3


def _printed(script: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_importing_torch_alone_changes_nothing_in_it() -> None:
    script = (
        "import sys, torch\n"
        "print(torch.accelerator.current_accelerator(), torch.nn.Module._apply.__module__,"
        " 'temper' in sys.modules, hasattr(torch.ops.tt, 'weight_dtype_override'))"
    )
    assert _printed(script) == "None torch.nn.modules.module False False"


@pytest.mark.parametrize("order", ["import torch, temper", "import temper, torch"])
def test_importing_temper_too_brings_the_device_and_the_op(order: str) -> None:
    if "tt" not in entry_points(group="torch.backends").names:
        pytest.skip("the package is installed without its torch.backends entry point")
    script = "w = torch.ones(2).to('tt'); op = torch.ops.tt.weight_dtype_override"
    assert _printed(f"{order}; {script}; print(op(w, 'bf16').tolist())") == "[1.0, 1.0]"


def test_dynamo_never_compiles_the_kernels_of_the_device() -> None:
    """A layer that nobody compiled runs eagerly beside one that somebody did, and learns."""
    torch._dynamo.reset()
    torch.compile(nn.ReLU(), backend="tt")(torch.ones(2))
    layer, x = nn.Linear(8, 2).to("tt"), torch.randn(4, 8).to("tt")
    before = loaded_graphs()
    found = layer(x)
    found.pow(2).mean().backward()
    assert len(loaded_graphs()) == len(before)
    assert layer.weight.grad is not None
