"""What the tests of tt-torch and tt-xla import and check works under the stand-ins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import parametrize

from temper.compat import tt_torch_ops as ops
from temper.compat.tt_torch_weights import (
    WeightDtypeParametrization,
    apply_weight_dtype_overrides,
    dump_weight_names,
    remove_weight_dtype_overrides,
)
from temper.frontdoor.compiled import compile as temper_compile


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))


def test_overrides_are_parametrizations_and_removing_counts_them() -> None:
    net = model()
    assert apply_weight_dtype_overrides(net, {"0.weight": "bfp_bf4", "default": "bfp_bf8"}) == [
        ("0.weight", "bfp_bf4"),
        ("2.weight", "bfp_bf8"),
    ]
    assert parametrize.is_parametrized(net[0], "weight")
    assert isinstance(net[0].parametrizations.weight[0], WeightDtypeParametrization)
    assert apply_weight_dtype_overrides(net, "bfp_bf8") == []  # the first call wins
    assert remove_weight_dtype_overrides(net) == 2
    assert not parametrize.is_parametrized(net[0])


def test_other_parametrizations_stay() -> None:
    net = nn.Linear(4, 4)
    parametrize.register_parametrization(net, "weight", nn.Identity())
    parametrize.register_parametrization(net, "weight", WeightDtypeParametrization("bf16"))
    assert remove_weight_dtype_overrides(net) == 1
    assert parametrize.is_parametrized(net, "weight")


def test_a_parametrized_weight_has_its_format_on_the_chip() -> None:
    net, x = model().eval(), torch.randn(4, 64)
    plain = temper_compile(net)(x)
    apply_weight_dtype_overrides(net, {"0.weight": "bfp_bf4"})
    made = temper_compile(net)
    with torch.no_grad():
        assert not torch.equal(made(x), plain)
    formats = {made.loaded[0].program.spec(n).format for n in made.loaded[0].program.weights}
    assert "bfloat4_b" in formats or any(
        spec.format == "bfloat4_b" for spec in made.loaded[0].program.values.values()
    )


def test_a_template_is_written_under_the_models_name(tmp_path: Path) -> None:
    names = dump_weight_names(model(), "org/name", tmp_path, "bfp_bf4")
    assert names == {"0.weight": "bfp_bf4", "2.weight": "bfp_bf4"}
    assert json.loads((tmp_path / "name.json").read_text()) == names


def test_cache_ops_write_where_they_should() -> None:
    cache, row = torch.zeros(2, 3, 8, 4), torch.randn(2, 3, 1, 4)
    made = torch.ops.tt.update_cache(cache, row, torch.tensor([5]), 0)
    assert torch.equal(made[:, :, 5:6], row)
    assert made.count_nonzero() == row.numel()
    assert not cache.any()  # a new tensor
    rows = torch.randn(2, 3, 6, 4)
    made = torch.ops.tt.fill_cache(cache, rows, 0)
    assert torch.equal(made[:, :, :6], rows)
    assert not made[:, :, 6:].any()


def test_paged_caches_are_read_and_written_through_the_page_table() -> None:
    pages = torch.tensor([[3, 0], [1, 2]])
    cache = torch.zeros(4, 2, 4, 8)
    rows = torch.randn(1, 2, 6, 8)
    cache = torch.ops.tt.paged_fill_cache(cache, rows, pages, torch.tensor([1]))
    assert torch.equal(cache[1], rows[0, :, :4])
    assert torch.equal(cache[2, :, :2], rows[0, :, 4:])
    new = torch.randn(1, 2, 2, 8)
    cache = torch.ops.tt.paged_update_cache(cache, new, torch.tensor([5, 2]), pages)
    assert torch.equal(cache[0, :, 1], new[0, 0])
    assert torch.equal(cache[1, :, 2], new[0, 1])


def test_decode_attention_sees_each_user_up_to_its_position() -> None:
    query, key, value = (torch.randn(*s) for s in ((1, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 8)))
    made = torch.ops.tt.scaled_dot_product_attention_decode(query, key, value, torch.tensor([2, 5]))
    for user, last in ((0, 2), (1, 5)):
        want = torch.nn.functional.scaled_dot_product_attention(
            query[0, user].reshape(1, 4, 1, 8), key[user : user + 1, :, : last + 1],
            value[user : user + 1, :, : last + 1], enable_gqa=True,
        )  # fmt: skip
        torch.testing.assert_close(made[0, user], want.reshape(4, 8))


def test_attention_with_a_window_and_a_sink_follows_the_formula() -> None:
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    sink = torch.randn(2)
    made = torch.ops.tt.scaled_dot_product_attention(
        q, k, v, attention_sink=sink, sliding_window_size=3
    )
    scores = q @ k.transpose(-2, -1) / 2
    distance = torch.arange(8)[:, None] - torch.arange(8)
    scores = scores.masked_fill((distance < 0) | (distance >= 3), float("-inf"))
    weights = scores.exp() / (scores.exp().sum(-1, keepdim=True) + sink.exp().reshape(1, 2, 1, 1))
    torch.testing.assert_close(made, weights @ v)


def test_the_ops_run_on_the_chip() -> None:
    class Step(nn.Module):
        def forward(self, cache: torch.Tensor, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            new = torch.ops.tt.update_cache(cache, row, at, 0)
            return ops.composite_gelu(new.sum(2))

    step = Step().eval()
    given = (torch.randn(1, 2, 32, 64), torch.randn(1, 2, 1, 64), torch.tensor([7]))
    with torch.no_grad():
        torch.testing.assert_close(temper_compile(step)(*given), step(*given), rtol=0.05, atol=0.15)


def test_plain_python_finds_tt_torch_as_a_last_resort(tmp_path: Path) -> None:
    """The seed's way: ``python tt_torch/tools/tt_profile.py "…"`` with nothing of ours named."""
    tools = tmp_path / "tt_torch" / "tools"
    tools.mkdir(parents=True)
    (tmp_path / "tt_torch" / "dynamo").mkdir()
    (tmp_path / "tt_torch" / "dynamo" / "backend.py").write_text("import compiled_part\n")
    (tmp_path / "tt_torch" / "__init__.py").write_text("import tt_torch.dynamo.backend\n")
    script = tools / "tt_profile.py"
    script.write_text(
        "from tt_torch.tools.profile_util import Profiler\n"
        "import importlib.util\n"
        "print(Profiler.DEFAULT_OUTPUT_FILENAME, Profiler.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [
        "device_ops_perf_trace.csv",
        "temper.compat.tt_torch_profile",
    ], done.stderr


