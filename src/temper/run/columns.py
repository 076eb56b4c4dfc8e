"""The ops CSV's columns and what each shows for an op: the seed's names, and the newer ones.

Values follow the profiler of tt-metal, computed from the cost model's figures. Columns about
kernel binaries stay empty: the virtual chip builds none.
"""

from __future__ import annotations

from dataclasses import dataclass

from temper.cost.records import OpCost
from temper.program import TensorSpec
from temper.program.words import datatype
from temper.run import describe
from temper.run.opinfo import OpInfo

# Firmware before and after the kernel on every core: the seed's example has 628 ns, public
# profiler files have a median of about 560 ns.
FIRMWARE_NS = 560
# From one core's kernel start to the last one's, at most; the seed's example has 585 ns.
START_SKEW_NS = 585

_HEAD = [
    "OP CODE", "OP TYPE", "GLOBAL CALL COUNT", "DEVICE ID", "ATTRIBUTES", "MATH FIDELITY",
    "CORE COUNT", "PARALLELIZATION STRATEGY", "HOST START TS", "HOST END TS",
    "HOST DURATION [ns]", "DEVICE FW START CYCLE", "DEVICE FW END CYCLE", "OP TO OP LATENCY [ns]",
    "OP TO OP LATENCY BR/NRISC START [ns]", "DEVICE FW DURATION [ns]",
    "DEVICE KERNEL DURATION [ns]", "DEVICE KERNEL DURATION DM START [ns]",
    "DEVICE KERNEL DURATION PER CORE MIN [ns]", "DEVICE KERNEL DURATION PER CORE MAX [ns]",
    "DEVICE KERNEL DURATION PER CORE AVG [ns]", "DEVICE KERNEL FIRST TO LAST START [ns]",
    "DEVICE BRISC KERNEL DURATION [ns]", "DEVICE NCRISC KERNEL DURATION [ns]",
    "DEVICE TRISC0 KERNEL DURATION [ns]", "DEVICE TRISC1 KERNEL DURATION [ns]",
    "DEVICE TRISC2 KERNEL DURATION [ns]", "DEVICE ERISC KERNEL DURATION [ns]",
    "DEVICE COMPUTE CB WAIT FRONT [ns]", "DEVICE COMPUTE CB RESERVE BACK [ns]",
    "DISPATCH TOTAL CQ CMD OP TIME [ns]", "DISPATCH GO SEND WAIT TIME [ns]",
]  # fmt: skip
_KERNELS = [
    "METAL TRACE ID", "METAL TRACE REPLAY SESSION ID", "COMPUTE KERNEL SOURCE",
    "COMPUTE KERNEL HASH", "DATA MOVEMENT KERNEL SOURCE", "DATA MOVEMENT KERNEL HASH",
]  # fmt: skip
_SIZES = [
    "BRISC MAX KERNEL SIZE [B]", "NCRISC MAX KERNEL SIZE [B]", "TRISC 0 MAX KERNEL SIZE [B]",
    "TRISC 1 MAX KERNEL SIZE [B]", "TRISC 2 MAX KERNEL SIZE [B]", "ERISC MAX KERNEL SIZE [B]",
]  # fmt: skip
_SIZES_NEW = [
    "PROGRAM HASH", "PROGRAM CACHE HIT", "TENSIX DM 0 MAX KERNEL SIZE [B]",
    "TENSIX DM 1 MAX KERNEL SIZE [B]", "TENSIX COMPUTE 0 MAX KERNEL SIZE [B]",
    "TENSIX COMPUTE 1 MAX KERNEL SIZE [B]", "TENSIX COMPUTE 2 MAX KERNEL SIZE [B]",
    "ACTIVE ETH DM 0 MAX KERNEL SIZE [B]", "ACTIVE ETH DM 1 MAX KERNEL SIZE [B]",
    "IDLE ETH DM 0 MAX KERNEL SIZE [B]", "IDLE ETH DM 1 MAX KERNEL SIZE [B]",
]  # fmt: skip
_MODEL = [
    "PM IDEAL [ns]", "PM COMPUTE [ns]", "PM BANDWIDTH [ns]", "PM REQ I BW", "PM REQ O BW",
    "PM FPU UTIL (%)",
]  # fmt: skip
_UTILISATION = ["NOC UTIL (%)", "DRAM BW UTIL (%)", "NPE CONG IMPACT (%)"]
_UTILISATION_NEW = [
    "NOC UTIL (%)", "MULTICAST NOC UTIL (%)", "DRAM BW UTIL (%)", "DRAM BW UTIL PER CTRL (%)",
    "ETH BW UTIL (%)", "NPE CONG IMPACT (%)",
]  # fmt: skip
_TAIL = ["LOC", "CONST_EVAL_OP", "PROGRAM_METADATA"]

