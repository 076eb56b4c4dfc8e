"""pybuda as the tuning guide and TT-Buda's scripts use it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from temper.errors import TemperError, UsageError

pytestmark = pytest.mark.usefixtures("stand_ins")


def fused_pipeline() -> Any:
    import pybuda

    class FusedPipeline(pybuda.PyBudaModule):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.clamp(x, min=0.0)
            return torch.log(x + 1e-7)

    return FusedPipeline("fused")


def kinds(compiled: Any) -> list[str]:
    return [op.kind for op in compiled.compiled.loaded[0].program.ops]


def test_the_guides_script_compiles_to_a_callable_on_an_e75(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pybuda

    device = pybuda.TFDevice(
        "tt0", arch=pybuda.BackendDevice.Grayskull, devtype=pybuda.BackendType.Silicon
    )
    config = pybuda.CompilerConfig(
        enable_auto_fusing=True, enable_tvm_constant_prop=True, enable_tvm_cpu_fallback=False
    )
    x = torch.randn(64, 256)
    compiled = pybuda.compile(
        fused_pipeline(), sample_inputs=(x,), device=device, compiler_cfg=config
    )
    found = compiled(x)
    assert compiled.options["chip"] == "e75"
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    expected = torch.log(torch.clamp(x, min=0.0) + 1e-7)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    told = capsys.readouterr().err
    assert told.count("PyBuda has no TFDevice") == 1
    assert told.count("forge.compile") == 1
    pybuda.compile(fused_pipeline(), sample_inputs=(x,), device=device)
    assert "forge.compile" not in capsys.readouterr().err


def test_auto_fusing_off_really_does_not_fuse() -> None:
    import pybuda

    x = torch.randn(32, 64)
    fused = pybuda.compile(fused_pipeline(), sample_inputs=(x,))
    plain = pybuda.compile(
        fused_pipeline(), (x,), compiler_cfg=pybuda.CompilerConfig(enable_auto_fusing=False)
    )
    assert len(kinds(fused)) == 1
    assert len(kinds(plain)) == 3
    torch.testing.assert_close(fused(x), plain(x), rtol=1e-6, atol=1e-6)


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(32, 32))
        self.b = nn.Parameter(torch.randn(32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.a * self.b)


def test_constant_propagation_is_const_eval() -> None:
    import pybuda

    x = torch.randn(32, 32)
    counts = {}
    for folding in (True, False):
        config = pybuda.CompilerConfig(enable_tvm_constant_prop=folding, enable_auto_fusing=False)
        compiled = pybuda.compile(Constants(), (x,), compiler_cfg=config)
        counts[folding] = len(kinds(compiled))
        assert compiled.options["enable_const_eval"] is folding
    assert counts[True] < counts[False]


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(x) + 1


def test_cpu_fallback_off_makes_an_unsupported_op_an_error() -> None:
    import pybuda

    x = torch.randn(2, 8, 8)
    allowed = pybuda.compile(Unsupported(), (x,))
    torch.testing.assert_close(allowed(x), torch.linalg.det(x) + 1, rtol=1e-3, atol=1e-3)
    config = pybuda.CompilerConfig(enable_tvm_cpu_fallback=False)
    with pytest.raises(TemperError, match="det"):
        pybuda.compile(Unsupported(), (x,), compiler_cfg=config)


@pytest.mark.parametrize(
    ("settings", "option", "value"),
    [
        ({}, "math_fidelity", "HiFi3"),
        ({"default_math_fidelity": "LoFi"}, "math_fidelity", "LoFi"),
        ({"default_df_override": "Float16_b"}, "activation_dtype", "bfloat16"),
        ({"default_df_override": "Bfp8_b"}, "activation_dtype", "bfloat8_b"),
        ({"default_accumulate_df": "Float32"}, "fp32_dest_acc_en", True),
        ({"default_accumulate_df": "Float16_b"}, "fp32_dest_acc_en", False),
        ({"backend_opt_level": 0}, "optimization_level", 0),
        ({"enable_tvm_cpu_fallback": False}, "fallback", False),
    ],
)
def test_settings_map_to_options(settings: dict[str, Any], option: str, value: Any) -> None:
    import pybuda
    from pybuda._C import DataFormat, MathFidelity

    for name, given in settings.items():
        if name.endswith(("_df", "override")):
            settings = {name: DataFormat[given]}
        elif name.endswith("fidelity"):
            settings = {name: MathFidelity[given]}
    assert pybuda.CompilerConfig(**settings).to_options()[option] == value


def test_wrong_settings_are_errors_that_name_the_right_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pybuda

    with pytest.raises(UsageError, match="enable_auto_fusing"):
        pybuda.CompilerConfig(enable_autofusing=True)
    with pytest.raises(UsageError, match="Float16_b"):
        pybuda.CompilerConfig(default_df_override=pybuda.DataFormat.Lf8).to_options()
    with pytest.raises(UsageError, match="no BackendDevice 'Greyskull'"):
        pybuda.TTDevice("tt0", arch="Greyskull")
    with pytest.raises(UsageError, match="single chip"):
        pybuda.TTDevice("tt0", num_chips=2)
    pybuda.CompilerConfig(balancer_policy="Ribbon")
    assert "balancer_policy has no effect" in capsys.readouterr().err


def test_float32_stays_float32_unless_a_fallback_is_named() -> None:
    import pybuda

    x = torch.randn(32, 64)
    kept = pybuda.compile(fused_pipeline(), (x,), device=pybuda.TTDevice("tt0"))
    device = pybuda.TTDevice("tt1", fp32_fallback=pybuda.DataFormat.Float16_b)
    lowered = pybuda.compile(fused_pipeline(), (x,), device=device)
    formats = [
        {spec.format for spec in made.compiled.loaded[0].program.values.values()}
        for made in (kept, lowered)
    ]
    assert formats[0] == {"float32"}
    assert "bfloat16" in formats[1]


@pytest.mark.parametrize(
    ("arch", "chip"), [("Grayskull", "e75"), ("Wormhole_B0", "n150"), ("Blackhole", "p150")]
)
def test_the_architecture_decides_the_board_and_the_command_line_overrules_it(
    arch: str, chip: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pybuda

    assert pybuda.TTDevice("tt0", arch=pybuda.BackendDevice[arch]).board() == chip
    monkeypatch.setenv("TEMPER_CHIP", "e150")
    assert pybuda.TTDevice("tt0", arch=pybuda.BackendDevice[arch]).board() == "e150"
    assert ("e150 was asked for" in capsys.readouterr().err) == (arch != "Grayskull")


def test_run_inference_gives_a_queue_of_outputs() -> None:
    import pybuda

    linear = nn.Linear(32, 8)
    inputs = [torch.randn(4, 32) for _ in range(3)]
    module = pybuda.PyTorchModule("linear", linear)
    outputs = pybuda.run_inference(module, inputs=[(x,) for x in inputs], input_count=3)
    for x in inputs:
        (found,) = outputs.get()
        torch.testing.assert_close(found.value(), linear(x), rtol=2e-2, atol=2e-2)
    assert outputs.empty()

    device = pybuda.TTDevice("tt0", module=module)
    device.push_to_inputs(inputs[0])
    assert pybuda.run_forward().get()[0].shape == (4, 8)
    with pytest.raises(UsageError, match="input_count is 5"):
        pybuda.run_inference(module, inputs=[(inputs[0],)], input_count=5)
    with pytest.raises(UsageError, match=r"wraps a torch\.nn\.Module"):
        pybuda.PyTorchModule("no", lambda x: x)


def test_pybuda_operators_in_forward_and_verification() -> None:
    import pybuda
    from pybuda.verify import verify_module
    from pybuda.verify.config import VerifyConfig

    class Layer(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.add_parameter("w", pybuda.Parameter(32, 32))
            self.set_parameter("w", torch.eye(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = pybuda.op.Matmul("mm", x, self.w)
            return pybuda.op.Relu("relu", pybuda.op.Add("add", y, x))

    x = torch.randn(32, 32)
    compiled = pybuda.compile(Layer("layer"), (x,), verify_cfg=VerifyConfig(pcc=0.99))
    torch.testing.assert_close(compiled(x), torch.relu(2 * x), rtol=2e-2, atol=2e-2)
    verify_module(Layer("layer"), [(32, 32)])
    with pytest.raises(TemperError, match="differs from the host"):
        pybuda.compile(Layer("l"), (x,), verify_cfg=VerifyConfig(pcc=1.5))
