"""Weight-format overrides: which parameters they hit, and that the model stays what it was."""

from __future__ import annotations

import copy
import io
import json
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from temper import (
    apply_weight_dtype_overrides,
    dump_weight_names,
    remove_weight_dtype_overrides,
    stats,
)
from temper.errors import BadFileError, UsageError
from temper.weights.overrides import weight_override_entries
from temper.weights.report import WeightFormatEntry, outlook, summary


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.embed = nn.Embedding(7, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(8, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x).relu() @ self.scale
        return self.head(x)


TOKENS = torch.tensor([[1, 2, 3]])


def captured_formats(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    """The dtypes of the override ops in the graph that Dynamo captures."""
    found: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        found.extend(
            str(node.args[1])
            for node in graph.graph.nodes
            if "weight_dtype_override" in str(node.target)
        )
        return graph

    torch._dynamo.reset()
    torch.compile(model, backend=backend, fullgraph=True)(*inputs)
    return found


def test_globs_default_and_the_later_pattern_winning() -> None:
    model = Net()
    applied = apply_weight_dtype_overrides(
        model,
        {"default": "bfp_bf8", "blocks.*.weight": "bfp_bf4", "blocks.1.*": "bf16"},
    )
    assert dict(applied) == {
        "conv.weight": "bfp_bf8",
        "embed.weight": "bfp_bf8",
        "blocks.0.weight": "bfp_bf4",
        "blocks.1.weight": "bf16",
        "blocks.2.weight": "bfp_bf4",
        "head.weight": "bfp_bf8",
    }


def test_a_glob_over_a_layer_is_about_its_matrix_and_one_over_biases_about_them() -> None:
    model = Net()
    assert apply_weight_dtype_overrides(model, {"head.*": "bfp_bf8"}) == [
        ("head.weight", "bfp_bf8")
    ]
    assert len(apply_weight_dtype_overrides(model, {"*.bias": "bfp_bf8"})) == 4
    assert apply_weight_dtype_overrides(Net(), {"blocks.0.bias": "bf16"})


def test_default_leaves_biases_and_bare_parameters_alone() -> None:
    names = [name for name, _ in apply_weight_dtype_overrides(Net(), "bfp_bf8")]
    assert "scale" not in names
    assert all(name.endswith(".weight") for name in names)


def test_the_first_call_wins_and_the_second_is_reported() -> None:
    model = Net()
    apply_weight_dtype_overrides(model, {"blocks.0.weight": "bfp_bf4"})
    with pytest.warns(UserWarning, match=r"blocks\.0\.weight skipped: an earlier call"):
        applied = apply_weight_dtype_overrides(model, {"blocks.*.weight": "bfp_bf8"})
    assert [name for name, _ in applied] == ["blocks.1.weight", "blocks.2.weight"]
    last = weight_override_entries(model)[-1]
    assert (last.requested, last.effective) == ("bfp_bf8", "bfp_bf4")
    assert "first call wins" in last.reason


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("blocks.0.wieght", "blocks.0.weight"),
        ("head", "head.weight"),
        ("*.haed.weight", "head.weight"),
        ("Embed.weight", "embed.weight"),
    ],
)
def test_a_pattern_that_matches_nothing_warns_with_the_nearest_name(
    pattern: str, near: str
) -> None:
    with pytest.warns(UserWarning, match=f"matches no parameter.*{near}"):
        assert apply_weight_dtype_overrides(Net(), {pattern: "bf16"}) == []


@pytest.mark.parametrize("spelling", ["bfp_bf8", "BFLOAT8_B", "bfp8_b", "bfp8"])
def test_every_spelling_of_a_format_is_taken(spelling: str) -> None:
    assert apply_weight_dtype_overrides(Net(), {"head.weight": spelling}) == [
        ("head.weight", "bfp_bf8")
    ]


