"""The ops CSV's columns and what each shows for an op: the seed's names, and the newer ones.

Values follow the profiler of tt-metal, computed from the cost model's figures. Columns about
kernel binaries stay empty: the virtual chip builds none.
"""

from __future__ import annotations

from dataclasses import dataclass

from temper.cost.records import OpCost
from temper.program import TensorSpec
from temper.program.words import datatype
from temper.run import describe, kernel_sources
from temper.run.csv_columns import TENSORS, columns_of
from temper.run.opinfo import OpInfo

# From one core's kernel start to the last one's, at most, in the zones of the device log; the
# seed's example has 585 ns.
START_SKEW_NS = 585
# Medians of 5,500 measured rows, by family: ns of firmware around the kernel, and the parts of the
# kernel's time that the zones of BRISC, NCRISC and TRISC1 take. The first row is over all of them.
_ZONES: dict[str, tuple[int, float, float, float | None]] = {
    "": (814, 1.0, 0.86, 0.94),
    "binary": (604, 0.99, 0.67, 0.92),
    "unary": (586, 1.0, 0.73, 0.95),
    "matmul": (1921, 1.0, 0.94, 0.98),
    "conv2d": (1331, 0.91, 0.89, 1.0),
    "halo": (575, 0.96, 0.98, 0.7),
    "layernorm": (610, 0.98, 0.65, 0.94),
    "reduce": (577, 0.98, 0.94, 0.92),
    "sdpa": (675, 1.0, 0.89, 0.98),
    "sdpa_decode": (667, 0.98, 0.45, 0.87),
    "embedding": (534, 0.99, 0.71, 0.38),
    "tilize": (613, 1.0, 0.84, 0.07),
    "untilize": (567, 1.0, 0.45, 0.47),
    "typecast": (964, 1.0, 0.66, 0.74),
    "transpose": (877, 1.0, 0.73, 0.62),
    "permute": (1999, 1.0, 0.96, 0.97),
    "rope": (862, 1.0, 0.91, 0.96),
    "topk": (565, 1.0, 0.67, 0.97),
    "kv_cache": (531, 0.98, 0.58, 0.84),
    # No compute kernel.
    "slice": (897, 1.0, 0.72, None),
    "concat": (1008, 1.0, 0.88, None),
    "reshape": (919, 1.0, 0.99, None),
    "copy": (861, 1.0, 0.91, None),
    "heads": (893, 1.0, 0.99, None),
    "reshard": (617, 0.74, 1.0, None),
    "interleaved_to_sharded": (559, 1.0, 0.99, None),
    "sharded_to_interleaved": (644, 1.0, 0.08, None),
    "gather_scatter": (541, 1.0, 0.95, None),
}
# A core's mean of the kernel's time, of 54 rows.
_CORE_MEAN = 0.95
# ttnn's own where an op takes no compute config: HiFi4 in 1,073 of 1,073 measured rows that say.
_OWN_FIDELITY = dict.fromkeys(("binary", "unary", "ternary", "typecast", "tilize"), "HiFi4")


def firmware_ns(family: str) -> int:
    """Firmware before and after the kernel."""
    return _ZONES.get(family, _ZONES[""])[0]


_ARCH = "DEVICE ARCH"


@dataclass(frozen=True, slots=True)
class Style:
    """Which names a file uses: the seed's, or those of current tt-metal.

    The seed's columns do not name the chip; ``chip_last`` adds that column after them.
    """

    newer: bool
    inputs: int
    outputs: int
    chip_last: bool = False

    @property
    def columns(self) -> list[str]:
        """The names of the file's columns, in order."""
        suffix = "_PAD[LOGICAL]" if self.newer else ""
        parts = ("W", "Z", "Y", "X")
        tensors = []
        names = [f"INPUT_{i}" for i in range(self.inputs)]
        for name in names + [f"OUTPUT_{i}" for i in range(self.outputs)]:
            tensors += [f"{name}_{part}{suffix}" for part in parts]
            tensors += [f"{name}_{part}" for part in ("LAYOUT", "DATATYPE", "MEMORY")]
        names = []
        for column in columns_of(self.newer):
            names += tensors if column is TENSORS else [column.name]
        return [*names, _ARCH] if self.chip_last and not self.newer else names


