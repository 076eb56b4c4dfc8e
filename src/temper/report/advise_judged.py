"""Advice for measured ops: each change is put to the cost model, and the measured time scaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from temper.chips import FIDELITY_PHASES
from temper.cost.rows import Row
from temper.errors import TemperError
from temper.program.matmul_config import REUSE_1D, REUSE_2D, MatmulConfig
from temper.program.table.matmul import matmul_configs
from temper.program.tensor import BLOCK_FORMATS, SRAM, TensorSpec
from temper.report.accuracy import fidelity_note, weight_format_note
from temper.report.advice import Advice
from temper.report.judge import Judged
from temper.report.summary import short_code

_BASIS = "measured, the gain modelled"
# An op that runs on fewer of the cores than this could use more.
_FEW = 0.5
# Ops that a piece of advice names, those that gain most first.
_NAMED = 3


@dataclass(frozen=True)
class _Change:
    """One way to run an op otherwise; None where it does not apply."""

    title: str
    row: Callable[[Judged], Row | None]
    why: str
    ttnn: str | Callable[[Row], str]  # the line to paste; of the row that gains most
    options: str
    costs: Callable[[], str] = lambda: "nothing: the same numbers"


def advise_judged(judged: Sequence[Judged], total_ns: float, *, in_ttnn: bool) -> list[Advice]:
    """A piece of advice for each change that the model finds faster."""
    made = []
    for change in _CHANGES:
        saved = [(_saved(item, change), item) for item in judged]
        gaining = sorted((pair for pair in saved if pair[0] > 0), key=lambda pair: -pair[0])
        if not gaining:
            continue
        named = "; ".join(_named(item) for _, item in gaining[:_NAMED])
        others = len(gaining) - _NAMED
        why = f"{change.why}: {named}" + (f"; and {others} more" if others > 0 else "")
        paste = _paste(change, gaining[0][1], in_ttnn)
        then = total_ns - sum(gain for gain, _ in gaining)
        made.append(
            Advice(
                change.title,
                why,
                paste,
                total_ns,
                then,
                then,
                total_ns,
                change.costs(),
                basis=_BASIS,
            )
        )
    return made


def _named(item: Judged) -> str:
    """An op with its shape, cores and how often it ran."""
    runs = f", {item.count} runs" if item.count > 1 else ""
    return f"{short_code(item.code)} {item.shape} on {item.cores} of {item.available} cores{runs}"


def _paste(change: _Change, item: Judged, in_ttnn: bool) -> str:
    if isinstance(change.ttnn, str):
        return change.ttnn if in_ttnn else change.options
    row = change.row(item)
    assert row is not None  # it saved time
    return change.ttnn(row) if in_ttnn else f"{change.options} {change.ttnn(row)}"


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


def _program_config(item: Judged) -> Row | None:
    """The config that the model finds fastest of those that ttnn's rules and deeper blocks give."""
    row = item.row
    tensors = (*row.inputs, *row.outputs)
    told = row.op.kind == "Matmul" and len(row.inputs) > 1 and row.outputs
    if not told or any(spec.memory.sharded for spec in tensors):
        return None
    best: tuple[float, Row] | None = None
    for config in matmul_configs(row.op, row.inputs, row.outputs, row.chip):
        attrs = {**row.op.attrs, "config": config.to_attrs()}
        context = replace(row.context, cores=config.cores)
        other = replace(row, op=replace(row.op, attrs=attrs), context=context)
        try:
            time_ns = item.again(other).kernel_ns
        except (TemperError, ValueError):
            continue  # the kernel does not take it
        if best is None or time_ns < best[0]:
            best = time_ns, other
    return best[1] if best else None


def _config_code(row: Row) -> str:
    config = MatmulConfig.from_attrs(row.op.attrs["config"])
    x, y = config.grid
    numbers = [
        f"compute_with_storage_grid_size=({x}, {y})", f"in0_block_w={config.in0_block_w}",
        f"out_subblock_h={config.out_subblock_h}", f"out_subblock_w={config.out_subblock_w}",
        f"per_core_M={config.per_core_m}", f"per_core_N={config.per_core_n}",
    ]  # fmt: skip
    if config.name == REUSE_1D:
        numbers += [f"fuse_batch={config.fuse_batch}", f"mcast_in0={config.mcast_in0}"]
    elif config.name == REUSE_2D:
        numbers += ["transpose_mcast=False"]
    if config.name in (REUSE_1D, REUSE_2D):
        numbers += ["fused_activation=None"]
    return f"program_config=ttnn.{config.name}ProgramConfig({', '.join(numbers)})"


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
        "a better matmul program config",
        _program_config,
        "another program config does the same matmul faster",
        _config_code,
        "# the compiler chose the config; in ttnn it would be",
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
        lambda: fidelity_note("HiFi2"),
    ),
    _Change(
        "bfloat16 instead of float32",
        _bfloat16,
        "tensors are float32",
        "x = ttnn.typecast(x, ttnn.bfloat16)  # better: load and compute in bfloat16",
        "model = model.to(torch.bfloat16)",
        lambda: weight_format_note("bfloat16"),
    ),
    _Change(
        "weights in bfloat8_b",
        _block_weights,
        "weights of matmuls and convolutions are bfloat16",
        "weight = ttnn.from_torch(weight, dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT)",
        _SET % '"experimental_weight_dtype": "bfp_bf8"',
        lambda: weight_format_note("bfloat8_b"),
    ),
)
