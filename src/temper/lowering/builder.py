"""The program under construction: values, ops, const-eval part, layouts and formats."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from temper.chips import Chip
from temper.errors import CompileError
from temper.graph.node import Node
from temper.options import Options
from temper.program import DRAM, HOST, Op, Program, Source, TensorSpec
from temper.program.compute_config import default_compute
from temper.program.tensor import BLOCK_FORMATS, Layout

# No float16 and no 64-bit type on the chip; comparisons give 0 and 1 in bfloat16.
DEVICE_FORMATS = {
    torch.float32: "float32",
    torch.float64: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "bfloat16",
    torch.bool: "bfloat16",
    torch.int64: "int32",
    torch.int32: "int32",
    torch.int16: "int32",
    torch.int8: "int32",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
}


_NUMBERED = re.compile(r"__\d+$")


@dataclass(frozen=True)
class Value:
    """A value of the program as the lowering sees it.

    ``image`` is (N, C, H, W) for a value that is stored flat and channels-last, (1, 1, N*H*W, C).
    """

    name: str
    shape: tuple[int, ...]  # logical shape in the graph
    dtype: torch.dtype
    const: bool = False
    image: tuple[int, ...] | None = None


class Builder:
    """Emits device ops; one instance a graph."""

    def __init__(
        self, chip: Chip, options: Options, held: dict[str, torch.Tensor] | None = None
    ) -> None:
        self.chip = chip
        self.held = {} if held is None else held  # weights and constants by path; grows
        self.options = options
        self.level: int = options["optimization_level"]
        self.lazy_layout: bool = options["enable_layout_optimization"]
        self.specs: dict[str, TensorSpec] = {}
        self.ops: list[Op] = []
        self.const_ops: list[Op] = []
        self.weights: dict[str, str] = {}
        self.state: dict[str, str] = {}
        self.env: dict[Node, Any] = {}  # a Value, several, or a Call
        self.wide: set[Node] = set()  # int64 nodes whose values may leave 32 bits
        self.images: set[str] = set()  # inputs that one convolution alone reads
        self.source = Source()
        self._names: dict[str, int] = {}
        self._converted: dict[tuple[str, str, str], Value] = {}
        self._shared: dict[tuple[str | int, ...], Value] = {}

    # --- values -------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """A name not used yet; later forms of one value are numbered x__2, x__3."""
        stem = _NUMBERED.sub("", re.sub(r"[^\w.]", "_", name)) or "v"
        count = self._names[stem] = self._names.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}__{count}"

    def format_of(self, dtype: torch.dtype) -> str:
        """The chip's format for activations of that torch dtype."""
        chosen: str = self.options["activation_dtype"]
        if dtype.is_floating_point and chosen != "auto":
            return chosen
        if dtype not in DEVICE_FORMATS:
            raise CompileError(
                f"the chip has no format for {str(dtype).removeprefix('torch.')}",
                try_="int64, which is computed on the host where it leaves 32 bits",
            )
        return DEVICE_FORMATS[dtype]

    def declare(
        self,
        name: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        const: bool,
        fmt: str | None = None,
        layout: Layout = "tile",
        host: bool = False,
    ) -> Value:
        """A new value with its spec."""
        unique = self.fresh(name)
        fmt = fmt or self.format_of(dtype)
        if layout == "row_major" and fmt in BLOCK_FORMATS:
            fmt = "bfloat16"  # a shared exponent exists only in tiles
        self.specs[unique] = TensorSpec(
            tuple(int(s) for s in shape),
            fmt,
            layout,
            HOST if host else DRAM,
        )
        return Value(unique, tuple(int(s) for s in shape), dtype, const)

    def constant(self, tensor: torch.Tensor, name: str) -> Value:
        """A value that the compiler made up, such as the order of a flip."""
        fmt = "float32" if tensor.is_floating_point() else None
        made = self.declare(f"constant.{name}", tensor.shape, tensor.dtype, const=True, fmt=fmt)
        self.weights[made.name] = made.name
        self.held[made.name] = tensor
        return made

    def shared_constant(
        self, key: tuple[str | int, ...], make: Callable[[], torch.Tensor]
    ) -> Value:
        """A constant that equal ops share, made once; the key starts with its name."""
        if key not in self._shared:
            self._shared[key] = self.constant(make(), str(key[0]))
        return self._shared[key]

    def spec(self, value: Value) -> TensorSpec:
        return self.specs[value.name]

    def __getitem__(self, node: Node) -> Value:
        value = self.env[node]
        assert isinstance(value, Value), f"{node} has several results"
        return value

    # --- ops ----------------------------------------------------------------------------------

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value],
        shape: Sequence[int],
        dtype: torch.dtype,
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        fmt: str | None = None,
        layout: Layout = "tile",
        image: tuple[int, ...] | None = None,
    ) -> Value:
        """Emit an op with one result."""
        return self.emit_many(
            kind, inputs, [(shape, dtype)], attrs, name=name, fmt=fmt, layout=layout, image=image
        )[0]

    def emit_many(
        self,
        kind: str,
        inputs: Sequence[Value],
        results: Sequence[tuple[Sequence[int], torch.dtype]],
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        fmt: str | None = None,
        layout: Layout = "tile",
        image: tuple[int, ...] | None = None,
    ) -> tuple[Value, ...]:
        """Emit an op; what depends on constants alone goes to the const-eval part."""
        const = (
            bool(inputs)
            and all(v.const for v in inputs)
            and bool(self.options["enable_const_eval"])
        )
        on_host = const and bool(self.options["enable_const_eval_on_cpu"])
        if not const:
            inputs = [self.on_device(v) for v in inputs]
        outs = []
        for shape, dtype in results:
            chosen = fmt
            if chosen is None and on_host and dtype.is_floating_point:
                chosen = "float32"
            out = self.declare(
                name or kind.lower(),
                shape,
                dtype,
                const=const,
                fmt=chosen,
                layout=layout if not on_host else "tile",
            )
            outs.append(replace(out, image=image))
        attributes = dict(attrs or {})
        if "fidelity" not in attributes:
            norm = attributes.get("norm", "layer")
            attributes = {**self.compute(kind, inputs, outs, norm), **attributes}
        op = Op(
            kind,
            tuple(v.name for v in inputs),
            tuple(v.name for v in outs),
            attributes,
            self.source,
        )
        (self.const_ops if const else self.ops).append(op)
        return tuple(outs)

    def compute(
        self, kind: str, inputs: Sequence[Value], outputs: Sequence[Value], norm: str = "layer"
    ) -> dict[str, Any]:
        """Fidelity and accumulator: explicit options win over ttnn's choice."""
        ins = [self.spec(v) for v in inputs]
        k = ins[0].shape[-1] if kind == "Matmul" and ins[0].shape else 0
        chosen = default_compute(
            kind, ins, [self.spec(v) for v in outputs], self.chip.arch, self.level, k=k, norm=norm
        )
        if not chosen:
            return {}
        fidelity = self.options["math_fidelity"]
        if fidelity and fidelity != "ttnn_default":
            chosen["fidelity"] = fidelity
        elif fidelity == "ttnn_default" and self.level == 0:
            chosen.update(
                default_compute(
                    kind, ins, [self.spec(v) for v in outputs], self.chip.arch, 1, k=k, norm=norm
                )
            )
        accumulate = self.options["fp32_dest_acc_en"]
        if accumulate is not None:
            chosen["fp32_acc"] = accumulate
        return chosen

    # --- formats, layouts, images -------------------------------------------------------------

    def on_device(self, value: Value, fmt: str | None = None) -> Value:
        """The value in its device format: results of host const-eval are rounded here, once."""
        spec = self.spec(value)
        wanted = fmt or (
            self.format_of(value.dtype) if value.const and spec.format == "float32" else spec.format
        )
        if wanted == spec.format:
            return value
        return self._convert("Typecast", value, wanted, spec.layout)

    def in_layout(self, value: Value, layout: Layout) -> Value:
        """The value as tiles or as rows."""
        spec = self.spec(value)
        if spec.layout == layout:
            return value
        fmt = spec.format
        if layout == "row_major" and fmt in BLOCK_FORMATS:
            fmt = "bfloat16"
        if layout == "tile" and self.options["activation_dtype"] in BLOCK_FORMATS:
            fmt = self.format_of(value.dtype) if fmt == "bfloat16" else fmt
        return self._convert("Untilize" if layout == "row_major" else "Tilize", value, fmt, layout)

    def _convert(self, kind: str, value: Value, fmt: str, layout: Layout) -> Value:
        key = (value.name, fmt, layout)
        if key not in self._converted:
            out = self.declare(
                value.name,
                self.spec(value).shape,
                value.dtype,
                const=value.const,
                fmt=fmt,
                layout=layout,
            )
            ops = self.const_ops if value.const and self.options["enable_const_eval"] else self.ops
            ops.append(Op(kind, (value.name,), (out.name,), {}, self.source))
            self._converted[key] = replace(out, shape=value.shape, image=value.image)
        return self._converted[key]

    def plain(self, value: Value) -> Value:
        """The value in its logical shape; a channels-last image is reshaped and permuted back."""
        if value.image is None:
            return value
        n, c, h, w = value.image
        stored = self.in_layout(replace(value, image=None), "tile")
        if h == w == 1:
            return self.emit("Reshape", [stored], value.shape, value.dtype, name=value.name)
        nhwc = self.emit("Reshape", [stored], (n, h, w, c), value.dtype, name=value.name)
        nchw = self.emit(
            "Permute", [nhwc], (n, c, h, w), value.dtype, {"dims": [0, 3, 1, 2]}, name=value.name
        )
        if value.shape == (n, c, h, w):
            return nchw
        return self.emit("Reshape", [nchw], value.shape, value.dtype, name=value.name)

    def flat(self, value: Value) -> Value:
        """An (N, C, H, W) value stored as (1, 1, N*H*W, C)."""
        if value.image is not None:
            return value
        n, c, h, w = value.shape
        image = (n, c, h, w)
        layout = self.spec(value).layout
        if c > 1 and h * w > 1:
            value = self.emit(
                "Permute",
                [value],
                (n, h, w, c),
                value.dtype,
                {"dims": [0, 2, 3, 1]},
                name=value.name,
                layout=layout,
            )
        rows = (1, 1, n * h * w, c)
        out = self.emit("Reshape", [value], rows, value.dtype, name=value.name, layout=layout)
        return replace(out, shape=(n, c, h, w), image=image)

    def settle(self, value: Value) -> Value:
        """At level 0 an image is brought back to its logical shape at once."""
        return value if self.lazy_layout else self.plain(value)

    # --- the finished program -----------------------------------------------------------------

    def program(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Program:
        return Program(
            name,
            self.chip.name,
            self.specs,
            tuple(self.ops),
            tuple(inputs),
            tuple(outputs),
            self.weights,
            tuple(self.const_ops),
            {k: v for k, v in self.options.items() if v is not None},
            self.state,
        )


def volume(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
