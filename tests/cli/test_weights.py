"""``temper weights`` and ``tt-gen-weight-template`` as a person runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from temper.cli import main
from temper.cli.weights import template_main

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 64)
        self.conv = nn.Conv1d(64, 64, 3, padding=1)
        self.fc1 = nn.Linear(64, 128)
        self.fc2 = nn.Linear(128, 64)
        self.head = nn.Linear(64, 50, bias=False)
        self.head.weight = self.table.weight
        self.unused = nn.Linear(4, 4)

    def forward(self, tokens):
        x = self.conv(self.table(tokens).mT).mT
        return self.head(self.fc2(self.fc1(x).relu()))

def make(batch=2):
    return Net().to(torch.bfloat16), torch.randint(0, 50, (batch, 8))
"""

LOADER = """
from enum import Enum
import torch
from ...base import Base

class Variant(str, Enum):
    SMALL = "small"
    BIG = "big"

class Config:
    def __init__(self, name):
        self.pretrained_model_name = name

class ModelLoader(Base):
    DEFAULT_VARIANT = Variant.SMALL

    @classmethod
    def query_available_variants(cls):
        return {Variant.SMALL: Config("org/tiny-small"), Variant.BIG: Config("org/tiny-big")}

    def __init__(self, variant=None):
        self.width = 4 if variant is Variant.SMALL else 8

    def load_model(self, dtype_override=None):
        return torch.nn.Sequential(torch.nn.Linear(self.width, 4), torch.nn.LayerNorm(4))
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> Run:  # fmt: skip
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def call(entry: Callable[[list[str]], None], *arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            entry(list(arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def loader(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo" / "tiny_zoo" / "pytorch"
    folder.mkdir(parents=True)
    (tmp_path / "zoo" / "base.py").write_text("class Base: ...\n")
    (folder / "loader.py").write_text(LOADER)
    return folder / "loader.py"


def overrides(tmp_path: Path, rules: dict[str, str]) -> str:
    file = tmp_path / "formats.json"
    file.write_text(json.dumps(rules))
    return str(file)


def test_template_lists_every_module_with_a_weight(run: Run) -> None:
    code, out, _ = run(main, "weights", "template", "net.py:make", "--default-dtype", "bf16")
    assert code == 0
    assert json.loads(out) == dict.fromkeys(
        ["table.weight", "conv.weight", "fc1.weight", "fc2.weight", "head.weight",
         "unused.weight"], "bf16",
    )  # fmt: skip


def test_template_writes_a_file_and_names_the_next_command(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(main, "weights", "template", "net.py:make", "-o", "made/f.json")
    assert code == 0
    assert "temper weights explain net.py:make made/f.json" in out
    assert len(json.loads((tmp_path / "made" / "f.json").read_text())) == 6


def test_explain_says_what_each_pattern_and_weight_comes_to(run: Run, tmp_path: Path) -> None:
    file = overrides(tmp_path, {
        "default": "bfp_bf8", "fc*.weight": "bfp_bf4", "fc1.*": "bf16", "*.bias": "bf16",
        "hed.weight": "bf16",
    })  # fmt: skip
    code, out, _ = run(main, "weights", "explain", "net.py:make", file, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["basis"] == "captured graph"
    patterns = {p["pattern"]: p for p in found["patterns"]}
    assert (patterns["fc*.weight"]["matches"], patterns["fc*.weight"]["decides"]) == (2, 1)
    assert patterns["hed.weight"]["nearest"][0] == "head.weight"
    weights = {w["parameter"]: w for w in found["weights"]}
    assert weights["fc2.weight"]["effect"]
    assert weights["head.weight"]["effect"]
    for name, word in [("table.weight", "embedding"), ("conv.weight", "convolution"),
                       ("fc1.bias", "vector"), ("unused.weight", "no op")]:  # fmt: skip
        assert not weights[name]["effect"]
        assert word in weights[name]["reason"]
    # 128x64 is 4 x 2 tiles: 2048 B each as bfloat16, 576 B as bfloat4_b (FACTS 3.1).
    assert weights["fc2.weight"]["size_bytes"] == 8 * 2048
    assert weights["fc2.weight"]["new_size_bytes"] == 8 * 576


def test_explain_prints_whole_names_in_a_pipe(run: Run) -> None:
    code, out, _ = run(main, "weights", "explain", "net.py:make", "bfp_bf8")
    assert code == 0
    assert "table.weight" in out
    assert "no effect" in out
    assert "3 of 6 named weights take effect" in out
    assert "computed" in out
    assert "…" not in out


def test_check_fails_on_a_pattern_that_matches_nothing(run: Run, tmp_path: Path) -> None:
    file = overrides(tmp_path, {"hed.weight": "bf16", "conv.weight": "bfp_bf8"})
    code, out, _ = run(main, "weights", "check", "net.py:make", file)
    assert code == 1
    assert "'hed.weight' matches no parameter; the nearest is head.weight" in out
    assert "note: 'conv.weight' has no effect: convolution weight" in out


def test_check_passes_a_good_file_and_strict_refuses_idle_patterns(
    run: Run, tmp_path: Path
) -> None:
    good = overrides(tmp_path, {"fc*.weight": "bfp_bf8"})
    assert run(main, "weights", "check", "net.py:make", good, "--strict")[0] == 0
    idle = overrides(tmp_path, {"conv.weight": "bfp_bf8"})
    assert run(main, "weights", "check", "net.py:make", idle)[0] == 0
    code, out, _ = run(main, "weights", "check", "net.py:make", idle, "--strict", "--json")
    assert code == 1
    assert json.loads(out)["without_effect"][0]["pattern"] == "conv.weight"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "net.py:make", "bfp_b8"), "bfp_bf8"),
        (("check", "net.py:make", "nowhere.json"), "no weight override file"),
        (("check", "net.py:mkae", "bf16"), "make"),
        (("template", "nowhere.py:make"), "no file"),
        (("template", "nowhere/loader.py"), "no loader file"),
        (("template", "net.py"), "has no class ModelLoader"),
    ],
)
def test_mistakes_exit_with_two_and_a_hint(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = run(main, "weights", *arguments)
    assert code == 2
    assert err.startswith("temper: ")
    assert words in err


def test_gen_weight_template_writes_the_file_tt_xla_would(run: Run, loader: Path) -> None:
    code, out, _ = run(template_main, "--loader", str(loader), "--variant", "big")
    path = loader.parent / "mixed_precision_configs" / "tiny-big.json"
    assert (code, out) == (0, f"{path}\n")
    assert path.read_text() == '{\n  "0.weight": "bfp_bf8",\n  "1.weight": "bfp_bf8"\n}\n'


def test_gen_weight_template_uses_the_default_variant_and_folder(
    run: Run, loader: Path, tmp_path: Path
) -> None:
    code, out, _ = run(template_main, "--loader", str(loader), "--output-dir", "here",
                       "--default-dtype", "bfp_bf4")  # fmt: skip
    assert (code, out) == (0, "here/tiny-small.json\n")
    assert set(json.loads((tmp_path / "here/tiny-small.json").read_text()).values()) == {"bfp_bf4"}


def test_gen_weight_template_lists_variants(run: Run, loader: Path) -> None:
    code, out, _ = run(template_main, "--loader", str(loader), "--list-variants")
    assert (code, out) == (0, "small (default)\nbig\n")
    assert json.loads(
        run(template_main, "--loader", str(loader), "--list-variants", "--json")[1]
    ) == ["small", "big"]


def test_gen_weight_template_takes_our_model_arguments(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(template_main, "--loader", "net.py:make")
    assert (code, out) == (0, "mixed_precision_configs/net.json\n")
    assert "fc1.weight" in json.loads((tmp_path / "mixed_precision_configs/net.json").read_text())


def test_gen_weight_template_builds_from_a_local_configuration(run: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(vocab_size=64, num_hidden_layers=1, hidden_size=32,
                                      num_attention_heads=4, intermediate_size=64)  # fmt: skip
    config.save_pretrained(tmp_path / "org" / "toy-llama")
    (tmp_path / "loader.py").write_text(
        "class Config:\n"
        f"    pretrained_model_name = {str(tmp_path / 'org' / 'toy-llama')!r}\n"
        "class ModelLoader:\n"
        "    DEFAULT_VARIANT = 'toy'\n"
        "    @classmethod\n"
        "    def query_available_variants(cls):\n"
        "        return {'toy': Config}\n"
    )
    code, out, err = run(template_main, "--loader", "loader.py", "--output-dir", "out")
    assert (code, out) == (0, "out/toy-llama.json\n"), err
    names = json.loads((tmp_path / "out" / "toy-llama.json").read_text())
    assert "model.layers.0.self_attn.q_proj.weight" in names
    code, _, err = run(
        template_main, "--loader", "loader.py", "--auto-class", "AutoModelForCasualLM"
    )
    assert code == 2
    assert "AutoModelForCausalLM" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--loader"),
        (("--variant", "bigg"), "big"),
        (("--default-dtype", "bfp9"), "bfp_bf8"),
        (("--loader", "net.py:make", "--variant", "x"), "no variants"),
    ],
)
def test_gen_weight_template_tells_mistakes(
    run: Run, loader: Path, arguments: tuple[str, ...], words: str
) -> None:
    if arguments and "--loader" not in arguments:
        arguments = ("--loader", str(loader), *arguments)
    code, _, err = run(template_main, *arguments)
    assert code == 2
    assert words in err


def test_a_loader_that_raises_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loader.py").write_text(
        "class ModelLoader:\n    def load_model(self):\n        raise RuntimeError('no weights')\n"
    )
    code, _, err = run(template_main, "--loader", "loader.py")
    assert code == 2
    assert "load_model raised RuntimeError: no weights" in err
