"""forge as tt-forge's PyTorch scripts use it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from temper.errors import UsageError

pytestmark = pytest.mark.usefixtures("stand_ins")


def test_a_compiled_model_gives_a_list_and_passes_verification(tmp_path: Path) -> None:
    import forge
    from forge.verify.value_checkers import AutomaticValueChecker
    from forge.verify.verify import verify

    model, x = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)), torch.rand(2, 32)
    compiled = forge.compile(model, sample_inputs=[x])
    expected, found = verify([x], model, compiled)
    assert isinstance(compiled(x), list)
    torch.testing.assert_close(found[0], expected[0], rtol=2e-2, atol=2e-2)
    with pytest.raises(ValueError, match="Data mismatch"):
        AutomaticValueChecker(pcc=0.99).check(fw_out=expected[0], co_out=-found[0])
    compiled.save(str(tmp_path / "out.ttnn"))
    assert "matmul" in (tmp_path / "out.ttnn").read_text().lower()
    with pytest.raises(UsageError, match="inference"):
        forge.compile(model, [x], training=True)


def test_the_configuration_maps_to_options() -> None:
    from forge._C import DataFormat
    from forge.config import CompilerConfig, MLIRConfig

    config = CompilerConfig(default_df_override=DataFormat.Float16_b)
    assert config.to_options()["optimization_level"] == 0
    assert config.to_options()["activation_dtype"] == "bfloat16"
    config.mlir_config = MLIRConfig().set_enable_optimizer(True).set_enable_fusing(True)
    assert config.to_options()["optimization_level"] == 1
    assert config.to_options()["enable_fusing"] is True
    config.mlir_config.set_enable_memory_layout_analysis(True)
    assert config.to_options()["optimization_level"] == 2
    with pytest.raises(AttributeError):
        MLIRConfig().set_enable_magic(True)