@pytest.mark.parametrize("bad", ["bfp_b8", "float32", "bfloat2_b", "int8", 8, None])
def test_a_wrong_dtype_names_the_allowed_ones_and_changes_nothing(bad: object) -> None:
    model = Net()
    with pytest.raises(UsageError, match="bf16 bfp_bf8 bfp_bf4"):
        apply_weight_dtype_overrides(model, {"blocks.0.weight": "bf16", "head.weight": bad})  # type: ignore[dict-item]
    assert weight_override_entries(model) == []


def test_json_files_and_paths_are_read(tmp_path: Path) -> None:
    file = tmp_path / "formats.json"
    file.write_text('{"default": "bf16", "head.weight": "bfp_bf4"}')
    for config in (file, str(file)):
        assert dict(apply_weight_dtype_overrides(Net(), config))["head.weight"] == "bfp_bf4"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a": "bf16"', '{"a": "bf16", "a": "bf16"}', "\x00\xff"]
)
def test_a_damaged_file_is_told_without_a_traceback(tmp_path: Path, text: str) -> None:
    file = tmp_path / "formats.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadFileError, match=r"formats\.json is no weight override file"):
        apply_weight_dtype_overrides(Net(), file)


def test_a_missing_file_and_a_wrong_kind_are_usage_errors() -> None:
    with pytest.raises(UsageError, match=r"no weight override file nowhere\.json"):
        apply_weight_dtype_overrides(Net(), "nowhere.json")
    with pytest.raises(UsageError, match="not int"):
        apply_weight_dtype_overrides(Net(), 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="need a torch"):
        apply_weight_dtype_overrides([], "bf16")  # type: ignore[arg-type]


def test_state_dict_parameters_and_printing_stay_as_they_were() -> None:
    plain, model = Net(), Net()
    apply_weight_dtype_overrides(model, "bfp_bf8")
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert repr(model) == repr(plain)
    assert isinstance(model.head, nn.Linear)
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model(TOKENS), plain(TOKENS))


def test_the_weight_attribute_is_still_the_parameter_and_stays_tied() -> None:
    model = Net()
    apply_weight_dtype_overrides(model, {"head.weight": "bfp_bf8"})
    assert model.head.weight is model.embed.weight
    model(TOKENS).sum().backward()
    assert model.head.weight.grad is not None


def test_each_override_is_one_op_in_a_captured_graph() -> None:
    model = Net()
    apply_weight_dtype_overrides(model, {"blocks.*.weight": "bfp_bf4", "scale": "bfp_bf8"})
    assert sorted(captured_formats(model, TOKENS)) == ["bfp_bf4"] * 3 + ["bfp_bf8"] * 3
    program = torch.export.export(model, (TOKENS,))
    targets = [node.target for node in program.graph.nodes]
    assert targets.count(torch.ops.tt.weight_dtype_override.default) >= 4
    assert "blocks.0.weight" in program.state_dict


def test_only_the_overridden_use_of_a_tied_weight_carries_the_format() -> None:
    model = Net()
    assert apply_weight_dtype_overrides(model, {"head.weight": "bfp_bf8"}) == [
        ("head.weight", "bfp_bf8")
    ]
    assert captured_formats(model, TOKENS) == ["bfp_bf8"]


def test_overriding_a_compiled_model_recompiles_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    graphs = []
    torch._dynamo.reset()
    compiled = torch.compile(
        model, backend=lambda graph, _: graphs.append(str(graph.graph)) or graph
    )
    compiled(torch.zeros(1, 4))
    apply_weight_dtype_overrides(compiled, {"0.weight": "bfp_bf8"})  # type: ignore[arg-type]
    compiled(torch.zeros(1, 4))
    assert ["weight_dtype_override" in text for text in graphs] == [False, True]


def test_removing_gives_the_layer_its_class_back() -> None:
    model = Net()
    apply_weight_dtype_overrides(model, {"blocks.*": "bf16"})
    assert len(remove_weight_dtype_overrides(model)) == 3
    assert type(model.blocks[0]) is nn.Linear
    assert weight_override_entries(model) == []
    assert captured_formats(model, TOKENS) == []
    assert apply_weight_dtype_overrides(model, {"blocks.0.bias": "bf16"})


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_keep_their_overrides(how: str) -> None:
    model = Net()
    apply_weight_dtype_overrides(model, {"blocks.0.weight": "bfp_bf4"})
    if how == "deepcopy":
        other = copy.deepcopy(model)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert weight_override_entries(other) == weight_override_entries(model)
    assert torch.equal(other(TOKENS), model(TOKENS))
    remove_weight_dtype_overrides(other)
    assert weight_override_entries(model) != []


