"""Models on the device "tt": layers, training, files, copies and captured graphs as on the CPU."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.torch_device import device

device.ensure_registered()


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2, dilation=2), (2, 4, 8, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, bias=False), (2, 4, 8)),
    "lstm": (lambda: nn.LSTM(4, 5, 2, bidirectional=True), (3, 2, 4)),
    "lstm without bias": (lambda: nn.LSTM(4, 5, bias=False), (3, 2, 4)),
    "gru": (lambda: nn.GRU(4, 5, 2), (3, 2, 4)),
    "gru without bias": (lambda: nn.GRU(4, 5, bias=False), (3, 2, 4)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (3, 2, 8)),
    "batch norm": (lambda: nn.BatchNorm2d(4), (2, 4, 3, 3)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "pool": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2)), (2, 4, 8, 8)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 4, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_run_forward_and_backward_as_on_the_cpu(name: str) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    here = make()
    there = copy.deepcopy(here).to("tt")
    results = []
    for layer, where in ((here, "cpu"), (there, "tt")):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(where)
        x.requires_grad_()
        out = layer(x)
        out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        assert x.grad is not None
        assert out.device.type == where
        grads = [p.grad.cpu() for p in layer.parameters() if p.grad is not None]
        results.append([out.detach().cpu(), x.grad.cpu(), *grads])
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.relu(self.norm(self.conv(x))).flatten(1))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_training_follows_the_cpu_step_by_step(optimizer: str) -> None:
    torch.manual_seed(0)
    start = Cnn()
    losses = {}
    for where in ("cpu", "tt"):
        model = copy.deepcopy(start).to(where)
        steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
        x = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(2)).to(where)
        labels = torch.arange(8).to(where)
        losses[where] = []
        for _ in range(4):
            steps.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
            losses[where].append(loss.item())
    assert losses["tt"] == pytest.approx(losses["cpu"], rel=1e-4)
    assert losses["tt"][-1] < losses["tt"][0]


def test_modules_keep_types_buffers_and_ties() -> None:
    model = Cnn()
    model.tied = nn.Linear(4 * 36, 10)
    model.tied.weight = model.fc.weight
    model.to("tt")
    assert model.tied.weight is model.fc.weight
    model.cpu()
    assert model.tied.weight is model.fc.weight
    model.tt()
    assert isinstance(model.fc.weight, nn.Parameter)
    assert model.norm.running_mean.device.type == "tt"
    assert next(model.to(torch.bfloat16).parameters()).dtype is torch.bfloat16
    assert {t.device.type for t in model.cpu().state_dict().values()} == {"cpu"}
    with torch.device("tt"):
        assert nn.Linear(2, 2).weight.device.type == "tt"
    assert nn.Linear(2, 2, device="meta").to_empty(device="tt").weight.device.type == "tt"


def test_state_dicts_cross_devices() -> None:
    here, there = Cnn(), Cnn().to("tt")
    there.load_state_dict(here.state_dict())
    assert torch.equal(there.fc.weight.cpu(), here.fc.weight)
    here.load_state_dict(there.state_dict())
    assert here.fc.weight.device.type == "cpu"


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save", "whole model", "legacy"])
def test_copies_and_files_hold_the_same_bytes(how: str) -> None:
    model = Cnn().to("tt")
    if how == "deepcopy":
        other = copy.deepcopy(copy.deepcopy(model)).state_dict()
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(model.state_dict()))
    else:
        file = io.BytesIO()
        torch.save(
            model if how == "whole model" else model.state_dict(),
            file,
            _use_new_zipfile_serialization=how != "legacy",
        )
        file.seek(0)
        other = torch.load(file, weights_only=how != "whole model")
        other = other.state_dict() if how == "whole model" else other
        file.seek(0)
        here = torch.load(file, map_location="cpu", weights_only=how != "whole model")
        if how != "whole model":
            assert {t.device.type for t in here.values()} == {"cpu"}
    for name, tensor in model.state_dict().items():
        assert other[name].device.type == "tt"
        assert torch.equal(other[name].cpu(), tensor.cpu())
    other["fc.weight"].zero_()
    assert model.fc.weight.abs().sum().item() > 0


def test_deepcopy_keeps_sharing_inside_the_copy() -> None:
    base = torch.arange(4.0, device="tt")
    left, right = copy.deepcopy([base, base[1:]])
    left.zero_()
    assert right.tolist() == [0, 0, 0]
    assert base.tolist() == [0, 1, 2, 3]


def compiled_matches(model: nn.Module, x: torch.Tensor, backend: str) -> None:
    model.eval()
    with torch.no_grad():
        here = model(x)
    model.to("tt")
    torch._dynamo.reset()
    with torch.no_grad():
        there = torch.compile(model, backend=backend)(x.to("tt"))
    if not isinstance(here, torch.Tensor):
        here, there = here[0], there[0]
    assert there.device.type == "tt"
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["cnn", "bert", "gpt2", "llama"])
def test_graphs_are_captured_from_models_on_the_device(name: str, backend: str) -> None:
    torch.manual_seed(0)
    if name == "cnn":
        compiled_matches(Cnn(), torch.randn(2, 1, 8, 8), backend)
        return
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 64, "num_hidden_layers": 1, "hidden_size": 32}
    heads = {"num_attention_heads": 4, "intermediate_size": 64}
    gpt = {"vocab_size": 64, "n_layer": 1, "n_embd": 32, "n_head": 4, "n_positions": 32,
           "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    model = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(**small, **heads)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**gpt, use_cache=False)
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**small, **heads, num_key_value_heads=2, use_cache=False)
        ),
    }[name]()
    compiled_matches(model, torch.randint(0, 64, (2, 8)), backend)


def test_a_compiled_model_trains_on_the_device() -> None:
    torch.manual_seed(0)
    model = Cnn().to("tt")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(2, 1, 8, 8, device="tt")
    eager = model(x).square().sum()
    eager.backward()
    wanted = model.fc.weight.grad.cpu()
    model.zero_grad()
    compiled(x).square().sum().backward()
    torch.testing.assert_close(model.fc.weight.grad.cpu(), wanted, rtol=1e-4, atol=1e-5)


def test_inference_mode_and_no_grad() -> None:
    model = Cnn().to("tt").eval()
    x = torch.randn(2, 1, 8, 8).to("tt")
    with torch.inference_mode():
        out = model(x)
        assert out.is_inference()
    with torch.no_grad():
        assert not model(x).requires_grad
        assert torch.equal(model(x).cpu(), out.cpu())
