"""TT-Buda's ways to run: pushed inputs, queues, pipelines of devices, tokenizers' encodings."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from temper.errors import UsageError

pytestmark = pytest.mark.usefixtures("stand_ins")


class Named(nn.Module):
    """Arguments by name, a mapping as output, as Hugging Face's models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, input_ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        hidden = self.linear(input_ids) * mask
        return {"logits": hidden, "hidden": hidden.sum(-1)}


class Encoding:
    """What a tokenizer gives: items by name, but no mapping."""

    def __init__(self, **items: torch.Tensor) -> None:
        self.items = items

    def keys(self) -> Any:
        return self.items.keys()

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.items[name]


@pytest.mark.parametrize("kind", [dict, Encoding])
def test_inputs_by_name_and_outputs_by_order(kind: Callable[..., Any]) -> None:
    import pybuda

    model, x = Named(), torch.randn(2, 16)
    given = kind(input_ids=x, mask=torch.full((2, 4), 2.0))
    outputs = pybuda.run_inference(pybuda.PyTorchModule("named", model), inputs=[given]).get()
    assert [tuple(value.shape) for value in outputs] == [(2, 4), (2,)]
    torch.testing.assert_close(outputs[0].value(), 2 * model.linear(x), rtol=2e-2, atol=2e-2)


def test_the_check_of_an_installation_runs() -> None:
    import pybuda

    linear, x = nn.Linear(32, 8), torch.rand(4, 32)
    (found,) = pybuda.PyTorchModule("direct", linear).run(x)
    torch.testing.assert_close(found.value(), linear(x), rtol=2e-2, atol=2e-2)


def test_a_loop_of_pushes_compiles_once() -> None:
    import pybuda

    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("linear", nn.Linear(32, 8)))
    made = set()
    for _ in range(3):
        device.push_to_inputs(torch.rand(4, 32))
        assert pybuda.run_inference(_sequential=True).get()[0].shape == (4, 8)
        made |= {id(item.compiled) for item in device._compiled.values()}
    assert len(made) == 1


def test_inputs_pushed_after_the_run_began_are_run_when_asked_for() -> None:
    import pybuda

    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("linear", nn.Linear(32, 8)))
    outputs = pybuda.run_inference()
    with pytest.raises(UsageError, match="no input was pushed"):
        outputs.get()
    with pytest.raises(queue.Empty):
        outputs.get_nowait()
    device.push_to_inputs(torch.rand(2, 32))
    assert outputs.get()[0].shape == (2, 8)


def test_devices_are_stages_in_the_order_in_which_they_were_made() -> None:
    import pybuda

    first, second = nn.Linear(16, 32), nn.Sequential(nn.Linear(32, 4), nn.ReLU())
    host = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("first", first))
    pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("second", second))
    x = torch.randn(2, 16)
    outputs = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    for _ in range(2):
        host.push_to_inputs((x,))
        pybuda.run_forward(input_count=1)
        found = outputs.get()[0].value()
        torch.testing.assert_close(found, second(first(x)), rtol=2e-2, atol=2e-2)
    with pytest.raises(UsageError, match="2 inputs are to be run, but 0 were pushed"):
        pybuda.run_forward(input_count=2)
    assert [list(one) for one in pybuda.get_parameter_checkpoint()] == [
        ["weight", "bias"], ["0.weight", "0.bias"],
    ]  # fmt: skip


def test_subgraphs_of_a_device_are_chosen_by_number() -> None:
    import pybuda

    pybuda.config._get_global_compiler_config().compile_subgraphs = True
    device = pybuda.TTDevice("tt0", module=[nn.Linear(8, 2), nn.Linear(4, 3)])
    outputs = pybuda.initialize_pipeline(
        False, sample_inputs=([torch.rand(1, 8)], [torch.rand(1, 4)])
    )
    for index, width in ((0, 8), (1, 4)):
        device.set_active_subgraph(index)
        device.push_to_inputs([torch.rand(1, width)])
        pybuda.run_generate(input_count=1, write_index=0)
        assert outputs.get()[0].shape == (1, (2, 3)[index])


def test_training_and_other_frameworks_are_refused_with_a_way_out() -> None:
    import pybuda

    for refused in (
        pybuda.run_training, pybuda.run_backward, lambda: pybuda.initialize_pipeline(training=True),
        lambda: pybuda.OnnxModule("m", None), lambda: pybuda.TFModule("m", None),
        lambda: pybuda.TTDevice("tt0").compile_to_image(),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="try"):
            refused()


