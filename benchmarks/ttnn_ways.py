"""Offer every way that placement may choose for random ops to the real ttnn on a mocked device.

    TEMPER_TTNN=MOCK-DIR python benchmarks/ttnn_ways.py [--chip n150] [--ways 5000] [--seed 0]

Prints every refusal, other result and other device op, and exits with 1 when there is one that is
no known difference.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator

from temper.chips import Chip, get
from temper.options import resolve
from temper.placement.modes import modes
from temper.placement.pieces import Piece, attrs_key, expand
from temper.program import Op, Program, TensorSpec
from temper.program.compute_config import default_compute
from temper.program.simulate import DoesNotFit, walk
from temper.targets.ttnn.environment import find
from temper.targets.ttnn.legality import OpVerdict, check

Case = tuple[Op, list[TensorSpec], list[TensorSpec]]


def cases(seed: int) -> Iterator[Case]:
    """Random ops of the kinds that placement spreads, without end."""
    pick = random.Random(seed)
    makers = [_matmul, _matmul, _unary, _binary, _norm, _window, _window, _softmax, _attention]
    while True:
        yield pick.choice(makers)(pick)


def _size(pick: random.Random, most: int = 2048) -> int:
    return pick.choice([32, 64, 96, 128, 197, 256, 384, 500, 768, 1024, 2048][: 6 + most // 512])


def _op(kind: str, ins: list[TensorSpec], out: TensorSpec, **attrs: object) -> Case:
    names = tuple(f"i{k}" for k in range(len(ins)))
    compute = default_compute(kind, ins, [out], "wormhole_b0", 1)
    return Op(kind, names, ("o",), {**compute, **attrs}), ins, [out]


def _matmul(pick: random.Random) -> Case:
    m, k, n = _size(pick), _size(pick), _size(pick)
    a, b = TensorSpec((1, 1, m, k)), TensorSpec((k, n), pick.choice(["bfloat16", "bfloat8_b"]))
    ins = [a, b] + ([TensorSpec((1, n))] if pick.random() < 0.5 else [])
    act = pick.choice([[], [], [["relu"]], [["gelu"]]])
    return _op("Matmul", ins, TensorSpec((1, 1, m, n)), activations=act)


def _unary(pick: random.Random) -> Case:
    x = TensorSpec((1, 1, _size(pick), _size(pick)), pick.choice(["bfloat16", "bfloat8_b"]))
    return _op("Unary", [x], x, functions=[[pick.choice(["relu", "gelu", "exp", "silu"])]])


def _binary(pick: random.Random) -> Case:
    x = TensorSpec((1, 1, _size(pick), _size(pick)))
    return _op("BinaryNg", [x, x], x, function=pick.choice(["add", "mul", "sub"]))


def _norm(pick: random.Random) -> Case:
    x = TensorSpec((1, 1, _size(pick), pick.choice([256, 512, 768, 1024])))
    w = TensorSpec((1, x.shape[-1]))
    return _op("LayerNorm", [x, w, w], x, operands=["x", "weight", "bias"], norm="layer")


def _softmax(pick: random.Random) -> Case:
    x = TensorSpec((1, pick.choice([1, 8]), _size(pick, 512), _size(pick, 512)))
    return _op("Softmax", [x], x, dim=-1)


def _attention(pick: random.Random) -> Case:
    q = TensorSpec((1, pick.choice([4, 8]), pick.choice([64, 128, 256]), 64))
    return _op("Sdpa", [q, q, q], q, causal=pick.random() < 0.5)


def _window(pick: random.Random) -> Case:
    size, inside = pick.choice([14, 28, 56]), pick.choice([32, 64, 128])
    outside, kernel = pick.choice([32, 64, 128, 256]), pick.choice([1, 3, 5])
    stride, pad = pick.choice([1, 2]), kernel // 2
    batch = pick.choice([1, 2])
    out = (size + 2 * pad - kernel) // stride + 1
    x = TensorSpec((1, 1, batch * size * size, inside))
    window = {"batch": batch, "in_h": size, "in_w": size, "kernel": [kernel, kernel],
              "stride": [stride, stride], "padding": [pad] * 4}  # fmt: skip
    if pick.random() < 0.3 and kernel > 1:
        made = TensorSpec((1, 1, batch * out * out, inside), layout="row_major")
        return _op("Pool2d", [x], made, **window, channels=inside, function="max")
    weight = TensorSpec((1, 1, kernel * kernel * inside, outside))
    made = TensorSpec((1, 1, batch * out * out, outside))
    return _op("Conv2d", [x, weight], made, **window, in_channels=inside, out_channels=outside,
               prepared=True)  # fmt: skip


def programs(chip: Chip, seed: int, wanted: int) -> Iterator[tuple[Program, int]]:
    """Programs of one op each in one of its ways; as many ways as wanted."""
    made = 0
    for number, (op, ins, outs) in enumerate(cases(seed)):
        for mode in modes(op, ins, outs, chip, sram=True):
            pieces = expand(op, attrs_key(op), mode, ins, outs, sram=True,
                            to_dram=[False] * len(outs))  # fmt: skip
            program = _program(f"{op.kind}{number}", op, ins, pieces, chip)
            if program is None or not _fits(program, chip):
                continue
            yield program, number
            made += 1
            if made >= wanted:
                return


def _program(
    name: str, op: Op, ins: list[TensorSpec], pieces: list[Piece], chip: Chip
) -> Program | None:
    values = dict(zip(op.inputs, ins, strict=True))
    ops, const_ops, weights, inputs = [], [], {}, list(op.inputs)
    if op.kind == "Conv2d":  # the weight is prepared by ttnn
        out, inside = op.attr("out_channels"), op.attr("in_channels")
        if pieces[-1].op.kind != "Conv2d":
            return None
        values["raw"] = TensorSpec((out, inside, *op.attr("kernel")), layout="row_major")
        const_ops = [Op("PrepareConvWeight", ("raw",), (op.inputs[1],), {"groups": 1})]
        weights, inputs = {"raw": "raw"}, [op.inputs[0]]
    for i, piece in enumerate(pieces):
        sources = tuple(op.inputs[k] if k >= 0 else f"p{-1 - k}" for k in piece.inputs)
        values[f"p{i}"] = piece.output_specs[0]
        ops.append(Op(piece.op.kind, sources, (f"p{i}",), piece.op.attrs))
    return Program(name, chip.name, values, tuple(ops), tuple(inputs), (f"p{len(pieces) - 1}",),
                   weights, tuple(const_ops))  # fmt: skip


def _fits(program: Program, chip: Chip) -> bool:
    try:
        walk(program, chip, l1_small_bytes=65_536)
    except DoesNotFit:
        return False
    return True


def sweep(chip_name: str, seed: int, wanted: int) -> tuple[int, list[tuple[str, OpVerdict]]]:
    """(ways offered, verdicts that are not as planned with their program's name)."""
    chip, environment = get(chip_name), find(chip_name)
    options = resolve({"chip": chip_name, "optimization_level": 2})
    wrong, offered = [], 0
    for program, _ in programs(chip, seed, wanted):
        found = check(program, environment, options, memory=False)
        offered += 1
        wrong += [(program.name, v) for v in found.verdicts if v.verdict != "accepted"]
    return offered, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", default="n150")
    parser.add_argument("--ways", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    offered, wrong = sweep(asked.chip, asked.seed, asked.ways)
    for (kind, verdict, message), count in Counter(
        (v.kind, v.verdict, v.message[:160]) for _, v in wrong
    ).most_common():
        print(f"{count:5} {verdict:8} {kind}: {message}")
    print(f"{offered} ways offered on {asked.chip}, {len(wrong)} not as planned")
    sys.exit(1 if any(v.verdict in ("refused", "differs") for _, v in wrong) else 0)


if __name__ == "__main__":
    main()