def static_cells(
    info: OpInfo, cost: OpCost, style: Style, *, const_eval: bool, metadata: str
) -> dict[str, str]:
    """The cells of one op that do not change between executions."""
    cells = {
        "OP CODE": info.code,
        "OP TYPE": "python_fallback" if info.is_host else "tt_dnn_device",
        "ATTRIBUTES": describe.attributes(info),
        "LOC": describe.location(info),
        "CONST_EVAL_OP": "true" if const_eval else "false",
        "PROGRAM_METADATA": metadata,
    }
    for prefix, tensors, limit in (
        ("INPUT", info.inputs, style.inputs),
        ("OUTPUT", info.outputs, style.outputs),
    ):
        for index, spec in enumerate(tensors[:limit]):
            cells.update(_tensor_cells(f"{prefix}_{index}", spec, style.newer))
    if info.is_host:
        # Report tools take an empty duration for a broken row.
        return {**cells, "DEVICE KERNEL DURATION [ns]": "0"}
    compute, moving = kernel_sources.kernel_sources(info)
    cells |= {
        "DEVICE ID": "0",
        "MATH FIDELITY": info.fidelity or _OWN_FIDELITY.get(info.family, ""),
        "CORE COUNT": str(cost.cores),
        **_device_times(info.family, cost),
        **_model_cells(info, cost),
        "COMPUTE KERNEL SOURCE": kernel_sources.cell(compute),
        "COMPUTE KERNEL HASH": "[]",
        "DATA MOVEMENT KERNEL SOURCE": kernel_sources.cell(moving),
        "DATA MOVEMENT KERNEL HASH": "[]",
        "NOC UTIL (%)": _percent(cost, "noc"),
        "DRAM BW UTIL (%)": _percent(cost, "dram"),
    }
    if info.chip.architecture.reported and (style.newer or style.chip_last):
        cells[_ARCH] = info.chip.arch
    if style.newer:
        cells["AVAILABLE WORKER CORE COUNT"] = str(info.chip.compute_cores)
        cells["PROGRAM HASH"] = str(info.digest)
    return cells


def _tensor_cells(name: str, spec: TensorSpec, newer: bool) -> dict[str, str]:
    padded, logical = describe.dims4(spec.padded_shape), describe.dims4(spec.shape)
    cells = {
        f"{name}_LAYOUT": describe.layout(spec),
        f"{name}_DATATYPE": datatype(spec),
        f"{name}_MEMORY": describe.memory(spec),
    }
    for part, outer, inner in zip("WZYX", padded, logical, strict=True):
        if newer:
            cells[f"{name}_{part}_PAD[LOGICAL]"] = f"{outer}[{inner}]"
        else:
            cells[f"{name}_{part}"] = str(outer)
    return cells


def kernel_ns(cost: OpCost) -> int:
    """An op's time as a CSV holds it, in whole nanoseconds."""
    return max(1, round(cost.kernel_ns))


def _device_times(family: str, cost: OpCost) -> dict[str, str]:
    """The kernel's time, which is fitted to silicon, and what measured rows say of its parts.

    The other zones and the slowest and fastest core are not known of any op and stay empty.
    """
    kernel = kernel_ns(cost)
    firmware, brisc, ncrisc, math = _ZONES.get(family, _ZONES[""])
    times = {
        "DEVICE FW DURATION [ns]": kernel + firmware,
        "DEVICE KERNEL DURATION [ns]": kernel,
        "DEVICE KERNEL DURATION PER CORE AVG [ns]": kernel * _CORE_MEAN,
        "DEVICE BRISC KERNEL DURATION [ns]": kernel * brisc,
        "DEVICE NCRISC KERNEL DURATION [ns]": kernel * ncrisc,
    }
    if math is not None:
        times["DEVICE TRISC1 KERNEL DURATION [ns]"] = kernel * math
    return {name: str(round(value)) for name, value in times.items()}


def _model_cells(info: OpInfo, cost: OpCost) -> dict[str, str]:
    model = info.performance_model
    return {
        "PM IDEAL [ns]": str(model.ideal_ns),
        "PM COMPUTE [ns]": str(model.compute_ns),
        "PM BANDWIDTH [ns]": str(model.bandwidth_ns),
        "PM REQ I BW": _list(model.in_gbps),
        "PM REQ O BW": _list(model.out_gbps),
        "PM FPU UTIL (%)": f"{100 * model.compute_ns / kernel_ns(cost):.3f}",
    }


def _list(values: tuple[float, ...]) -> str:
    return "[" + "; ".join(f"{value:.3f}" for value in values) + "]"


def _percent(cost: OpCost, resource: str) -> str:
    part = cost.utilisation.get(resource)
    return "" if part is None else f"{100 * part:.1f}"