@pytest.mark.parametrize(
    ("chip", "arch"), [("e75", "Grayskull"), ("n150", "Wormhole_B0"), ("p150", "Blackhole")]
)
def test_the_available_device_is_the_chip_of_the_command_line(
    chip: str, arch: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pybuda
    from pybuda._C.backend_api import BackendDevice

    assert pybuda.detect_available_devices() == [BackendDevice.Grayskull]
    monkeypatch.setenv("TEMPER_CHIP", chip)
    assert pybuda.detect_available_devices() == [BackendDevice[arch]]
    assert pybuda.TTDevice("tt0").board() == chip
    assert "was asked for" not in capsys.readouterr().err


def test_orders_for_single_ops_are_accepted_with_one_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pybuda

    config = pybuda.config._get_global_compiler_config()
    config.place_on_new_epoch("conv2d_1")
    config.balancer_op_override("matmul_1", "grid_shape", (1, 1))
    config.cpu_fallback_ops.add("concatenate")
    pybuda.config.override_op_size("softmax_1", (4, 1))
    pybuda.config.override_t_stream_shape("softmax_1", (1, 47))
    pybuda.config.insert_fracture_group([("matmul_1", pybuda.k_dim, 2)])
    pybuda.set_epoch_break("multiply_1")
    assert capsys.readouterr().err.count("have no effect") == 1
    assert pybuda.CompilerConfig().cpu_fallback_ops == {"embedding"}


def test_mixed_precision_reaches_the_weights_and_the_fidelity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pybuda

    def options() -> dict[str, Any]:
        found: dict[str, Any] = pybuda.config._get_global_compiler_config().to_options()
        return found

    config = pybuda.config._get_global_compiler_config()
    config.enable_amp_light(2)
    assert (options()["experimental_weight_dtype"], options()["math_fidelity"]) == (
        "bfp_bf4",
        "HiFi2",
    )
    pybuda.pybuda_reset()
    pybuda.config.configure_mixed_precision(
        name_regex="matmul_.*", input_df={1: [pybuda.DataFormat.Bfp8_b, True]}
    )
    assert options()["experimental_weight_dtype"] == "bfp_bf8"
    assert "no effect" not in capsys.readouterr().err
    pybuda.configure_mixed_precision(op_type="splice", output_df=pybuda.DataFormat.Float16_b)
    assert "splice has no effect" in capsys.readouterr().err
    pybuda.pybuda_reset()
    pybuda.config._get_global_compiler_config().amp_level = 1
    assert options()["experimental_weight_dtype"] == "bfp_bf8"
    assert options()["activation_dtype"] == "bfloat16"
    monkeypatch.setenv("PYBUDA_DEFAULT_DF", "Bfp8_b")
    assert pybuda.CompilerConfig().to_options()["activation_dtype"] == "bfloat8_b"
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(
        accumulate_df=pybuda.DataFormat.Float32, math_fidelity=pybuda.MathFidelity.LoFi,
        default_df_override=pybuda._C.Float16_b, performance_trace=pybuda.PerfTraceLevel.LIGHT,
    )  # fmt: skip
    assert (options()["fp32_dest_acc_en"], options()["math_fidelity"]) == (True, "LoFi")
    assert options()["activation_dtype"] == "bfloat16"


OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Softmax": (lambda op, x: op.Softmax("", x, dim=-1), lambda x: x.softmax(-1)),
    "Layernorm": (
        lambda op, x: op.Layernorm("", x, torch.full((8,), 2.0), torch.ones(8)),
        lambda x: nn.functional.layer_norm(x, (8,)) * 2 + 1,
    ),
    "Layernorm over rows": (
        lambda op, x: op.Layernorm("", x, torch.tensor(1.0), torch.tensor(0.0), dim=-2),
        lambda x: nn.functional.layer_norm(x.mT, (4,)).mT,
    ),
    "ReduceMax": (lambda op, x: op.ReduceMax("", x, dim=-1), lambda x: x.amax(-1, keepdim=True)),
    "Index": (lambda op, x: op.Index("", x, -1, 1, 7, 2), lambda x: x[..., 1:7:2]),
    "Select": (lambda op, x: op.Select("", x, -1, (1, 2), 4), lambda x: x[..., [1, 2, 5, 6]]),
    "Broadcast": (
        lambda op, x: op.Broadcast("", op.ReduceSum("", x, 0), 0, 3),
        lambda x: x.sum(0, keepdim=True).expand(3, 4, 8),
    ),
    "GreaterEqual": (lambda op, x: op.GreaterEqual("", x, -x), lambda x: (x >= -x).float()),
    "Matmul by name": (
        lambda op, x: op.Matmul(name="", operandA=x, operandB=x.mT, bias=torch.ones(4)),
        lambda x: x @ x.mT + 1,
    ),
    "Conv2d": (
        lambda op, x: op.Conv2d("", x[None], torch.ones(1, 2, 3, 3), padding="same"),
        lambda x: nn.functional.conv2d(x[None], torch.ones(1, 2, 3, 3), padding=1),
    ),
    "MaxPool2d": (
        lambda op, x: op.MaxPool2d("", x[None], 2, stride=2, padding=0),
        lambda x: nn.functional.max_pool2d(x[None], 2),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_its_torch_function(name: str) -> None:
    import pybuda

    ours, theirs = OPERATORS[name]
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8)
    torch.testing.assert_close(ours(pybuda.op, x), theirs(x))


def test_modules_of_operators_hold_their_parameters() -> None:
    import pybuda

    layer = pybuda.op.nn.Linear("fc", 8, 4)
    conv = pybuda.op.nn.Conv2dModule("conv", 2, 3, (3, 3), bias=False)
    assert layer(torch.ones(1, 8)).shape == (1, 4)
    assert conv(torch.ones(1, 2, 5, 5)).shape == (1, 3, 5, 5)
    assert [name for name, _ in layer.named_parameters()] == ["weights", "bias"]


def test_a_hugging_face_pipeline_generates_with_one_program() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from pybuda.transformers.pipeline import pipeline

    from temper.frontdoor.loaded import loaded_graphs

    words = {"[PAD]": 0, "[UNK]": 1, "my": 2, "name": 3, "is": 4, "thomas": 5}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]"
    )
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32, "vocab_size": 6}
    config = transformers.GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[2, 3, 4]])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False, pad_token_id=0
    )
    before = loaded_graphs()  # held, so that none of them goes meanwhile
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer, pybuda_max_length=16)
    (found,) = generate(
        "my name is", max_new_tokens=4, do_sample=False, pad_token_id=0, return_tensors=True
    )
    assert found["generated_token_ids"] == expected[0].tolist()
    assert len(loaded_graphs()) == len(before) + 1
