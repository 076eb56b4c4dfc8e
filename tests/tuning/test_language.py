"""Modelled figures of language models against arithmetic on the boards' published peaks."""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from transformers import LlamaConfig

from temper.cli.bench import command
from temper.errors import TemperError, UsageError
from temper.frontdoor.language.unwritten import unwritten
from temper.tuning import language_tune
from temper.tuning.language import LanguageCosts
from temper.tuning.language_accuracy import LanguageFloor, LanguageSample

EIGHT_B = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
BFP8 = {
    "optimization_level": 2, "experimental_weight_dtype": "bfp_bf8",
    "experimental_kv_cache_dtype": "bfp_bf8", "enable_trace": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("llama-8b")
    LlamaConfig(**EIGHT_B).save_pretrained(path)
    return str(path)


# DRAM of the boards' data sheets: peak rate in GB/s, and size.
@pytest.mark.parametrize(
    ("chip", "peak", "dram"), [("n150", 288.0, 12 * 2**30), ("p150", 512.0, 32 * 2**30)]
)
def test_a_decode_step_of_eight_billion_is_within_and_near_the_dram_roofline(
    folder: str, chip: str, peak: float, dram: int
) -> None:
    costs = LanguageCosts(folder, {**BFP8, "chip": chip})
    times = costs.times(32, 1024)
    layers = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    weights = (layers + 4096 * 128256) * 17 / 16  # bfp8: a byte each, an exponent for sixteen
    cache = 32 * 32 * 2 * 8 * 128 * 1024 * 17 / 16
    assert times.read_bytes == pytest.approx(weights + cache, rel=0.01)
    assert times.roofline_ns == pytest.approx((weights + cache) / peak, rel=0.01)
    assert 0.6 <= times.roofline_share < 1.0
    assert times.step_ns.low < times.step_ns.value < times.step_ns.high
    kinds = [op.kind for op in times.layer]
    assert {"UpdateCache", "SdpaDecode", "CreateQkvHeadsDecode", "RotaryEmbedding"} <= set(kinds)
    assert kinds.count("Matmul") == 5
    assert not {"Scatter", "Permute", "Repeat", "Host"} & set(kinds)
    assert {op.bound for op in times.layer} <= {"compute", "sfpu", "dram", "noc", "launch"}
    room = dram - weights - 4096 * 128256 * 2  # the table of embeddings is bfloat16
    assert 0.8 * room < costs.longest(32) * cache / 1024 < room


def test_bench_of_a_folder_prints_rates_by_batch_and_context(tmp_path: Path) -> None:
    small = {**EIGHT_B, "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512,
             "num_hidden_layers": 4, "num_attention_heads": 8}  # fmt: skip
    LlamaConfig(**small).save_pretrained(tmp_path)
    given = ["bench", "--llm", str(tmp_path), "--users", "1", "--context", "64,128", "--json"]
    result = CliRunner().invoke(command, given[1:])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["times"]
    assert [(t["users"], t["context"]) for t in found] == [(1, 64), (1, 128)]
    assert all(t["fits"] for t in found)


_MAMBA = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (None, "has no config.json"),
        ("{", "cannot read"),
        ({"model_type": "lama"}, '"model_type": "llama"'),
        ({**EIGHT_B, "model_type": "llama", "hidden_size": 4000}, "makes no model of"),
        (_MAMBA, "linear_attention"),
        ({"model_type": "t5"}, "an encoder-decoder"),
    ],
)
def test_a_folder_that_is_no_language_model_is_told_in_words(
    tmp_path: Path, config: object, word: str
) -> None:
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=word) as told:
        LanguageCosts(str(tmp_path), BFP8).times(1, 64)
    assert "Traceback" not in str(told.value)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of a process from /proc")
def test_weights_that_nobody_writes_leave_a_process_that_can_be_forked() -> None:
    def size_gb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE / 1e9

    before = size_gb()
    weights = unwritten((64, 2**30), torch.bfloat16)  # 137 GB, more than the system would promise
    assert weights.shape == (64, 2**30)
    assert size_gb() > before + 137
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    del weights
    assert size_gb() < before + 1


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("small")
    small = {**EIGHT_B, "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "max_position_embeddings": 128, "initializer_range": 0.15}  # fmt: skip
    LlamaConfig(**small).save_pretrained(path)
    return str(path)


def test_coarser_formats_cost_perplexity_and_agreement(small_folder: str) -> None:
    sample = LanguageSample(small_folder)
    plain, coarse = (sample.judge({"experimental_weight_dtype": fmt}) for fmt in ("", "bfp_bf4"))
    assert plain.tokens == 8 * 16
    assert abs(plain.perplexity_ratio - 1) < 0.03
    assert plain.pcc > 0.999
    assert plain.top1 == pytest.approx(sample.eager.top1, abs=0.05)
    assert coarse.perplexity_ratio > plain.perplexity_ratio
    assert coarse.top1 < plain.top1


def test_tune_takes_the_fastest_setting_that_keeps_the_floor(
    small_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {k: language_tune._WEIGHTS[k] for k in ("weights in bfp4", "weights in bfloat16")}
    monkeypatch.setattr(language_tune, "_WEIGHTS", weights)
    monkeypatch.setattr(language_tune, "_CACHES", {"cache in bfloat16": {}})
    monkeypatch.setattr(language_tune, "_SHARDS", {"weights interleaved": {}})
    tuned = language_tune.tune_language(small_folder, {}, 4, 32, LanguageFloor(1.05, 0.9, 0.99))
    assert tuned.best.name.startswith("weights in bfloat16")
    refused = [trial for trial in tuned.trials if not trial.kept]
    assert [trial.name.split(",")[0] for trial in refused] == ["weights in bfp4"]
    assert refused[0].times.step_ns.value <= tuned.best.times.step_ns.value
    monkeypatch.setattr(language_tune, "_WEIGHTS", {"weights in bfp4": weights["weights in bfp4"]})
    monkeypatch.setattr(LanguageSample, "judge", lambda self, options: refused[0].accuracy)
    with pytest.raises(TemperError, match="no setting keeps"):
        language_tune.tune_language(small_folder, {}, 4, 32, LanguageFloor(1.05, 0.9, 0.99))


def test_the_accuracy_of_a_large_model_is_refused_before_it_is_made(folder: str) -> None:
    with pytest.raises(UsageError, match=r"8\.0 billion parameters"):
        LanguageSample(folder)
