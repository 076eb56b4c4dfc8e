"""Which of ttnn's kernels an op is built from, where its op and tensors say so for sure.

The virtual chip builds none of them. Paths are tt-metal's, from the root of its repository; an op
whose choice of kernels depends on more than a program tells has none.
"""

from __future__ import annotations

from temper.program.matmul_config import MULTI_CORE, matmul_config_of
from temper.run.opinfo import OpInfo

_OPERATIONS = "ttnn/cpp/ttnn/operations"
_MATMUL = f"{_OPERATIONS}/matmul/device/kernels/compute"
_BINARY = f"{_OPERATIONS}/eltwise/binary_ng/device"


def kernel_sources(info: OpInfo) -> tuple[list[str], list[str]]:
    """Paths of its compute kernels and of its data movement kernels, as far as they are known."""
    if info.op.kind == "Matmul":
        config = matmul_config_of(info.op, info.inputs, info.outputs, info.chip)
        simple = config.name == MULTI_CORE
        name = "bmm.cpp" if simple else "bmm_large_block_zm_fused_bias_activation.cpp"
        return [f"{_MATMUL}/{name}"], []
    if info.op.kind == "BinaryNg":
        return _binary(info)
    return [], []


def _binary(info: OpInfo) -> tuple[list[str], list[str]]:
    """Sums and products of one shape; a broadcast or a scalar takes one of many others."""
    plain = len(info.inputs) == 2 and info.inputs[0].shape == info.inputs[1].shape
    plain = plain and info.op.attr("function") in ("add", "sub", "mul")
    if not plain or any(spec.memory.sharded for spec in (*info.inputs, *info.outputs)):
        return [], []
    wide = any(spec.format in ("float32", "int32", "uint32") for spec in info.inputs)
    engine = "eltwise_binary_sfpu_no_bcast.cpp" if wide else "eltwise_binary_no_bcast.cpp"
    moves = ("writer_interleaved_no_bcast.cpp", "reader_interleaved_no_bcast.cpp")
    return [f"{_BINARY}/kernels/compute/{engine}"], [
        f"{_BINARY}/kernels_ng/dataflow/{name}" for name in moves
    ]


def cell(paths: list[str]) -> str:
    """As tt-metal writes a list into a cell."""
    return "[" + "; ".join(f"'{path}'" for path in paths) + "]"
