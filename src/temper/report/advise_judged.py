"""Advice for measured ops: each change is put to the cost model, and the measured time scaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from temper.chips import FIDELITY_PHASES
from temper.cost.rows import Row
from temper.errors import TemperError
from temper.program.tensor import BLOCK_FORMATS, SRAM, TensorSpec
from temper.report.accuracy import fidelity_note, weight_format_note
from temper.report.advice import Advice
from temper.report.judge import Judged

_BASIS = "measured, the gain modelled"
# An op that runs on fewer of the cores than this could use more.
_FEW = 0.5


@dataclass(frozen=True)
class _Change:
    """One way to run an op otherwise; None where it does not apply."""

    title: str
    row: Callable[[Judged], Row | None]
    why: str
    ttnn: str
    options: str
    costs: str = "nothing: the same numbers"


def advise_judged(judged: Sequence[Judged], total_ns: float, *, in_ttnn: bool) -> list[Advice]:
    """A piece of advice for each change that the model finds faster."""
    made = []
    for change in _CHANGES:
        gain, best, best_gain, count = 0.0, judged[0], 0.0, 0
        for item in judged:
            saved = _saved(item, change)
            if saved <= 0:
                continue
            gain, count = gain + saved, count + item.count
            if saved > best_gain:
                best, best_gain = item, saved
        if not count:
            continue
        name = best.code.removesuffix("DeviceOperation")
        first = f"{name} {best.shape} on {best.cores} of {best.available} cores"
        why = f"{change.why} ({count} runs, most in {first})"
        paste = change.ttnn if in_ttnn else change.options
        then = total_ns - gain
        made.append(
            Advice(
                change.title, why, paste, total_ns, then, then, total_ns, change.costs, basis=_BASIS
            )
        )
    return made


def _saved(item: Judged, change: _Change) -> float:
    """Measured time that the change would save, by the ratio of the two modelled times."""
    row = change.row(item)
    if row is None:
        return 0.0
    try:
        then = item.again(row).kernel_ns
    except (TemperError, ValueError):
        return 0.0  # the chip or the kernel does not take it
    now = item.modelled_ns
    return item.measured_ns * item.count * (1 - then / now) if 0 < then < now else 0.0


def _more_cores(item: Judged) -> Row | None:
    """As many cores as there are tiles to share out, at most those offered."""
    if not 0 < item.cores < _FEW * item.available or not item.row.outputs:
        return None
    height, width = item.row.outputs[0].physical_2d
    tiles = max(1, height * width // 1024)
    cores = min(item.available, tiles)
    if cores <= item.cores:
        return None
    return replace(item.row, context=replace(item.row.context, cores=cores))


def _in_sram(item: Judged) -> Row | None:
    """Activations in SRAM where they fit beside each other; weights stay where they are."""
    tensors = (*item.row.inputs, *item.row.outputs)
    weight = 1 if item.row.family in ("matmul", "conv2d") else None
    moved = [i for i, t in enumerate(tensors) if t.memory.buffer == "dram" and i != weight]
    size = sum(tensors[i].size_bytes for i in moved)
    if not moved or item.row.family == "kv_cache":
        return None
    if size // item.row.chip.compute_cores > item.row.chip.sram_usable_bytes // 2:
        return None
    placed = [t.with_memory(SRAM) if i in moved else t for i, t in enumerate(tensors)]
    return _with_tensors(item.row, placed)


def _fidelity(item: Judged) -> Row | None:
    """The least fidelity that tells the bits of the formats apart (FACTS: HiFi2 for bfloat8_b)."""
    now = FIDELITY_PHASES.get(str(item.row.op.attrs.get("fidelity", "")), 0)
    formats = {spec.format for spec in item.row.inputs[:2]}
    need = "LoFi" if formats == {"bfloat4_b"} else "HiFi2" if formats & set(BLOCK_FORMATS) else ""
    if not need or now <= FIDELITY_PHASES[need]:
        return None
    attrs = {**item.row.op.attrs, "fidelity": need}
    return replace(item.row, op=replace(item.row.op, attrs=attrs))


def _bfloat16(item: Judged) -> Row | None:
    return _in_format(item, "float32", "bfloat16", range(len(item.row.inputs) + 1))


def _block_weights(item: Judged) -> Row | None:
    if item.row.family not in ("matmul", "conv2d") or len(item.row.inputs) < 2:
        return None
    return _in_format(item, "bfloat16", "bfloat8_b", (1,))


def _in_format(item: Judged, old: str, new: str, which: Sequence[int]) -> Row | None:
    tensors = [*item.row.inputs, *item.row.outputs]
    chosen = [i for i in which if i < len(tensors) and tensors[i].format == old]
    if not chosen:
        return None
    for i in chosen:
        spec = tensors[i]
        tensors[i] = replace(spec, format=new, layout="tile" if new.endswith("_b") else spec.layout)
    return _with_tensors(item.row, tensors)


def _with_tensors(row: Row, tensors: Sequence[TensorSpec]) -> Row:
    inputs = len(row.inputs)
    return replace(row, inputs=tuple(tensors[:inputs]), outputs=tuple(tensors[inputs:]))


_SET = "torch_xla.set_custom_compile_options({%s})"
_CHANGES = (
    _Change(
        "more cores",
        _more_cores,
        "ops run on less than half of the cores that they were offered",
        "# shard the input over the grid: ttnn.to_memory_config(x, sharded), or a program_config "
        "with compute_with_storage_grid_size=device.compute_with_storage_grid_size()",
        _SET % '"optimization_level": "2"',
    ),
    _Change(
        "activations in SRAM",
        _in_sram,
        "activations lie in DRAM and would fit SRAM",
        "memory_config=ttnn.L1_MEMORY_CONFIG  # of these ops and of the ones that feed them",
        _SET % '"optimization_level": "2"',
    ),
    _Change(
        "the fidelity that the formats need",
        _fidelity,
        "block-float operands are multiplied at a higher fidelity than their bits need",
        "compute_kernel_config=ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2)",
        _SET % '"math_fidelity": "hifi2"',
        fidelity_note("HiFi2"),
    ),
    _Change(
        "bfloat16 instead of float32",
        _bfloat16,
        "tensors are float32",
        "x = ttnn.typecast(x, ttnn.bfloat16)  # better: load and compute in bfloat16",
        "model = model.to(torch.bfloat16)",
        weight_format_note("bfloat16"),
    ),
    _Change(
        "weights in bfloat8_b",
        _block_weights,
        "weights of matmuls and convolutions are bfloat16",
        "weight = ttnn.from_torch(weight, dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT)",
        _SET % '"experimental_weight_dtype": "bfp_bf8"',
        weight_format_note("bfloat8_b"),
    ),
)