def test_probes_for_other_packages_still_find_nothing() -> None:
    code = "import importlib.util as u; print(u.find_spec('torch_xla'), u.find_spec('tracy'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None"]


def test_the_seeds_workflow_runs_in_a_tree_like_tt_torchs(tmp_path: Path) -> None:
    """conftest, test utilities and model test import what tt-torch's do; the report has its ops."""
    write = {
        "tt_torch/__init__.py": "import tt_torch.dynamo.backend\n",
        "tt_torch/dynamo/backend.py": "import compiled_part\n",
        "tests/conftest.py": (
            "import pytest, torch, tt_mlir\n"
            "from tt_torch.tools.utils import OpByOpBackend\n"
            "from tt_torch.tools.crashsafe_utils import crashsafe_suffix\n"
            "import tt_torch.dynamo.sharding_utils as sharding_utils\n"
            "@pytest.fixture(autouse=True)\n"
            "def around():\n"
            "    yield\n"
            "    torch._dynamo.reset()\n"
            "    tt_mlir.malloc_trim()\n"
        ),
        "tests/helper.py": (
            "import torch\n"
            "from tt_torch.dynamo.backend import BackendOptions\n"
            "from tt_torch.onnx_compile import compile_onnx\n"
            "from tt_torch.tools.utils import (CompilerConfig, CompileDepth, OpByOpBackend,\n"
            "    RuntimeIntermediate, prepare_inference_session, with_torch_dynamo_cleanup)\n"
            "from tt_torch.tools.verify import verify_against_golden\n"
            "from tt_torch.tools.device_manager import DeviceManager\n"
            "@with_torch_dynamo_cleanup\n"
            "def check(model, x, config):\n"
            "    options = BackendOptions()\n"
            "    options.compiler_config, options.devices = config, [None]\n"
            "    made = torch.compile(model, backend='tt-experimental', dynamic=False,\n"
            "                         options=options)\n"
            "    with torch.inference_mode():\n"
            "        out = made(x)\n"
            "        if config.compile_depth == CompileDepth.EXECUTE:\n"
            "            verify_against_golden((model(x),), (out,), True, False, 0.98)\n"
        ),
        "tests/test_net.py": (
            "import pytest, sys, torch\n"
            "sys.path.insert(0, 'tests')\n"
            "from helper import CompileDepth, CompilerConfig, OpByOpBackend, check\n"
            "@pytest.mark.parametrize('op_by_op', [OpByOpBackend.TORCH, None],\n"
            "                         ids=['op_by_op_torch', 'full'])\n"
            "def test_net(op_by_op):\n"
            "    config = CompilerConfig()\n"
            "    config.enable_consteval = config.consteval_parameters = True\n"
            "    if op_by_op:\n"
            "        config.compile_depth = CompileDepth.EXECUTE_OP_BY_OP\n"
            "        config.op_by_op_backend = op_by_op\n"
            "    net = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(),\n"
            "        torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)).to(torch.bfloat16).eval()\n"
            "    check(net, torch.randn(1, 1, 8, 8, dtype=torch.bfloat16), config)\n"
        ),
    }
    (tmp_path / "install" / "tt-metal").mkdir(parents=True)
    for name, text in write.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider tests/test_net.py"
    profiler = Path(sys.executable).with_name("tt_profile")
    start = [str(profiler)] if profiler.exists() else [
        sys.executable, "-c", "from temper.compat.tt_torch_profile import tt_profile; tt_profile()"
    ]  # fmt: skip
    done = subprocess.run(
        [*start, command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "results" / "perf" / "device_ops_perf_trace.csv").read_text()
    assert "Conv2d" in report
    assert "LOC" in report.splitlines()[0]
    trace = tmp_path / "install/tt-metal/generated/profiler/.logs/tracy_profile_log_host.tracy"
    assert trace.stat().st_size > 100


def test_names_that_tt_xlas_test_tools_import_are_there(tmp_path: Path) -> None:
    script = tmp_path / "names.py"
    script.write_text(
        "from unittest.mock import patch\n"
        "import torch, torch_xla.runtime as xr\n"
        "from torch_xla.runtime.runtime import device_type\n"
        "from tt_torch.backend.passes import _SDPA_HEAD_AXIS_FROM_END, _sdpa_operand\n"
        "from tt_torch.backend.passes import handle_composite_ops, run_fusion_passes\n"
        "import tt_torch.custom_moe_ops\n"
        "with patch('tt_torch.backend.passes._replace_multi_output_op'):\n"
        "    print(device_type(), xr.runtime.world_size(), _SDPA_HEAD_AXIS_FROM_END)\n"
        "torch.ops.tt.sparse_matmul\n"
        "from tt_torch.backend.passes import run_selected_fusion_passes\n"
        "run_selected_fusion_passes(None, ['fuse_gelu'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "temper", "run", str(script)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["TT", "1", "3"], done.stderr
    assert "run_selected_fusion_passes is not in Temper: it is a part of" in done.stderr


def test_names_of_tracers_and_meshes_are_there_and_say_why_they_cannot_work(
    tmp_path: Path,
) -> None:
    script = tmp_path / "parts.py"
    script.write_text(
        "import torch\n"
        "from tt_torch.backend.backend import aot_backend, fw_compiler\n"
        "from tt_torch.sparse_mlp import SparseMLP\n"
        "from tt_torch.tools.device_manager import DeviceManager\n"
        "from tt_torch.tools.verify import verify_torch_module_async\n"
        "from tt_torch.torch_overrides import torch_function_override\n"
        "from torch_xla.core.dynamo_bridge import extract_compiled_graph\n"
        "torch_function_override.__exit__(None, None, None)\n"
        "for part in (aot_backend, fw_compiler, SparseMLP, extract_compiled_graph):\n"
        "    try:\n"
        "        part(None)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, part.__name__ in str(error))\n"
        "devices = DeviceManager.get_available_devices()\n"
        "print(len(devices) == DeviceManager.get_num_available_devices(), devices[0].type)\n"
        "for made in (torch.randn(2, 3, device='xla'), torch.arange(3, device='xla:0'),\n"
        "             torch.nn.Linear(2, 2, device='xla').weight):\n"
        "    print(made.device.type, made.cpu().numel())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "temper", "run", str(script)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        *["UsageError True"] * 4, "True tt", "tt 6", "tt 3", "tt 4"
    ], done.stderr  # fmt: skip


def test_modes_that_watch_torch_ops_see_none_of_a_program() -> None:
    """tt-xla's newer compile path dispatches nothing after the first call; its older one does."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from temper.compat.tt_torch_config import backend

    class Watch(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: object, types: object, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            Watch.seen += 1
            return func(*args, **(kwargs or {}))  # type: ignore[operator]

    for legacy in (False, True):

        def watched(graph: object, inputs: object, legacy: bool = legacy) -> object:
            run = backend(graph, inputs, {"tt_legacy_compile": legacy})  # type: ignore[arg-type]

            def call(*given: object) -> object:
                with Watch():
                    return run(*given)

            return call

        torch._dynamo.reset()
        made = torch.compile(lambda x: x @ x.T, backend=watched)
        x = torch.randn(3, 3)
        made(x)
        Watch.seen = 0
        torch.testing.assert_close(made(x), x @ x.T, rtol=0.02, atol=0.02)
        assert bool(Watch.seen) is legacy
