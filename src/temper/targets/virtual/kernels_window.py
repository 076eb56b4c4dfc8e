"""Host kernels of sliding windows on the flat channels-last form (1, 1, N*H*W, C).

The flat form viewed as (N, H, W, C) and permuted is torch's channels-last memory format, so
convolutions and pools read it in place and oneDNN writes its result in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from temper.errors import CompileError
from temper.program import Op
from temper.program.tensor import BLOCK_FORMATS
from temper.targets.virtual import native
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.fidelity import products
from temper.targets.virtual.functions import apply, stages
from temper.targets.virtual.kernels_data import as_shape, convert
from temper.targets.virtual.kernels_matrix import accumulate_bfloat16, masked
from temper.targets.virtual.values import holds

Tensor = torch.Tensor
# A smaller weight is reordered faster than the call of the prepacked operator costs more.
_PREPACK_ELEMENTS = 1 << 17


def image(b: Emitter, op: Op, x: Tensor, channels: int) -> Tensor:
    """The flat operand as (N, C, H, W) in channels-last memory."""
    shape = (op.attr("batch"), op.attr("in_h"), op.attr("in_w"), channels)
    return as_shape(b, x, shape).permute(0, 3, 1, 2)


def _padding(op: Op) -> tuple[list[int], list[int] | None]:
    """Symmetric padding [h, w] for torch, or an explicit [left, right, top, bottom] pad."""
    top, bottom, left, right = op.attr("padding")
    if top == bottom and left == right:
        return [top, left], None
    return [0, 0], [left, right, top, bottom]


@kernel("PrepareConvWeight")
def prepare_weight(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: (O, C/groups, kh, kw), or (O, C/groups, k) of one dimension, laid out as
    (1, 1, kh*kw*C/groups, O), a transposed (C, O/groups, kh, kw) as (1, 1, kh*kw*C, O/groups); a
    block format shares its exponents along O, as the prepared matrix
    is packed."""
    weight = inputs[0] if inputs[0].dim() == 4 else inputs[0].unsqueeze(2)
    weight = weight.permute(2, 3, 0, 1) if op.attr("transposed") else weight.permute(2, 3, 1, 0)
    return [convert(b, op, as_shape(b, weight, b.spec(op.outputs[0]).shape))]


