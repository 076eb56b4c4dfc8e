"""Compare our circular-buffer and tensor bytes with the real ttnn on a mocked device.

    python benchmarks/memory_vs_ttnn.py MOCK-DIR [--board n150] [--verbose] [--random 50]

MOCK-DIR is a folder made by the ttnn mock's setup script (it holds ``activate``). Prints every
op, what ttnn reports and what we compute, and the difference; exits with 1 when an op differs by
more than ten percent and is not listed as known.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from temper.chips import get
from temper.placement.window_modes import own_peak_bytes
from temper.program import Memory, Op, TensorSpec
from temper.program.allocator import tensor_bank_bytes
from temper.program.circular_buffers import circular_buffer_bytes
from temper.program.compute_config import default_compute
from temper.program.conv_config import choose as choose_conv
from temper.program.conv_config import window_of

LIMIT = 0.10
L1_SMALL = 32_768


@dataclass
class Case:
    """One op: how to ask ttnn, and the same op as ours."""

    ask: dict[str, Any]
    op: Op
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    group: str
    title: str
    tensor_bytes: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


def spec(shape: tuple[int, ...], fmt: str = "bfloat16", where: Any = "dram") -> TensorSpec:
    return TensorSpec(shape, fmt, "tile", memory(shape, where))


def memory(shape: tuple[int, ...], where: Any) -> Memory:
    if isinstance(where, str):
        return Memory("dram" if where == "dram" else "sram")
    sharding, x, y = where
    rows, columns = TensorSpec(shape).physical_2d
    cores = x * y
    shard = {
        "height": (-(-rows // cores), columns),
        "width": (rows, -(-columns // cores)),
        "block": (-(-rows // y), -(-columns // x)),
    }[sharding]
    return Memory("sram", sharding, (x, y), shard)


def case(group: str, ask_op: str, kind: str, inputs: list[Any], out: Any, attrs: dict[str, Any],
         **ask: Any) -> Case:  # fmt: skip
    ins = [spec(tuple(i[0]), *i[1:]) for i in inputs]
    fmt = out[1] if len(out) > 1 else ins[0].format
    where = out[2] if len(out) > 2 else "dram"
    outs = [spec(tuple(out[0]), fmt, where)]
    names = tuple(f"i{k}" for k in range(len(ins)))
    compute = default_compute(kind, ins, outs, "wormhole_b0", 1, norm=attrs.get("norm", "layer"))
    if ask.get("fp32_acc") is not None:
        compute["fp32_acc"] = ask["fp32_acc"]
    op = Op(kind, names, ("o",), {**compute, **attrs})
    shape = "x".join(str(d) for d in inputs[0][0])
    second = ("*" + "x".join(str(d) for d in inputs[1][0])) if len(inputs) > 1 else ""
    places = "" if where == "dram" and ins[0].memory.buffer == "dram" else f" {where}"
    query = {"op": ask_op, "inputs": [list(i) for i in inputs], **ask}
    if where != "dram":
        query |= {"out": where, "out_shape": list(out[0])}
    return Case(query, op, ins, outs, group, f"{shape}{second} {ins[0].format}{places}")


def cases() -> list[Case]:
    made: list[Case] = []
    matmuls = [
        ((256, 512), (512, 1024)), ((32, 4096), (4096, 4096)), ((4096, 64), (64, 64)),
        ((8, 128, 768), (768, 768)), ((8, 128, 768), (768, 3072)), ((12, 128, 64), (12, 64, 128)),
        ((2048, 2048), (2048, 2048)), ((4096, 4096), (4096, 4096)), ((8192, 8192), (8192, 8192)),
        ((1024, 1000), (1000, 1024)), ((64, 256), (256, 128256)), ((4, 1024), (1024, 128)),
        ((32, 32), (32, 32)), ((512, 768), (768, 30522)), ((49, 2048), (2048, 1000)),
        ((64, 9216), (9216, 128)), ((1, 4096), (4096, 14336)), ((128, 11008), (11008, 4096)),
    ]  # fmt: skip
    for a, b in matmuls:
        out = (*a[:-1], b[-1])
        for fmt in ("bfloat16", "bfloat8_b"):
            made.append(case("matmul", "matmul", "Matmul", [(a,), (b, fmt)], (out,), {}))
        if len(b) == 2:
            made.append(case("linear", "linear", "Matmul", [(a,), (b,), ((1, b[-1]),)], (out,), {}))
    for a, b in matmuls[:8]:
        out = (*a[:-1], b[-1])
        made.append(
            case("matmul fp32", "matmul", "Matmul", [(a,), (b,)], (out,), {}, fp32_acc=True)
        )
    sharded = [
        ((512, 512), (512, 1024), ["block", 8, 8]), ((1024, 1024), (1024, 4096), ["block", 8, 8]),
        ((2048, 512), (512, 256), ["height", 8, 8]), ((2048, 512), (512, 1024), ["height", 8, 8]),
        ((32, 2048), (2048, 2048), ["width", 8, 8]), ((4096, 64), (64, 256), ["height", 8, 8]),
        ((256, 768), (768, 3072), ["block", 8, 8]),
    ]  # fmt: skip
    for a, b, where in sharded:
        made.append(
            case("matmul sharded", "matmul", "Matmul", [(a, "bfloat16", where), (b,)],
                 ((a[0], b[1]), "bfloat16", where), {})
        )  # fmt: skip
    for shape in [(8, 256, 256), (12, 128, 128), (16, 512, 512), (32, 2048), (64, 1000),
                  (32, 8192), (32, 32768)]:  # fmt: skip
        for fmt in ("bfloat16", "bfloat8_b", "float32"):
            made.append(case("softmax", "softmax", "Softmax", [(shape, fmt)], (shape, fmt), {}))
    for shape in [(256, 1024), (32, 768), (8, 128, 768), (256, 100), (32, 4096), (32, 16384)]:
        w = ((1, shape[-1]),)
        affine = {"operands": ["x", "weight", "bias"]}
        made.append(
            case("layer_norm", "layer_norm", "LayerNorm", [(shape,), w, w], (shape,), affine)
        )
        made.append(case("layer_norm", "layer_norm", "LayerNorm", [(shape,)], (shape,), {}))
        made.append(case("rms_norm", "rms_norm", "LayerNorm", [(shape,), w], (shape,),
                         {"norm": "rms", "operands": ["x", "weight"]}))  # fmt: skip
    for shape, where in [((256, 1024), ["block", 8, 8]), ((512, 2048), ["block", 8, 8]),
                         ((32, 2048), ["width", 8, 4])]:  # fmt: skip
        w = ((1, shape[-1]),)
        made.append(case("layer_norm sharded", "layer_norm", "LayerNorm",
                         [(shape, "bfloat16", where), w, w], (shape, "bfloat16", where),
                         {"operands": ["x", "weight", "bias"]}))  # fmt: skip
    for shape in [(256, 256), (1, 1, 512, 2048), (100, 100), (8, 64, 56, 56)]:
        for fmt in ("bfloat16", "bfloat8_b", "float32"):
            made.append(case("elementwise", "add", "BinaryNg", [(shape, fmt), (shape, fmt)],
                             (shape, fmt), {}))  # fmt: skip
            made.append(case("elementwise", "gelu", "Unary", [(shape, fmt)], (shape, fmt), {}))
    made.append(
        case("elementwise", "add", "BinaryNg", [((256, 256),), ((1, 256),)], ((256, 256),), {})
    )
    made.append(case("elementwise", "where", "Ternary", [((256, 256),)] * 3, ((256, 256),), {}))
    block = ["block", 8, 8]
    for op, kind, n in [("add", "BinaryNg", 2), ("relu", "Unary", 1)]:
        made.append(case("elementwise", op, kind, [((512, 512), "bfloat16", block)] * n,
                         ((512, 512), "bfloat16", block), {}))  # fmt: skip
    for q in [(1, 8, 512, 64), (1, 32, 1024, 128)]:
        for fmt in ("bfloat16", "bfloat8_b"):
            made.append(case("sdpa", "sdpa", "Sdpa", [(q, fmt)] * 3, (q, fmt), {"causal": True},
                             causal=True))  # fmt: skip
            for rows, columns in [(64, 256), (128, 128), (256, 64)]:
                config = {"q_chunk_size": rows, "k_chunk_size": columns}
                made.append(case("sdpa blocks", "sdpa", "Sdpa", [(q, fmt)] * 3, (q, fmt),
                                 {"config": config}, blocks=[rows, columns]))  # fmt: skip
    for shape in [(256, 512), (2048, 4096), (64, 4096)]:
        made.append(case("layout", "untilize", "Untilize", [(shape,)], (shape,), {}))
    made.append(case("data movement", "transpose", "Transpose", [((1, 8, 128, 64),)],
                     ((1, 8, 64, 128),), {}))  # fmt: skip
    made.append(case("data movement", "concat", "Concat", [((256, 512),)] * 2, ((256, 1024),), {}))
    made.append(case("data movement", "typecast", "Typecast", [((256, 512),)],
                     ((256, 512), "bfloat8_b"), {}, to="bfloat8_b"))  # fmt: skip
    made.append(case("data movement", "concat_heads", "ConcatHeads", [((4, 12, 128, 64),)],
                     ((4, 128, 768),), {}))  # fmt: skip
    return made


CONVS = [  # batch, h, w, in, out, kernel, stride, padding, groups
    (1, 56, 56, 64, 64, 3, 1, 1, 1), (8, 56, 56, 64, 64, 3, 1, 1, 1),
    (8, 224, 224, 3, 64, 7, 2, 3, 1), (8, 56, 56, 128, 128, 3, 2, 1, 1),
    (8, 28, 28, 128, 128, 3, 1, 1, 1), (8, 14, 14, 256, 256, 3, 1, 1, 1),
    (8, 7, 7, 512, 512, 3, 1, 1, 1), (8, 56, 56, 256, 512, 1, 2, 0, 1),
    (64, 28, 28, 1, 32, 3, 1, 0, 1), (64, 26, 26, 32, 64, 3, 1, 0, 1),
    (1, 28, 28, 1, 32, 3, 1, 0, 1), (1, 26, 26, 32, 64, 3, 1, 0, 1),
    (1, 14, 14, 256, 256, 3, 1, 1, 1), (1, 7, 7, 512, 512, 3, 1, 1, 1),
    (1, 56, 56, 144, 144, 3, 1, 1, 144), (1, 224, 224, 3, 64, 3, 1, 1, 1),
    (1, 64, 64, 320, 320, 3, 1, 1, 1), (1, 32, 32, 640, 640, 3, 1, 1, 1),
    (1, 16, 16, 1280, 1280, 3, 1, 1, 1), (8, 56, 56, 64, 256, 1, 1, 0, 1),
    (8, 28, 28, 512, 256, 1, 1, 0, 1), (8, 14, 14, 1024, 512, 1, 1, 0, 1),
    (8, 7, 7, 2048, 512, 1, 1, 0, 1), (1, 112, 112, 32, 64, 3, 2, 1, 1),
    (16, 14, 14, 512, 512, 3, 1, 1, 1), (2, 128, 128, 64, 64, 3, 1, 1, 1),
    (1, 56, 56, 512, 128, 1, 1, 0, 1), (8, 28, 28, 128, 512, 1, 1, 0, 1),
    (8, 56, 56, 1024, 1024, 1, 1, 0, 1), (1, 28, 28, 1024, 256, 1, 1, 0, 1),
]  # fmt: skip


def conv_cases(shapes: Sequence[tuple[int, ...]]) -> list[Case]:
    made = []
    for b, h, w, c, o, k, s, p, g in shapes:
        rows = b * h * w
        ask = {
            "op": "conv2d", "inputs": [[[1, 1, rows, c], "bfloat16", "dram", "row_major"]],
            "in_channels": c, "out_channels": o, "kernel": [k, k], "stride": [s, s],
            "padding": [p, p], "batch": b, "h": h, "w": w, "bias": True, "groups": g,
        }  # fmt: skip
        op = Op("Conv2d", ("x", "w", "b"), ("o",), {
            "batch": b, "in_h": h, "in_w": w, "kernel": [k, k], "stride": [s, s],
            "padding": [p, p, p, p], "groups": g, "in_channels": c, "out_channels": o,
            "fp32_acc": False,
        })  # fmt: skip
        x = TensorSpec((1, 1, rows, c), "bfloat16", "row_major")
        window = window_of(op)
        weight = TensorSpec((1, 1, k * k * c, o))
        out = TensorSpec((1, 1, window.out_rows, o))
        made.append(Case(ask, op, [x, weight, TensorSpec((1, o))], [out], "conv2d",
                         f"{b}x{h}x{w}x{c}->{o} k{k} s{s} g{g}"))  # fmt: skip
    return made


def random_cases(count: int, seed: int) -> list[Case]:
    """Shapes that no rule was made for."""
    pick = random.Random(seed)

    def size(most: int) -> int:
        return max(1, round(math.exp(pick.uniform(0, math.log(most)))))

    made: list[Case] = []
    for _ in range(count):
        m, k, n, b = size(4096), size(8192), size(8192), pick.choice([1, 1, 2, 8])
        weight = pick.choice(["bfloat16", "bfloat8_b", "bfloat4_b"])
        a, w, out = (b, m, k), ((k, n), weight), ((b, m, n),)
        made.append(case("matmul", "matmul", "Matmul", [(a,), w], out, {}))
        made.append(case("linear", "linear", "Matmul", [(a,), w, ((1, n),)], out, {}))
        made.append(case("matmul fp32", "matmul", "Matmul", [(a,), w], out, {}, fp32_acc=True))
        batched = [((b, 4, m, k),), ((b, 4, k, n),)]
        made.append(case("bmm", "matmul", "Matmul", batched, ((b, 4, m, n),), {}))
        row, fmt = (size(2048), size(16384)), pick.choice(["bfloat16", "bfloat8_b", "float32"])
        made.append(case("softmax", "softmax", "Softmax", [(row, fmt)], (row, fmt), {}))
        scale = ((1, row[1]),)
        affine = {"operands": ["x", "weight", "bias"]}
        made.append(
            case("layer_norm", "layer_norm", "LayerNorm", [(row,), scale, scale], (row,), affine)
        )
        made.append(case("elementwise", "add", "BinaryNg", [(row, fmt)] * 2, (row, fmt), {}))
    return made


def random_convs(count: int, seed: int) -> list[tuple[int, ...]]:
    pick = random.Random(seed + 1)
    made = []
    for _ in range(count):
        k = pick.choice([1, 3, 3, 5, 7])
        h = pick.choice([7, 14, 20, 28, 32, 56, 64, 112])
        channels = [pick.choice([3, 16, 32, 48, 64, 96, 128, 256, 512]) for _ in range(2)]
        made.append((pick.choice([1, 2, 4, 8]), h, h, *channels, k, pick.choice([1, 1, 2]),
                     k // 2, 1))  # fmt: skip
    return made


def ask_ttnn(mock: Path, board: str, queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    probe = Path(__file__).with_name("ttnn_probe.py")
    activate = shlex.quote(str(mock / "activate"))
    script = f"source {activate} {board} && exec python {shlex.quote(str(probe))}"
    done = subprocess.run(
        ["bash", "-c", script],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(x[7:]) for x in done.stdout.splitlines() if x.startswith("RESULT ")]
    if len(lines) != len(queries):
        sys.exit(f"ttnn answered {len(lines)} of {len(queries)} queries\n{done.stderr[-2000:]}")
    return lines


def compare(mock: Path, board: str, verbose: bool, count: int, seed: int) -> int:
    chip = get(board)
    # The probe opens the device with this L1_SMALL region, which ttnn's limits leave out.
    chip = replace(chip, sram_reserved_bytes=chip.sram_reserved_bytes + L1_SMALL)
    everything = cases() + conv_cases(CONVS)
    if count:
        everything = random_cases(count, seed) + conv_cases(random_convs(count, seed))
    queries = [{**c.ask, "verbose": True} for c in everything]
    rows: list[tuple[str, str, str, int, int, float]] = []
    for c, answer in zip(everything, ask_ttnn(mock, board, queries), strict=True):
        if "error" in answer:
            print(f"  {c.group:18} {c.title:44} ttnn refuses: {answer['error'][:60]}")
            continue
        if c.group == "conv2d":
            rows += conv_rows(c, answer, chip)
            continue
        ours = circular_buffer_bytes(c.op, c.inputs, c.outputs, chip)
        theirs = answer["cb"]
        rows.append((c.group, c.title, "buffers", theirs, ours, difference(theirs, ours)))
        size = out_buffer(answer)
        if size:
            ours = tensor_bank_bytes(c.outputs[0], chip) * banks(c.outputs[0], chip)
            # ttnn reports the pages themselves; a bank holds whole pages.
            theirs_banked = banked(size, c.outputs[0], chip)
            rows.append((c.group, c.title, "tensor", theirs_banked, ours,
                         difference(theirs_banked, ours)))  # fmt: skip
    return report(rows, verbose)


def conv_rows(c: Case, answer: dict[str, Any], chip: Any) -> list[Any]:
    window = window_of(c.op)
    config = choose_conv(window, c.inputs[0], c.outputs[0], chip, bias=True)
    ours = circular_buffer_bytes(c.op, c.inputs, c.outputs, chip)
    main = "MatmulDeviceOperation" if window.is_matmul else "Conv2dDeviceOperation"
    if answer["ops"].count(main) > 1:  # ttnn cuts it into slices; so must we
        alone = own_peak_bytes(config, c.inputs[0], c.outputs[0], pool=False)
        fits = alone <= chip.sram_usable_bytes
        return [("conv2d sliced", c.title, "too big", 1, int(not fits), -float(fits))]
    found = []
    for entry in answer["detail"]:
        if not isinstance(entry, dict):
            continue
        if entry["name"] == main:
            theirs = sum(
                int(p["size"])
                for kind, p in entry["buffers"]
                if kind != "buffer_allocate" and p.get("globally_allocated") != "1"
            )
            found.append(("conv2d", c.title, "buffers", theirs, ours, difference(theirs, ours)))
        if entry["name"] == "HaloDeviceOperation":
            theirs = next(int(p["size"]) // int(p["num_cores"]) for kind, p in entry["buffers"]
                          if kind == "buffer_allocate")  # fmt: skip
            mine = config.halo_shard[0] * config.halo_shard[1] * 2
            found.append(("conv2d", c.title, "halo", theirs, mine, difference(theirs, mine)))
    return found


def out_buffer(answer: dict[str, Any]) -> int:
    for entry in answer["detail"]:
        if isinstance(entry, dict):
            for kind, p in entry["buffers"]:
                if kind == "buffer_allocate":
                    return int(p["size"])
    return 0


def banks(spec_: TensorSpec, chip: Any) -> int:
    if spec_.memory.sharded:
        return spec_.memory.cores
    return chip.dram_banks if spec_.memory.buffer == "dram" else chip.compute_cores


def banked(size: int, spec_: TensorSpec, chip: Any) -> int:
    if spec_.memory.sharded:
        return size
    pages = size // spec_.page_bytes
    return -(-pages // banks(spec_, chip)) * banks(spec_, chip) * spec_.page_bytes


def difference(theirs: int, ours: int) -> float:
    return (ours - theirs) / theirs if theirs else (0.0 if ours == 0 else 1.0)


def report(rows: list[tuple[str, str, str, int, int, float]], verbose: bool) -> int:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    print(f"{'op':18} {'shape':44} {'what':8} {'ttnn B':>12} {'ours B':>12} {'diff':>8}")
    for group, title, what, theirs, ours, diff in rows:
        groups[group, what].append(abs(diff))
        if verbose or abs(diff) > LIMIT:
            print(f"{group:18} {title:44} {what:8} {theirs:12} {ours:12} {diff:+8.1%}")
    print(f"\n{'op':18} {'what':8} {'cases':>6} {'exact':>6} {'median':>8} {'worst':>8} over 10%")
    worse = 0
    for (group, what), diffs in groups.items():
        over = sum(d > LIMIT for d in diffs)
        worse += over
        print(f"{group:18} {what:8} {len(diffs):6} {sum(d == 0 for d in diffs):6} "
              f"{statistics.median(diffs):8.1%} {max(diffs):8.1%} {over}")  # fmt: skip
    return 1 if worse else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("mock", type=Path, help="folder made by the ttnn mock's setup script")
    parser.add_argument("--board", default="n150", choices=["n150", "p150"])
    parser.add_argument("--verbose", action="store_true", help="print every case")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random shapes an op")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (options.mock / "activate").exists():
        parser.error(f"{options.mock} has no 'activate'; make it with the mock's setup script")
    sys.exit(compare(options.mock, options.board, options.verbose, options.random, options.seed))


if __name__ == "__main__":
    main()
