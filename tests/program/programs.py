"""Small device programs built by hand, for tests of placement and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temper.program import Op, Program, TensorSpec
from temper.program.compute_config import default_compute
from temper.program.tensor import Layout


class Draft:
    """Collects ops; every method returns the name of the value it makes."""

    def __init__(self, chip: str = "n150", level: int = 1) -> None:
        self.chip, self.level = chip, level
        self.values: dict[str, TensorSpec] = {}
        self.ops: list[Op] = []
        self.weights: dict[str, str] = {}
        self.inputs: list[str] = []

    def input(self, *shape: int, fmt: str = "bfloat16", layout: Layout = "tile") -> str:
        name = f"in{len(self.inputs)}"
        self.values[name] = TensorSpec(shape, fmt, layout)
        self.inputs.append(name)
        return name

    def weight(self, *shape: int, fmt: str = "bfloat16") -> str:
        name = f"w{len(self.weights)}"
        self.values[name] = TensorSpec(shape, fmt)
        self.weights[name] = f"model.{name}"
        return name

    def op(self, kind: str, inputs: Sequence[str], *shape: int, fmt: str = "bfloat16",
           layout: Layout = "tile", **attrs: Any) -> str:  # fmt: skip
        name = f"v{len(self.ops)}"
        self.values[name] = TensorSpec(shape, fmt, layout)
        ins = [self.values[n] for n in inputs]
        compute = default_compute(kind, ins, [self.values[name]], "wormhole_b0", self.level)
        self.ops.append(Op(kind, tuple(inputs), (name,), {**compute, **attrs}))
        return name

    def linear(self, x: str, n: int, **attrs: Any) -> str:
        shape = self.values[x].shape
        return self.op("Matmul", [x, self.weight(shape[-1], n), self.weight(1, n)],
                       *shape[:-1], n, **attrs)  # fmt: skip

    def unary(self, x: str, function: str = "relu") -> str:
        return self.op("Unary", [x], *self.values[x].shape, functions=[[function]])

    def add(self, a: str, b: str) -> str:
        return self.op("BinaryNg", [a, b], *self.values[a].shape)

    def norm(self, x: str) -> str:
        w = self.values[x].shape[-1]
        return self.op("LayerNorm", [x, self.weight(1, w), self.weight(1, w)],
                       *self.values[x].shape, operands=["x", "weight", "bias"])  # fmt: skip

    def conv(self, x: str, batch: int, h: int, out: int, kernel: int = 3, stride: int = 1) -> str:
        c = self.values[x].shape[-1]
        pad = kernel // 2
        o = (h + 2 * pad - kernel) // stride + 1
        return self.op(
            "Conv2d", [x, self.weight(1, 1, kernel * kernel * c, out), self.weight(1, out)],
            1, 1, batch * o * o, out, batch=batch, in_h=h, in_w=h, kernel=[kernel, kernel],
            stride=[stride, stride], padding=[pad] * 4, dilation=[1, 1], groups=1, in_channels=c,
            out_channels=out, prepared=True,
        )  # fmt: skip

    def program(self, *outputs: str) -> Program:
        return Program("hand", self.chip, self.values, tuple(self.ops), tuple(self.inputs),
                       outputs or (self.ops[-1].outputs[0],), self.weights)  # fmt: skip


def mlp(batch: int = 64, width: int = 1024, layers: int = 3, chip: str = "n150") -> Program:
    d = Draft(chip)
    x = d.input(batch, width)
    for _ in range(layers):
        x = d.unary(d.linear(x, width), "gelu")
    return d.program()


def transformer(layers: int = 1, batch: int = 1, sequence: int = 128, width: int = 768,
                heads: int = 12, chip: str = "n150") -> Program:  # fmt: skip
    d = Draft(chip)
    x = d.input(batch, sequence, width)
    size = width // heads
    for _ in range(layers):
        qkv = d.linear(d.norm(x), 3 * width)
        names = [f"q{len(d.ops)}", f"k{len(d.ops)}", f"u{len(d.ops)}"]
        for name in names:
            d.values[name] = TensorSpec((batch, heads, sequence, size))
        d.ops.append(
            Op("CreateQkvHeads", (qkv,), tuple(names), {"heads": heads, "kv_heads": heads})
        )
        attention = d.op("Sdpa", names, batch, heads, sequence, size)
        joined = d.op("ConcatHeads", [attention], batch, sequence, width)
        x = d.add(x, d.linear(joined, width))
        x = d.add(x, d.linear(d.unary(d.linear(d.norm(x), 4 * width), "gelu"), width))
    return d.program()


def cnn(batch: int = 8, size: int = 56, channels: int = 64, blocks: int = 2,
        chip: str = "n150") -> Program:  # fmt: skip
    """Residual blocks of two convolutions."""
    d = Draft(chip)
    x = d.input(1, 1, batch * size * size, channels)
    for _ in range(blocks):
        y = d.unary(d.conv(x, batch, size, channels))
        x = d.unary(d.add(d.conv(y, batch, size, channels), x))
    return d.program()
