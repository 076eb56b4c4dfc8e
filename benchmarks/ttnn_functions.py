"""Compile random calls of torch functions and offer them to the real ttnn on a mocked device.

    TEMPER_TTNN=MOCK-DIR python benchmarks/ttnn_functions.py [--chip n150] [--calls 500] [--seed 0]

Many calls are one model, so that capture, worker and device start once for all of them. Prints
every op that ttnn refuses or makes otherwise, and exits with 1 when there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from temper.compiler.pipeline import compile_model
from temper.options import resolve
from temper.targets.ttnn.environment import find
from temper.targets.ttnn.legality import OpVerdict, check

BF16 = torch.bfloat16
KINDS = ["matrix", "matrix", "image", "attention"]


@dataclass(frozen=True)
class Call:
    """One call of a function: its name, and a function of the two operands below."""

    name: str
    run: Callable[[Tensor, Tensor], Any]


def _matrix_calls(pick: random.Random, rows: int, columns: int) -> list[Call]:
    """Calls on x (rows, columns) of bfloat16 and indices (rows, 4)."""
    dim, keep = pick.choice([0, 1, -1]), pick.random() < 0.5
    low, high = pick.randrange(columns // 2), pick.randrange(columns // 2 + 1, columns + 1)
    front, back = pick.randrange(40), pick.randrange(40)
    k = min(pick.choice([1, 3, 8, 32]), columns)
    weight = torch.randn(rows, columns, dtype=BF16)
    table = torch.randn(pick.choice([10, 64, 500]), pick.choice([16, 32, 100, 768]), dtype=BF16)
    mask = torch.randn(rows, columns) > 0
    return [
        Call(f"sum {dim}", lambda x, i: x.sum(dim, keepdim=keep)),
        Call(f"mean {dim}", lambda x, i: x.mean(dim, keepdim=keep)),
        Call(f"amax {dim}", lambda x, i: x.amax(dim, keepdim=keep)),
        Call(f"amin {dim}", lambda x, i: x.amin(dim, keepdim=keep)),
        Call("mean of all", lambda x, i: x.mean((0, 1), keepdim=True)),
        Call(f"var {dim}", lambda x, i: x.var(dim, keepdim=keep)),
        Call(f"softmax {dim}", lambda x, i: torch.softmax(x, dim)),
        Call("log_softmax", lambda x, i: torch.log_softmax(x, -1)),
        Call("argmax", lambda x, i: x.argmax(-1, keepdim=keep)),
        Call(f"topk {k}", lambda x, i: x.topk(k, -1)),
        Call("sort", lambda x, i: x.sort(-1, descending=keep)),
        Call("cumsum", lambda x, i: x.cumsum(-1)),
        Call(f"slice {low}:{high}", lambda x, i: x[:, low:high] + 1),
        Call(f"slice rows {rows // 3}:", lambda x, i: x[rows // 3 :] * 2),
        Call("slice step 2", lambda x, i: x[::2, ::2] * 2),
        Call(f"pad {front} {back}", lambda x, i: F.pad(x, (front, back)) + 1),
        Call(f"pad rows {front}", lambda x, i: F.pad(x, (0, 0, front, back)) + 1),
        Call("cat rows", lambda x, i: torch.cat([x, x + 1], 0)),
        Call("cat columns", lambda x, i: torch.cat([x, x + 1, x], 1)),
        Call("stack", lambda x, i: torch.stack([x, x * 2], pick.choice([0, 1, 2]))),
        Call("transpose", lambda x, i: x.t() + 1),
        Call("reshape", lambda x, i: x.reshape(columns, rows) + 1),
        Call("repeat", lambda x, i: x.repeat(2, 1)),
        Call("flip", lambda x, i: x.flip(-1)),
        Call("roll", lambda x, i: x.roll(3, 0)),
        Call("where", lambda x, i: torch.where(mask, x, weight)),
        Call("where number", lambda x, i: torch.where(x > 0, x, torch.zeros_like(x))),
        Call("where float32", lambda x, i: torch.where(mask, x.float(), weight.float())),
        Call("masked_fill", lambda x, i: x.masked_fill(~mask, -1e4)),
        Call("gather", lambda x, i: x.gather(1, i % columns)),
        Call("scatter", lambda x, i: x.scatter(1, i % columns, 1.0)),
        Call("embedding", lambda x, i: F.embedding(i % table.shape[0], table)),
        Call("clamp", lambda x, i: x.clamp(-1, 1)),
        Call("pow", lambda x, i: x.pow(2) + x.abs().pow(0.5)),
        Call("compare", lambda x, i: (x > 0) & (x < 1)),
        Call("row broadcast", lambda x, i: x * weight[0] + weight[:, :1]),
        Call("gelu mul", lambda x, i: F.gelu(x) * torch.sigmoid(weight)),
        Call("to float", lambda x, i: x.float() / 3),
        Call("integers", lambda x, i: i + 1),
        Call("linear", lambda x, i: F.linear(x, weight)),
        Call("layer_norm", lambda x, i: F.layer_norm(x, (columns,), weight[0], weight[0])),
        Call("rms_norm", lambda x, i: F.rms_norm(x, (columns,), weight[0])),
        Call("expand", lambda x, i: x[None].expand(3, rows, columns) + weight),
    ]


def _image_calls(pick: random.Random, channels: int, size: int) -> list[Call]:
    """Calls on x (1, channels, size, size)."""
    out = pick.choice([16, 32, 48, 64])
    k = pick.choice([2, 3])
    w = torch.randn(channels, dtype=BF16)
    dense = torch.randn(out, channels, 3, 3, dtype=BF16)
    grouped = torch.randn(channels * 2, channels // 4, 3, 3, dtype=BF16)
    depthwise = torch.randn(channels, 1, k, k, dtype=BF16)
    up = torch.randn(channels, out, 2, 2, dtype=BF16)
    point = torch.randn(out, channels, 1, 1, dtype=BF16)
    s, d = pick.choice([1, 2]), pick.choice([1, 2])
    return [
        Call("conv", lambda x, i: F.conv2d(x, dense, stride=s, padding=1)),
        Call("conv dilated", lambda x, i: F.conv2d(x, dense, dilation=d, padding=d)),
        Call("conv grouped", lambda x, i: F.conv2d(x, grouped, padding=1, groups=4)),
        Call("conv depthwise", lambda x, i: F.conv2d(x, depthwise, groups=channels, stride=s)),
        Call("conv pointwise", lambda x, i: F.relu(F.conv2d(x, point, stride=s))),
        Call("conv transposed", lambda x, i: F.conv_transpose2d(x, up, stride=2)),
        Call("max pool", lambda x, i: F.max_pool2d(x, k, s)),
        Call("avg pool", lambda x, i: F.avg_pool2d(x, k, s, padding=k // 2)),
        Call("whole average", lambda x, i: F.adaptive_avg_pool2d(x, 1)),
        Call("whole average pool", lambda x, i: F.avg_pool2d(x, size)),
        Call("nearest", lambda x, i: F.interpolate(x, scale_factor=2)),
        Call("bilinear", lambda x, i: F.interpolate(x, scale_factor=2, mode="bilinear")),
        Call("group norm", lambda x, i: F.group_norm(x, pick.choice([1, 4]), w, w)),
        Call("batch norm", lambda x, i: F.batch_norm(x, w, w.abs() + 1, w, w)),
        Call("cat channels", lambda x, i: torch.cat([x, x * 2], 1)),
        Call("mean of images", lambda x, i: x.mean((2, 3))),
        Call("amax of images", lambda x, i: x.amax((2, 3), keepdim=True)),
        Call("channels last", lambda x, i: x.permute(0, 2, 3, 1) + 1),
        Call("tokens", lambda x, i: x.flatten(2).transpose(1, 2) + 1),
        Call("softmax of channels", lambda x, i: x.softmax(1)),
        Call("pad image", lambda x, i: F.pad(x, (1, 2, 3, 4)) * 2),
        Call("pixel shuffle", lambda x, i: F.pixel_shuffle(x, 2) if channels % 4 == 0 else x + 1),
    ]


def _attention_calls(pick: random.Random, heads: int, length: int) -> list[Call]:
    """Calls on x (2, heads, length, 64)."""
    mask = torch.where(torch.rand(1, 1, length, length) > 0.2, 0.0, float("-inf")).to(BF16)
    sdpa = F.scaled_dot_product_attention
    return [
        Call("attention", lambda x, i: sdpa(x, x + 1, x)),
        Call("attention causal", lambda x, i: sdpa(x, x, x, is_causal=True)),
        Call("attention masked", lambda x, i: sdpa(x, x, x, attn_mask=mask)),
        Call("scores", lambda x, i: torch.softmax(x @ x.transpose(-1, -2), -1) @ x),
        Call("heads together", lambda x, i: x.transpose(1, 2).reshape(2, length, -1) + 1),
        Call("sum of heads", lambda x, i: x.sum(1)),
        Call("mean of heads", lambda x, i: x.mean(1, keepdim=True)),
    ]


class Calls(nn.Module):
    """A model that makes every call on its two inputs."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, x: Tensor, i: Tensor) -> list[Any]:
        return [call.run(x, i) for call in self.calls]