def _weight(b: Emitter, op: Op, x: Tensor, transposed: bool) -> Tensor:
    """The weight as torch takes it, whether prepared or not."""
    kh, kw = op.attr("kernel")
    inside, outside = op.attr("in_channels"), op.attr("out_channels")
    groups = op.attr("groups")
    logical = (
        (inside, outside // groups, kh, kw) if transposed else (outside, inside // groups, kh, kw)
    )
    if not op.attr("prepared"):
        return as_shape(b, x, logical)
    if transposed:
        return as_shape(b, x, (kh, kw, *logical[:2])).permute(2, 3, 0, 1)
    return as_shape(b, x, (kh, kw, logical[1], logical[0])).permute(3, 2, 0, 1)


def _convolution(b: Emitter, op: Op, inputs: list[Tensor], transposed: bool) -> list[Tensor]:
    formats = [b.spec(name).format for name in op.inputs[:2]]
    chain, target = stages(op.attr("activations")), b.spec(op.outputs[0]).format
    padding, explicit = _padding(op)
    out = b.output(op)
    flat = out.view(-1, op.attr("out_channels"))
    bias = as_shape(b, inputs[2], (-1,)) if len(inputs) > 2 else None
    parts = products(op.attr("fidelity"), *formats)
    pairs = [
        (
            image(
                b,
                op,
                masked(b, op.inputs[0], inputs[0], x_part, alone=len(parts) == 1),
                op.attr("in_channels"),
            ),
            _weight(
                b, op, masked(b, op.inputs[1], inputs[1], w_part, alone=len(parts) == 1), transposed
            ),
        )
        for x_part, w_part in parts
    ]
    if b.exact_accumulation and not op.attr("fp32_acc") and not transposed:
        calls: list[Callable[[], Tensor]] = [partial(_exact, op, pairs)]
    else:
        calls = [_call(b, op, x, w, padding, explicit, transposed) for x, w in pairs]
    finish = native.epilogue_from(flat, bias, chain, target)

    def step() -> None:
        y = calls[0]()
        for call in calls[1:]:
            y = y + call()
        rows = y.permute(0, 2, 3, 1)
        if finish is not None:
            finish(rows if rows.is_contiguous() else rows.contiguous())
            return
        rows = rows.reshape(flat.shape)
        flat.copy_(apply(rows if bias is None else rows + bias, chain))

    b.emit(step)
    if finish is None or target not in native.FUSED_FORMATS:
        b.finish(out, target)
    return [out]


def _call(
    b: Emitter,
    op: Op,
    x: Tensor,
    w: Tensor,
    padding: list[int],
    explicit: list[int] | None,
    transposed: bool,
) -> Callable[[], Tensor]:
    stride, dilation, groups = op.attr("stride"), op.attr("dilation"), op.attr("groups")
    if transposed:
        extra = op.attr("output_padding")
        # The padding of a transposed convolution takes away rows; one-sided leftovers are cut.
        top, bottom, left, right = op.attr("padding")
        trim = (
            top - min(top, bottom),
            bottom - min(top, bottom),
            left - min(left, right),
            right - min(left, right),
        )
        both = [min(top, bottom), min(left, right)]

        def transposed_call() -> Tensor:
            y = F.conv_transpose2d(x, w, None, stride, both, extra, groups, dilation)
            h, width = y.shape[-2:]
            return y[..., trim[0] : h - trim[1], trim[2] : width - trim[3]]

        return transposed_call
    if b.is_constant(op.inputs[1]):
        return _prepacked(b, op, x, w, padding, explicit)
    if explicit is not None:
        return lambda: torch.conv2d(F.pad(x, explicit), w, None, stride, 0, dilation, groups)
    return lambda: torch.conv2d(x, w, None, stride, padding, dilation, groups)


def _prepacked(
    b: Emitter, op: Op, x: Tensor, w: Tensor, padding: list[int], explicit: list[int] | None
) -> Callable[[], Tensor]:
    """A convolution whose weight is put into oneDNN's own order once per version of the weights;
    otherwise oneDNN reorders it at every call, a fifth of the time of ResNet's last layers."""
    stride, dilation, groups = op.attr("stride"), op.attr("dilation"), op.attr("groups")
    if w.numel() < _PREPACK_ELEMENTS or not torch._C._has_mkldnn:
        held = torch.empty(w.shape, dtype=torch.float32, memory_format=torch.channels_last)
        b.prepare(lambda: held.copy_(w))
        return lambda: torch.conv2d(
            x if explicit is None else F.pad(x, explicit), held, None, stride, padding, dilation,
            groups,
        )  # fmt: skip
    size = list(x.shape)
    if explicit is not None:
        size[2] += explicit[2] + explicit[3]
        size[3] += explicit[0] + explicit[1]
    packed: list[Tensor] = []
    reorder = torch.ops.mkldnn._reorder_convolution_weight
    convolve = torch.ops.mkldnn._convolution_pointwise.default

    def prepare() -> None:
        weight = w.contiguous(memory_format=torch.channels_last)
        packed[:] = [reorder(weight, padding, stride, dilation, groups, size)]

    b.prepare(prepare)
    rest: tuple[Any, ...] = (None, padding, stride, dilation, groups, "none", [], "")
    if explicit is not None:
        return lambda: convolve(F.pad(x, explicit), packed[0], *rest)
    return lambda: convolve(x, packed[0], *rest)


def _exact(op: Op, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The convolution as the chip sums it: K runs over (kh, kw, C) in 16-deep steps, Dest rounded
    to bfloat16 after each."""
    (kh, kw), (sh, sw), (dh, dw) = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    top, bottom, left, right = op.attr("padding")
    groups, outside = op.attr("groups"), op.attr("out_channels")
    matrices = []
    for image_part, w in pairs:
        x = F.pad(image_part, [left, right, top, bottom])
        columns = F.unfold(x, (kh, kw), (dh, dw), 0, (sh, sw))  # (N, C*kh*kw, L)
        n, _, length = columns.shape
        columns = columns.view(n, groups, w.shape[1], kh * kw, length).transpose(2, 3)
        matrix = w.permute(0, 2, 3, 1).reshape(groups, outside // groups, -1)
        matrices.append((matrix, columns.reshape(n, groups, -1, length)))
    dest = accumulate_bfloat16(matrices, torch.Size((n, groups, outside // groups, length)))
    out_h = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    return dest.view(n, outside, out_h, -1)


@kernel("Conv2d")
def conv2d(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: operands masked by the fidelity, products summed in float32 (see kernels_matrix for
    the bfloat16 Dest), + bias, activations, rounded once."""
    return _convolution(b, op, inputs, transposed=False)


@kernel("ConvTranspose2d")
def conv_transpose2d(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: as Conv2d, with the windows scattered; the weight is (C, O/groups, kh, kw)."""
    return _convolution(b, op, inputs, transposed=True)


@kernel("Pool2d")
def pool2d(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: max is exact; avg sums in float32, divides by the window (or the divisor, or the
    values without padding) and rounds once."""
    x = image(b, op, inputs[0], op.attr("channels"))
    kernel_size, stride, dilation = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    padding, explicit = _padding(op)
    ceil_mode, function = op.attr("ceil_mode"), op.attr("function")
    if function not in ("max", "avg"):
        raise CompileError(f"no host kernel for the pool {function!r}", allowed=["max", "avg"])
    out = b.output(op)
    target = b.spec(op.outputs[0]).format
    step = native.pool(out, x, op, target)
    if step is not None:
        b.emit(step)
    else:
        fill = float("-inf") if function == "max" else 0.0

        def compute() -> None:
            y = x if explicit is None else F.pad(x, explicit, value=fill)
            if function == "max":
                y = F.max_pool2d(y, kernel_size, stride, padding, dilation, ceil_mode)
            else:
                y = F.avg_pool2d(
                    y,
                    kernel_size,
                    stride,
                    padding,
                    ceil_mode,
                    op.attr("count_include_pad"),
                    op.attr("divisor"),
                )
            out.copy_(y.permute(0, 2, 3, 1).reshape(out.shape))

        b.emit(compute)
    rounded = function == "avg" and step is not None and target in native.FUSED_FORMATS
    exact = function == "max" and holds(target, b.spec(op.inputs[0]).format)
    if not rounded and (not exact or target in BLOCK_FORMATS):
        b.finish(out, target)
    return [out]


@kernel("Upsample")
def upsample(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: x (N, H, W, C); nearest is exact, the others weigh in float32 and round once."""
    x, mode = inputs[0].permute(0, 3, 1, 2), op.attr("mode")
    size = list(b.spec(op.outputs[0]).shape[1:3])
    options: dict[str, Any] = (
        {} if mode.startswith("nearest") else {"align_corners": op.attr("align_corners")}
    )
    return [
        b.compute(
            op,
            lambda: F.interpolate(x, size=size, mode=mode, **options).permute(0, 2, 3, 1),
            exact=mode.startswith("nearest"),
        )
    ]
