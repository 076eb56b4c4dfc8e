"""Whole models: modelled device throughput beside the figures that upstream CI holds itself to.

    python benchmarks/cost_models.py [--models ../shared/silicon/models.csv] [--only NAME] [--json]

Models are built from `transformers` configs or by hand with random weights; nothing is run. A
stack of equal layers is compiled with one and with two of them, and the difference repeated.
Published figures are hand-tuned demos; ours is what the compiler makes of the plain model, with the
formats and the fidelity of the demo where it names them. `off` is the modelled throughput against
the published one: negative means that we model the model as slower than the demo.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.cost import estimate
from temper.errors import TemperError

Made = tuple[nn.Module, tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One model: how to build it with some layers, and which published rows it answers."""

    name: str
    build: Callable[[int, int], Made]  # (layers, batch)
    batch: int
    layers: int = 0  # 0: built whole
    options: dict[str, Any] = field(default_factory=dict)


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.int64)


def _image(batch: int, height: int, width: int) -> torch.Tensor:
    return torch.zeros(batch, 3, height, width, dtype=torch.bfloat16)


def _ready(model: nn.Module) -> nn.Module:
    return model.to(torch.bfloat16).eval()


def bert(hidden: int, heads: int, length: int) -> Callable[[int, int], Made]:
    def build(layers: int, batch: int) -> Made:
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden,
            num_hidden_layers=layers, max_position_embeddings=512,
        )  # fmt: skip
        return _ready(BertModel(config, add_pooling_layer=False)), (_ids(batch, length),)

    return build


def squeezebert(layers: int, batch: int) -> Made:
    from transformers import SqueezeBertConfig, SqueezeBertModel

    return _ready(SqueezeBertModel(SqueezeBertConfig(num_hidden_layers=layers))), (
        _ids(batch, 384),
    )


def falcon(layers: int, batch: int) -> Made:
    from transformers import FalconConfig, FalconModel

    config = FalconConfig(
        hidden_size=4544, num_attention_heads=71, num_hidden_layers=layers, vocab_size=1024,
        multi_query=True, parallel_attn=True, bias=False, new_decoder_architecture=False,
    )  # fmt: skip
    config.use_cache = False
    return _ready(FalconModel(config)), (_ids(batch, 256),)


def vit(layers: int, batch: int) -> Made:
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(num_hidden_layers=layers), add_pooling_layer=False)
    return _ready(model), (_image(batch, 224, 224),)


def resnet50(_: int, batch: int) -> Made:
    from transformers import ResNetConfig, ResNetForImageClassification

    return _ready(ResNetForImageClassification(ResNetConfig())), (_image(batch, 224, 224),)


def segformer(_: int, batch: int) -> Made:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(num_labels=150)
    return _ready(SegformerForSemanticSegmentation(config)), (_image(batch, 512, 512),)


def swin(version: int) -> Callable[[int, int], Made]:
    def build(_: int, batch: int) -> Made:
        from transformers import SwinConfig, SwinModel, Swinv2Config, Swinv2Model

        if version == 2:
            second = Swinv2Config(image_size=512, depths=[2, 2, 18, 2])
            return _ready(Swinv2Model(second, add_pooling_layer=False)), (_image(batch, 512, 512),)
        first = SwinConfig(image_size=512, depths=[2, 2, 18, 2])
        return _ready(SwinModel(first, add_pooling_layer=False)), (_image(batch, 512, 512),)

    return build


def efficientnet(_: int, batch: int) -> Made:
    from transformers import EfficientNetConfig, EfficientNetModel

    config = EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280
    )
    return _ready(EfficientNetModel(config)), (_image(batch, 224, 224),)


class _Block(nn.Sequential):
    """Two 3x3 convolutions with batch norm and ReLU."""

    def __init__(self, inside: int, outside: int, count: int = 2) -> None:
        steps: list[nn.Module] = []
        for i in range(count):
            steps += [
                nn.Conv2d(inside if i == 0 else outside, outside, 3, padding=1, bias=False),
                nn.BatchNorm2d(outside),
                nn.ReLU(),
            ]
        super().__init__(*steps)


class UNet(nn.Module):
    """The plain U-Net: four poolings down, four transposed convolutions up, skips between."""

    def __init__(self, widths: tuple[int, ...], counts: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (3, *widths)
        self.down = nn.ModuleList(
            _Block(sizes[i], sizes[i + 1], counts[i]) for i in range(len(widths))
        )
        pairs = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.join = nn.ModuleList(_Block(2 * b, b) for _, b in pairs)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else self.pool(x))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


def unet(_: int, batch: int) -> Made:
    return _ready(UNet((32, 64, 128, 256, 512), (2,) * 5)), (_image(batch, 480, 640),)


def vgg_unet(_: int, batch: int) -> Made:
    return _ready(UNet((64, 128, 256, 512, 512), (2, 2, 4, 4, 4))), (_image(batch, 256, 256),)


