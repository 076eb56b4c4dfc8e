"""torch_xla and tt_torch as tt-xla's and tt-torch's scripts use them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from temper import options
from temper.errors import UsageError

pytestmark = pytest.mark.usefixtures("stand_ins")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(32, 64)
        self.fc2 = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def test_a_tt_xla_script_runs_on_the_device() -> None:
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr
    from tt_torch import apply_weight_dtype_overrides

    torch._dynamo.reset()
    xr.set_device_type("TT")
    xr.initialize_cache  # noqa: B018 - exists
    torch_xla.set_custom_compile_options({"optimization_level": "1", "enable_trace": "true"})
    assert options.get_custom_compile_options() == {"optimization_level": 1, "enable_trace": True}
    model = Small().to(torch.bfloat16).eval()
    x = torch.randn(4, 32, dtype=torch.bfloat16)
    expected = model(x)
    assert apply_weight_dtype_overrides(model, {"fc2.weight": "bfp_bf8"})
    device = xm.xla_device()
    assert device == torch_xla.device() == torch.device("tt")
    compiled = torch.compile(model.to(device), backend="tt")
    with torch.no_grad():
        found = compiled(x.to(device))
    torch_xla.sync()
    xm.mark_step()
    assert found.device.type == "tt"
    torch.testing.assert_close(found.cpu(), expected, rtol=0.05, atol=0.05)


def test_one_chip_is_all_there_is() -> None:
    import torch_xla
    import torch_xla.distributed.xla_multiprocessing as xmp
    import torch_xla.runtime as xr
    from torch_xla.distributed.spmd import Mesh

    seen: list[tuple[int, str]] = []
    torch_xla.launch(lambda index, word: seen.append((index, word)), args=("a",))
    xmp.spawn(lambda index: seen.append((index, "b")))
    assert seen == [(0, "a"), (0, "b")]
    assert xr.global_device_count() == xr.world_size() == torch_xla.device_count() == 1
    refusals = (
        lambda: torch_xla.device(1),
        lambda: Mesh([0, 1], (1, 2), ("batch", "model")),
        lambda: xmp.spawn(print, nprocs=2),
        lambda: xr.set_device_type("TPU"),
    )
    for refused in refusals:
        with pytest.raises(UsageError):
            refused()


def test_wrong_compile_options_are_errors() -> None:
    import torch_xla

    with pytest.raises(UsageError, match="optimization_level"):
        torch_xla.set_custom_compile_options({"optimisation_level": 1})
    with pytest.raises(UsageError):
        torch_xla.set_custom_compile_options({"enable_trace": "perhaps"})


def test_saving_moves_tensors_to_the_host(tmp_path: Path) -> None:
    import torch_xla.core.xla_model as xm

    xm.save({"x": torch.ones(2).to(xm.xla_device())}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True)["x"].device.type == "cpu"


def test_a_tt_torch_script_compiles_with_its_own_backend_and_options() -> None:
    from tt_torch.dynamo.backend import BackendOptions, backend
    from tt_torch.tools.device_manager import DeviceManager
    from tt_torch.tools.utils import CompileDepth, CompilerConfig

    torch._dynamo.reset()
    config = CompilerConfig()
    config.enable_consteval = True
    config.compile_depth = CompileDepth.EXECUTE
    backend_options = BackendOptions(compiler_config=config)
    _, devices = DeviceManager.acquire_available_devices()
    backend_options.devices = devices
    model = Small().eval()
    x = torch.randn(4, 32)
    compiled = torch.compile(model, backend=backend, dynamic=False, options=backend_options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=0.05, atol=0.05)
    assert config.to_options() == {"enable_const_eval": True}
    config.compile_depth = CompileDepth.STABLEHLO
    assert config.to_options()["dry_run"] is True
    with pytest.raises(UsageError, match="enable_consteval"):
        config.enable_const_eval = True


def test_verify_module_compares_with_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    from tt_torch.tools.verify import verify_module

    verify_module(Small(), input_shapes=[(4, 32)], required_atol=0.05)
    assert "PCC" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="verification failed"):
        verify_module(Small(), inputs=[torch.randn(4, 32)], required_pcc=1.1)
    verify_module(Small(), inputs=[torch.randn(4, 32)], required_pcc=1.1, do_assert=False)
    with pytest.raises(UsageError, match="ONNX"):
        verify_module("model.onnx")


def test_the_profiler_class_captures_processes_and_writes_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    from tt_torch.tools.profile_util import Profiler

    monkeypatch.chdir(tmp_path)
    profiler = Profiler("ops.csv")
    assert int(profiler.setup_tracy_server()) > 0
    source = (
        "import torch, temper\n"
        "m = temper.compile(torch.nn.Linear(32, 32).eval())\n"
        "m(torch.randn(32, 32))\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=120)
    profiler.close_capture_tool_process()
    profiler.post_process_ops()
    text = (tmp_path / "results" / "perf" / "ops.csv").read_text()
    assert "MatmulDeviceOperation" in text


def test_a_mesh_of_the_one_chip_splits_nothing() -> None:
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr
    from tt_torch.sharding import sharding_constraint_hook

    xr.use_spmd()
    assert xr.is_spmd()
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(list(range(count)), (1, count), ("batch", "model"))
    assert mesh.shape() == {"batch": 1, "model": 1}
    x = torch.ones(2, 2)
    assert xs.mark_sharding(x, mesh, ("model", None)) is x
    assert xm.all_reduce(xm.REDUCE_SUM, x) is x
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(sharding_constraint_hook(layer, mesh, (None, None)))
    assert layer(x).shape == (2, 2)
    assert xr.global_runtime_device_attributes()[0]["device_arch"] == "wormhole_b0"
    assert xm.xla_device_kind() == "wormhole_b0"


@pytest.mark.parametrize(
    ("given", "today"),
    [
        ({"enable_bfp8_conversion": "true"}, {"experimental_weight_dtype": "bfloat8_b"}),
        ({"enable_optimizer": True}, {"optimization_level": 1}),
        ({"enable_optimizer": True, "enable_sharding": True}, {"optimization_level": 2}),
        ({"enable_optimizer": "false", "enable_l1_interleaved": True}, {}),
        ({"enable_optimizer": True, "optimization_level": 0}, {"optimization_level": 0}),
        (
            {"backend": "codegen_py", "export_path": "model"},
            {"backend": "codegen_py", "export_path": "model"},
        ),
        (
            {"enable_fusing_conv2d_with_multiply_pattern": True},
            {"experimental_enable_fusing_conv2d_with_multiply_pattern": True},
        ),
    ],
)
def test_option_names_of_older_tt_xla_are_taken_for_todays(
    given: dict[str, object], today: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    import torch_xla

    torch_xla.set_custom_compile_options(given)
    assert options.get_custom_compile_options() == today
    told = "the option" in capsys.readouterr().err
    assert told == any(name.startswith("enable") for name in given)


@pytest.mark.parametrize("name", ["openxla", "tt-legacy", "tt-experimental"])
def test_backends_of_other_stacks_are_names_of_the_one_backend(name: str) -> None:
    import torch_xla  # noqa: F401

    torch._dynamo.reset()
    model, x = Small().eval(), torch.randn(4, 32)
    with torch.no_grad():
        found = torch.compile(model, backend=name)(x)
        torch.testing.assert_close(found, model(x), rtol=0.05, atol=0.05)


def test_backend_options_reach_the_backend_by_name_too(tmp_path: Path) -> None:
    from tt_torch.dynamo.backend import BackendOptions
    from tt_torch.tools.utils import CompilerConfig

    config = CompilerConfig()
    config.enable_optimizer = config.enable_trace = config.enable_program_cache = True
    config.trace_region_size = 4_000_000
    given = BackendOptions()
    given.compiler_config, given.devices, given.buffer_cache = config, [None], {}
    assert dict(given) == {
        "optimization_level": 1, "enable_trace": True, "enable_program_cache": True,
        "trace_region_size": 4_000_000,
    }  # fmt: skip
    torch._dynamo.reset()
    model, x = Small().eval(), torch.randn(4, 32)
    with torch.no_grad():
        torch.compile(model, backend="tt", dynamic=False, options=given)(x)
    given.devices = [None, None]
    with pytest.raises(UsageError, match="single chip"):
        dict(given)


def test_shapes_may_stand_where_older_scripts_have_them() -> None:
    from tt_torch.tools.utils import CompileDepth, CompilerConfig
    from tt_torch.tools.verify import verify_against_golden, verify_module

    verify_module(Small(), [(4, 32)], required_atol=0.05)
    config = CompilerConfig()
    config.compile_depth = CompileDepth.COMPILE_OP_BY_OP
    verify_module(Small(), [(4, 32)], compiler_config=config, required_pcc=1.1)  # not computed
    a = torch.arange(6.0)
    pccs, atols, good, near, limits = verify_against_golden([a], [a + 1], False, False, 0.99, 0.5)
    assert (pccs, atols, good, near, limits) == ([1.0], [1.0], True, False, [0.5])
    with pytest.raises(AssertionError, match="verification failed"):
        verify_against_golden([a], [a + 1], True, True, 0.99, 0.5)


def test_codegen_writes_a_script_and_cpp_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tt_torch import codegen_cpp, codegen_py, parse_compiled_artifacts_from_cache_to_disk

    codegen_py(Small(), torch.randn(4, 32), export_path=str(tmp_path / "model"))
    (script,) = (tmp_path / "model").glob("*.py")
    assert "ttnn.linear(" in script.read_text()
    assert any("weights" in path.name for path in (tmp_path / "model").glob("*.safetensors"))
    codegen_cpp(Small(), torch.randn(4, 32), export_path=str(tmp_path / "cpp"))
    assert any(file.suffix == ".txt" for file in (tmp_path / "cpp").iterdir())
    assert "writes no C++" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no MLIR"):
        parse_compiled_artifacts_from_cache_to_disk("cache", "out")


@pytest.mark.parametrize("compiled", [True, False])
def test_the_codegen_backend_writes_a_script_or_says_that_it_cannot(
    tmp_path: Path, compiled: bool
) -> None:
    import torch_xla
    import torch_xla.core.xla_model as xm

    from temper.options import clear_custom_compile_options

    asked = {"backend": "codegen_py", "export_path": str(tmp_path / "out")}
    torch_xla.set_custom_compile_options(asked)
    try:
        model, x = Small().to(xm.xla_device()), torch.randn(4, 32).to(xm.xla_device())
        if compiled:
            model.compile(backend="tt")
            with torch.no_grad():
                model(x)
            # Graphs are numbered over the process.
            assert [p.suffix for p in (tmp_path / "out").glob("*_g*.py")] == [".py"]
        else:
            with torch.no_grad(), pytest.raises(UsageError, match="runs op by op"):
                model(x)
    finally:
        clear_custom_compile_options()


def test_the_profiler_command_gives_its_command_the_stand_ins(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "child.py").write_text(
        "import torch, tt_torch\n"
        "compiled = torch.compile(torch.nn.ReLU().eval(), backend='tt-legacy')\n"
        "with torch.no_grad():\n"
        "    compiled(torch.randn(32, 32))\n"
    )
    start = "from temper.compat.tt_torch_profile import tt_profile; tt_profile()"
    done = subprocess.run(
        [sys.executable, "-c", start, "-o", "ops.csv", f"{sys.executable} child.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Unary" in (tmp_path / "ops.csv").read_text()


def test_the_device_may_be_called_xla() -> None:
    import torch_xla  # noqa: F401

    x = torch.ones(2, 4)
    for name in ("xla", "xla:0", torch.device("xla")):
        assert x.to(name).device.type == "tt"
        assert x.to(device=name, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert nn.Linear(4, 2).to("xla").weight.device.type == "tt"
    assert x.to(torch.float64).dtype == torch.float64
    with pytest.raises(UsageError, match="single chip"):
        x.to("xla:1")
    with pytest.raises(RuntimeError):
        x.to("warp")
