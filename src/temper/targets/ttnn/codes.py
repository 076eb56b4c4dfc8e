"""The device ops that one op of a program is, in the names of ttnn's graph and profiler."""

from __future__ import annotations

from temper.chips import get
from temper.program import Op, Program, TensorSpec
from temper.program.conv_config import skips_halo
from temper.program.tensor import (
    INTEGER_FORMATS,
    TILE,
    ceil_div,
    is_view,
    turned_by_transpose,
)


def device_codes(program: Program, op: Op) -> list[str]:
    """Names in order; none for what runs on the host or moves nothing."""
    inputs, outputs = program.input_specs(op), program.output_specs(op)
    if op.kind in ("Host", "PrepareConvWeight", "FoldImage"):
        return []
    if inputs and inputs[0].memory.buffer == "host":
        return []
    if op.kind == "Reshape" and is_view(inputs[0], outputs[0]):
        return []
    if op.kind == "Halo" and skips_halo(op, inputs[0], outputs[0]):
        return []
    if op.kind == "Reduce":
        return _reduce_codes(op, inputs[0], get(program.chip).compute_cores)
    if op.kind == "Upsample" and op.attr("mode") == "bilinear":
        around = [f"{name}DeviceOperation" for name in
                  ("InterleavedToSharded", "Halo", "UpSample", "ShardedToInterleaved")]  # fmt: skip
        return around
    if op.kind == "SparseMatmul":  # experts that nobody chose are filled with zeros
        return [op.info.code, "UnaryDeviceOperation"]
    if op.kind == "ConvTranspose2d":
        return ["Conv2dDeviceOperation"]
    if op.kind == "Transpose" and inputs[0].layout == "row_major":
        return ["PermuteDeviceOperation"]
    if op.kind == "Permute" and inputs[0].layout == "tile" and _swaps_two(op.attr("dims")):
        return ["TransposeDeviceOperation"]
    if op.kind == "Ternary" and len(op.inputs) == 1 and op.attr("function") == "where":
        return ["UnaryDeviceOperation"]
    if op.kind == "Ternary" and len(op.inputs) == 2 and op.attr("function") == "where":
        return ["BinaryNgDeviceOperation"]
    if op.kind == "BinaryNg" and len(op.inputs) == 1 and op.attr("function") in _SCALAR_UNARY:
        if inputs[0].format in INTEGER_FORMATS:
            return [op.info.code]
        return ["UnaryDeviceOperation"]
    if op.kind == "Pad" and inputs[0].layout == "tile" and _same_tiles(inputs[0], outputs[0]):
        return ["FillPadDeviceOperation"]  # what is added lies in tiles that are there
    if op.kind == "Tilize":
        whole = all(size % 32 == 0 for size in outputs[0].shape[-2:])
        return ["TilizeDeviceOperation" if whole else "TilizeWithValPaddingDeviceOperation"]
    return [op.info.code]


# Rows of tiles from which a tall tensor is reduced in parts, where cores would be idle otherwise.
_TALL = 20


def _reduce_codes(op: Op, x: TensorSpec, cores: int) -> list[str]:
    """One device op for each direction; sums of outer dimensions have a kernel of their own."""
    function, rank = op.attr("function"), max(1, len(x.shape))
    if function in ("var", "std"):
        return ["WelfordReduceDeviceOperation"]
    dims = {int(d) % rank for d in op.attr("dims")} or set(range(rank))
    outer = [d for d in dims if d < rank - 2]
    inner = len(dims) - len(outer)
    if inner == 2 and x.tiles == 1 and function != "min":
        inner = 1
    batch, rows, columns = x.matrix
    columns_of_tiles = batch * ceil_div(columns, TILE)
    if dims == {rank - 2} and x.layout == "tile" and ceil_div(rows, TILE) >= _TALL:
        inner += 2 * columns_of_tiles <= cores
    inside = [op.info.code] * inner
    if function == "sum":
        cut = ["SliceDeviceOperation"] if outer and x.shape[-2] % TILE else []
        return ["FastReduceNCDeviceOperation"] * len(outer) + cut + inside
    turned = ["TransposeDeviceOperation", op.info.code, "TransposeDeviceOperation"]
    return inside + turned * len(outer)


def _same_tiles(before: TensorSpec, after: TensorSpec) -> bool:
    (batch, rows, columns), (more, longer, wider) = before.matrix, after.matrix
    return (
        batch == more
        and ceil_div(rows, TILE) == ceil_div(longer, TILE)
        and (ceil_div(columns, TILE) == ceil_div(wider, TILE))
    )


# Functions of a tensor and a number for which ttnn has a unary kernel.
_SCALAR_UNARY = frozenset({"pow", "maximum", "minimum", "fmod", "remainder"})


def _swaps_two(dims: list[int]) -> bool:
    moved = [i for i, d in enumerate(dims) if d % len(dims) != i]
    return len(moved) == 2 and turned_by_transpose(len(dims), *moved)