_BFP8 = {"experimental_weight_dtype": "bfp_bf8"}
_FAST = {**_BFP8, "math_fidelity": "lofi"}
# The BERT demos keep activations in bfp8 too; sentence BERT names HiFi2.
_ALL_BFP8 = {**_FAST, "activation_dtype": "bfloat8_b"}
# The CNN demos keep activations and convolution weights in bfp8.
_CNN_BFP8 = {**_ALL_BFP8, "conv_weight_dtype": "bfp_bf8"}
CASES = [
    Case("bert-large seq384", bert(1024, 16, 384), 8, 24, _ALL_BFP8),
    Case("BERT_LARGE sharded", bert(1024, 16, 384), 8, 24, _ALL_BFP8),
    Case("sentence_bert", bert(768, 12, 384), 8, 12, {**_ALL_BFP8, "math_fidelity": "hifi2"}),
    Case("squeezebert", squeezebert, 8, 12),
    Case("falcon7b prefill s256", falcon, 1, 32),
    Case("segformer", segformer, 1),
    Case("vanilla_unet 480x640", unet, 1, 0, _CNN_BFP8),
    Case("vgg_unet", vgg_unet, 1, 0, _CNN_BFP8),
    Case("efficientnetb0", efficientnet, 1, 0, _CNN_BFP8),
    Case("swin_s", swin(1), 1),
    Case("swin_v2", swin(2), 1),
    Case("ResNet-50", resnet50, 16, 0, _CNN_BFP8),
    Case("BERT-base seq128", bert(768, 12, 128), 8, 12, _BFP8),
    Case("ViT-base", vit, 8, 12, _BFP8),
]


@dataclass(frozen=True)
class Time:
    """Device kernel time of one call in nanoseconds, with its band."""

    kernel_ns: float
    low_ns: float
    high_ns: float

    def stacked(self, two: Time, layers: int) -> Time:
        """One layer here, two there: as many as asked for."""
        more = layers - 1
        return Time(
            self.kernel_ns + more * (two.kernel_ns - self.kernel_ns),
            self.low_ns + more * (two.low_ns - self.low_ns),
            self.high_ns + more * (two.high_ns - self.high_ns),
        )


def device_time(case: Case, chip: str, batch: int, level: int) -> Time:
    def once(layers: int) -> Time:
        model, inputs = case.build(layers, batch)
        options = {
            "chip": chip, "optimization_level": level, "enable_trace": True, **case.options
        }  # fmt: skip
        # The cache on disk does not see edits of the compiler.
        programs = compile_model(model, inputs, None, {**options, "compile_cache": False}).programs
        costs = [estimate(program, traced=True) for program in programs]
        gaps = sum(op.gap_ns for cost in costs for op in cost.ops)
        return Time(
            sum(c.device_ns for c in costs) - gaps,
            sum(c.device_low_ns for c in costs) - gaps,
            sum(c.device_high_ns for c in costs) - gaps,
        )

    return once(1).stacked(once(2), case.layers) if case.layers else once(0)


def level_2(case: Case, chip: str, batch: int) -> tuple[Time, int]:
    """Level 2, which is never modelled slower than level 1; level 1 where it does not fit."""
    try:
        return device_time(case, chip, batch, 2), 2
    except TemperError:
        return device_time(case, chip, batch, 1), 1


def published(path: Path | None) -> dict[str, list[tuple[str, int, float]]]:
    """Rows of the models file: name -> (chip, batch, samples/s)."""
    found: dict[str, list[tuple[str, int, float]]] = {}
    if path is None or not path.exists():
        return found
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            entry = (row["board_assumed"], int(row["batch"]), float(row["expected"]))
            found.setdefault(row["model"], []).append(entry)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parents[2] / "shared" / "silicon" / "models.csv"
    parser.add_argument("--models", type=Path, default=default)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    figures = published(arguments.models)
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if arguments.only not in case.name:
            continue
        wanted = figures.get(case.name) or [("n150", case.batch, 0.0), ("p150", case.batch, 0.0)]
        for chip, batch, expected in wanted:
            row: dict[str, Any] = {"model": case.name, "chip": chip, "batch": batch}
            try:
                time, level = level_2(case, chip, batch)
            except TemperError as error:
                row["problem"] = str(error).splitlines()[0]
            except Exception as error:
                row["problem"] = f"{type(error).__name__}: {error}"[:100]
            else:
                row |= {
                    "level": level,
                    "modelled": round(batch / time.kernel_ns * 1e9, 2),
                    "low": round(batch / time.high_ns * 1e9, 2),
                    "high": round(batch / time.low_ns * 1e9, 2),
                }
                if expected:
                    row |= {"published": expected, "off_percent": round(
                        (row["modelled"] / expected - 1) * 100, 1)}  # fmt: skip
            rows.append(row)
            if not arguments.json:
                _print(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))


def _print(row: dict[str, Any]) -> None:
    head = f"{row['model']:24} {row['chip']:5} batch {row['batch']:3}"
    if "problem" in row:
        print(f"{head}  {row['problem']}", flush=True)
        return
    band = f"[{row['low']:.1f} .. {row['high']:.1f}]"
    text = f"{head}  level {row['level']}  modelled {row['modelled']:8.1f} samples/s {band:20}"
    if "published" in row:
        text += f"  published {row['published']:8.1f}  {row['off_percent']:+.0f}%"
    print(text, flush=True)


if __name__ == "__main__":
    main()