def test_a_layer_used_under_two_names_is_overridden_once() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"first": shared, "second": shared})
    assert apply_weight_dtype_overrides(model, {"second.weight": "bfp_bf8"}) == [
        ("first.weight", "bfp_bf8")
    ]


def test_dump_weight_names_writes_a_file_that_apply_takes(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "names.json"
    names = dump_weight_names(Net(), file, default_dtype="bfp_bf4")
    assert json.loads(file.read_text()) == names
    assert set(names) == {
        "conv.weight",
        "embed.weight",
        "head.weight",
        "blocks.0.weight",
        "blocks.1.weight",
        "blocks.2.weight",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(apply_weight_dtype_overrides(Net(), file)) == 6
    assert [p.name for p in file.parent.iterdir()] == ["names.json"]


def test_the_op_is_an_identity_with_a_gradient_and_a_fake() -> None:
    from temper.weights.op import ensure_op_defined

    ensure_op_defined()
    op = torch.ops.tt.weight_dtype_override
    weight = torch.randn(3, 4, requires_grad=True)
    out = op(weight, "bfp_bf8")
    assert torch.equal(out, weight)
    assert out is not weight
    out.sum().backward()
    assert torch.equal(weight.grad, torch.ones(3, 4))
    assert op(weight.to("meta"), "bf16").shape == (3, 4)
    assert str(op.default._schema) == ("tt::weight_dtype_override(Tensor w, str dtype) -> Tensor")
    torch.library.opcheck(op.default, (weight, "bfp_bf8"))
    with pytest.raises(UsageError, match="bf16 bfp_bf8 bfp_bf4"):
        op(weight, "bfp9")


def test_the_layer_foretells_what_a_format_will_do() -> None:
    model = Net().to(torch.bfloat16)
    assert outlook(model.head, model.head.weight).converts is True
    assert outlook(model, model.scale).converts is None
    wide = nn.Linear(4, 4)
    assert "float32: cast the model" in outlook(wide, wide.weight).reason
    for module, attribute, word in [
        (model.conv, "weight", "convolution"),
        (model.embed, "weight", "embedding"),
        (model.blocks[0], "bias", "vector"),
        (nn.LayerNorm(4), "weight", "vector"),
        (nn.LSTM(4, 4), "weight_ih_l0", "LSTM"),
    ]:
        seen = outlook(module, getattr(module, attribute))
        assert seen.converts is False
        assert word in seen.reason


def test_entries_say_whether_they_took_effect() -> None:
    asked = WeightFormatEntry("fc.weight", "bfp_bf8", "*.weight")
    done = asked.resolved("bfp_bf8")
    refused = asked.resolved("bf16", "convolution weight")
    assert (done.took_effect, refused.took_effect, asked.took_effect) == (True, False, False)
    assert summary([asked, done, refused]) == {"took_effect": 1, "no_effect": 1, "pending": 1}
    assert refused.as_dict()["reason"] == "convolution weight"


def test_the_report_of_a_compiled_model_names_weights_patterns_and_reasons() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 4)).to(torch.bfloat16)
    apply_weight_dtype_overrides(model, {"*.weight": "bfp_bf8"})
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="tt")
    with torch.no_grad():
        compiled(torch.zeros(1, 1, 8, 8, dtype=torch.bfloat16))
    report = {e["parameter"]: e for e in stats(compiled)["weight_formats"]}
    assert report["2.weight"]["took_effect"]
    assert report["2.weight"]["origin"] == "*.weight"
    assert not report["0.weight"]["took_effect"]
    assert "conv2d" in report["0.weight"]["reason"]
    assert "override" not in report["0.weight"]["reason"]