def model(pick: random.Random) -> tuple[nn.Module, tuple[Tensor, Tensor], list[str]]:
    """A model of many calls with random shapes, its inputs and the names of its calls."""
    kind = pick.choice(KINDS)
    rows, columns = pick.choice([8, 32, 50, 96, 197]), pick.choice([32, 64, 100, 256, 768])
    x, calls = torch.randn(rows, columns, dtype=BF16), _matrix_calls(pick, rows, columns)
    if kind == "image":
        channels, size = pick.choice([8, 16, 32, 64, 96]), pick.choice([7, 14, 16, 28, 56])
        batch = pick.choice([1, 2])
        x = torch.randn(batch, channels, size, size, dtype=BF16)
        calls = _image_calls(pick, channels, size)
    elif kind == "attention":
        heads, length = pick.choice([2, 4, 12]), pick.choice([32, 50, 64, 197])
        x = torch.randn(2, heads, length, 64, dtype=BF16)
        calls = _attention_calls(pick, heads, length)
    i = torch.randint(0, 4096, (x.shape[0], 4))
    return Calls(calls).eval(), (x, i), [call.name for call in calls]


def sweep(
    chip: str, seed: int, wanted: int, levels: tuple[int, ...] = (2,)
) -> tuple[int, list[tuple[str, OpVerdict]]]:
    """(calls offered, verdicts that are not as planned with the model's shape)."""
    pick = random.Random(seed)
    torch.manual_seed(seed)
    wrong: list[tuple[str, OpVerdict]] = []
    offered = 0
    while offered < wanted:
        made, inputs, names = model(pick)
        offered += len(names)
        options = resolve({"chip": chip, "optimization_level": pick.choice(levels)})
        compiled = compile_model(made, inputs, {}, options)
        for program in compiled.programs:
            found = check(program, find(chip), options, memory=False)
            shape = "x".join(map(str, inputs[0].shape))
            wrong += [(shape, v) for v in found.verdicts if v.verdict not in ("accepted", "host")]
    return offered, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", default="n150")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    offered, wrong = sweep(asked.chip, asked.seed, asked.calls, (0, 1, 2))
    for (kind, verdict, message, shape), count in Counter(
        (v.kind, v.verdict, v.message[:200], f"{shape} {v.source}") for shape, v in wrong
    ).most_common():
        print(f"{count:5} {verdict:8} {kind}: {message} ({shape})")
    print(f"{offered} calls offered on {asked.chip}, {len(wrong)} ops not as planned")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
