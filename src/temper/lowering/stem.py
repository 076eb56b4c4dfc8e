"""The first convolution of an image: its input is folded on the host on its way to the chip.

Three channels fill three of eight places of a NoC transfer and three of 32 columns of a tile, so
a chip spends more time on the layout of an image than on its convolution. The host writes the
image anyway: channels last, padded to a whole transfer, and with a strided kernel's steps moved
into channels (7x7 stride 2 over 3 channels becomes 4x4 stride 1 over 16). The weights follow in
const-eval. Patches that do not overlap become rows of a matrix, so that their convolution is a
matmul.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from temper.lowering.builder import Builder, Value
from temper.program import HOST, Op, TensorSpec
from temper.program.tensor import Layout, ceil_div

# A stick of channels must be a whole transfer of 16 B: eight bfloat16 values.
_CHANNELS = 8
# Steps are folded into channels up to this many; wider inputs fill transfers by themselves.
_MOST = 64


@dataclass(frozen=True)
class Stem:
    """What the convolution reads instead: a flat folded image, and its geometry."""

    flat: Value
    weight: Value
    stride: list[int]
    padding: list[int]


def fold_stem(
    b: Builder,
    x: Value,
    weight: Value,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    out_hw: Sequence[int],
) -> Stem | None:
    """The folded form of a convolution without groups or dilation, None where it cannot be."""
    if x.name not in b.images or not weight.const or not b.options["enable_const_eval"]:
        return None
    n, c, h, w = x.shape
    kernel = list(weight.shape[2:])
    patches = kernel == list(stride) and not any(padding) and kernel != [1, 1]
    if patches and (h % kernel[0] or w % kernel[1]):
        return None
    step = [1, 1]
    if patches or (
        all(k > s for k, s in zip(kernel, stride, strict=True))
        and max(stride) > 1
        and c * stride[0] * stride[1] <= _MOST
    ):
        step = list(stride)
    steps = step[0] * step[1]
    channels = c
    while not patches and channels * steps % _CHANNELS:
        channels += 1
    blocks = [ceil_div(k, s) for k, s in zip(kernel, step, strict=True)]
    top, _, left, _ = padding
    if steps > 1:
        rows, columns = (o + k - 1 for o, k in zip(out_hw, blocks, strict=True))
        pads = [top, rows * step[0] - h - top, left, columns * step[1] - w - left]
        kept = [0, 0, 0, 0]
    else:
        rows, columns, pads, kept = h, w, [0, 0, 0, 0], list(padding)
    if min(pads) < 0:
        return None  # pixels that no window reads
    image = (n, channels * steps, rows, columns)
    flat = _folded(b, x, image, step, pads, channels, matrix=patches)
    return Stem(flat, _fold_weight(b, weight, step, blocks, channels),
                list(stride) if steps == 1 else [1, 1], kept)  # fmt: skip


def _folded(
    b: Builder,
    x: Value,
    image: tuple[int, ...],
    step: list[int],
    pads: list[int],
    channels: int,
    *,
    matrix: bool,
) -> Value:
    """The fold on the host, in wide rows that travel well, and the rows that the op reads."""
    spec = b.specs[x.name]
    b.specs[x.name] = TensorSpec(spec.shape, spec.format, "row_major", HOST)
    n, wide, rows, columns = image
    flat = (1, 1, n * rows * columns, wide)
    attrs = {"step": step, "padding": pads, "channels": channels}

    def declared(shape: tuple[int, ...], layout: Layout) -> Value:
        return b.declare(x.name, shape, x.dtype, const=False, layout=layout)

    folded = declared(flat if matrix else (1, 1, n * rows, columns * wide),
                      "tile" if matrix else "row_major")  # fmt: skip
    b.ops.append(Op("FoldImage", (x.name,), (folded.name,), attrs, b.source))
    if not matrix:
        narrow = declared(flat, "row_major")
        b.ops.append(Op("Reshape", (folded.name,), (narrow.name,), {}, b.source))
        folded = narrow
    return replace(folded, shape=image, image=image)


def _fold_weight(
    b: Builder, weight: Value, step: list[int], blocks: list[int], channels: int
) -> Value:
    out, c, *kernel = weight.shape
    (sh, sw), (kh, kw) = step, blocks
    whole = [k * s for k, s in zip(blocks, step, strict=True)]
    pads = [[0, 0], [0, channels - c], *([0, w - k] for w, k in zip(whole, kernel, strict=True))]
    shapes: list[tuple[str, tuple[int, ...], dict[str, object]]] = [
        ("Pad", (out, channels, *whole), {"pads": pads, "value": 0.0}),
        ("Reshape", (out, channels, kh, sh, kw, sw), {}),
        ("Permute", (out, sh, sw, channels, kh, kw), {"dims": [0, 3, 5, 1, 2, 4]}),
        ("Reshape", (out, sh * sw * channels, kh, kw), {}),
    ]
    for kind, shape, attrs in shapes:
        if kind != "Pad" or shape != weight.shape:
            weight = b.emit(kind, [weight], shape, weight.dtype, attrs, name=weight.name)
    return weight
