"""1x1 convolutions as the matmuls that ttnn runs for them.

With stride 1, no padding and no groups a 1x1 convolution over flat channels-last rows is a matmul
of the rows with the prepared weight, and ttnn calls its matmul with its own automatic config: the
profiler shows MatmulDeviceOperation. Fidelity, accumulator and activations stay the convolution's.
"""

from __future__ import annotations

from temper.program.conv_config import window_of
from temper.program.op import Op
from temper.program.ops import KINDS
from temper.program.program import Program

_KEPT = ("activations", "fidelity", "fp32_acc", "packer_l1_acc", "approx")


def pointwise_to_matmul(program: Program) -> Program:
    """The program with every pointwise convolution that has a prepared weight as a matmul."""
    ops = tuple(_as_matmul(op, program) for op in program.ops)
    return program if ops == program.ops else program.replace(ops=ops)


def _as_matmul(op: Op, program: Program) -> Op:
    if op.kind != "Conv2d" or not op.attr("prepared") or op.attr("groups") != 1:
        return op
    if not window_of(op).is_matmul:
        return op
    x, weight = program.spec(op.inputs[0]), program.spec(op.inputs[1])
    expected = (op.attr("in_channels"), op.attr("out_channels"))
    if x.shape[-1:] != weight.shape[-2:-1] or weight.shape[-2:] != expected:
        return op
    attrs = {name: op.attr(name) for name in _KEPT if name in KINDS["Matmul"].attrs}
    return Op("Matmul", op.inputs, op.outputs, attrs, op.source)