# Filled in for each execution; everything else is the same whenever the op runs.
DYNAMIC = (
    "GLOBAL CALL COUNT", "HOST START TS", "HOST END TS", "HOST DURATION [ns]",
    "DEVICE FW START CYCLE", "DEVICE FW END CYCLE", "OP TO OP LATENCY [ns]",
    "OP TO OP LATENCY BR/NRISC START [ns]",
)  # fmt: skip
# Filled in for each execution of a replayed trace, empty otherwise.
TRACE = ("METAL TRACE ID", "METAL TRACE REPLAY SESSION ID")


@dataclass(frozen=True, slots=True)
class Style:
    """Which names a file uses: the seed's, or those of current tt-metal."""

    newer: bool
    inputs: int
    outputs: int

    @property
    def columns(self) -> list[str]:
        suffix = "_PAD[LOGICAL]" if self.newer else ""
        parts = ("W", "Z", "Y", "X")
        tensors = []
        names = [f"INPUT_{i}" for i in range(self.inputs)]
        for name in names + [f"OUTPUT_{i}" for i in range(self.outputs)]:
            tensors += [f"{name}_{part}{suffix}" for part in parts]
            tensors += [f"{name}_{part}" for part in ("LAYOUT", "DATATYPE", "MEMORY")]
        if not self.newer:
            return [*_HEAD, *tensors, *_KERNELS, *_SIZES, *_MODEL, *_UTILISATION, *_TAIL]
        head = list(_HEAD)
        head.insert(head.index("ATTRIBUTES"), "DEVICE ARCH")
        head.insert(head.index("PARALLELIZATION STRATEGY"), "AVAILABLE WORKER CORE COUNT")
        return [*head, *tensors, *_KERNELS, *_SIZES_NEW, *_MODEL, *_UTILISATION_NEW, *_TAIL]


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
    cells |= {
        "DEVICE ID": "0",
        "MATH FIDELITY": info.fidelity,
        "CORE COUNT": str(cost.cores),
        **_device_times(cost),
        **_model_cells(info, cost),
        "COMPUTE KERNEL SOURCE": "[]",
        "COMPUTE KERNEL HASH": "[]",
        "DATA MOVEMENT KERNEL SOURCE": "[]",
        "DATA MOVEMENT KERNEL HASH": "[]",
        "NOC UTIL (%)": _percent(cost, "noc"),
        "DRAM BW UTIL (%)": _percent(cost, "dram"),
    }
    if style.newer:
        if info.chip.architecture.reported:
            cells["DEVICE ARCH"] = info.chip.arch
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
    return max(1, round(cost.kernel_ns))


def _device_times(cost: OpCost) -> dict[str, str]:
    """The kernel's time shared out over cores and RISCs by what bounds it.

    A RISC's zone includes its waiting, so the one that the op waits for spans the kernel; the
    others follow their part of the work. Only the kernel duration itself is fitted to silicon.
    """
    kernel = kernel_ns(cost)
    skew = min(START_SKEW_NS, kernel // 10)
    core_max = kernel - skew // 2
    core_min = max(1, kernel - 2 * skew if cost.cores > 1 else core_max)
    math_part = min(1.0, max(cost.utilisation.get("compute", 0.0), 0.1))
    if cost.bound in ("compute", "sfpu"):
        math_part = 0.95
    span = core_max
    times = {
        "DEVICE FW DURATION [ns]": kernel + FIRMWARE_NS,
        "DEVICE KERNEL DURATION [ns]": kernel,
        "DEVICE KERNEL DURATION DM START [ns]": kernel - skew // 2,
        "DEVICE KERNEL DURATION PER CORE MIN [ns]": core_min,
        "DEVICE KERNEL DURATION PER CORE MAX [ns]": core_max,
        "DEVICE KERNEL DURATION PER CORE AVG [ns]": (core_min + core_max) // 2,
        "DEVICE KERNEL FIRST TO LAST START [ns]": skew,
        "DEVICE BRISC KERNEL DURATION [ns]": span,
        "DEVICE NCRISC KERNEL DURATION [ns]": int(span * (0.9 if cost.bound == "dram" else 0.7)),
        "DEVICE TRISC0 KERNEL DURATION [ns]": int(span * max(0.7, math_part)),
        "DEVICE TRISC1 KERNEL DURATION [ns]": int(span * max(0.75, math_part)),
        "DEVICE TRISC2 KERNEL DURATION [ns]": int(span * 0.95),
    }
    return {name: str(max(0, value)) for name, value in times.items()}


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
