"""Micro-benchmarks of the tuning guide: what the model says of DRAM, matmul, eltwise and link.

Each record is modelled; where a measured row lies near, it is named beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from temper import chips
from temper.chips import Chip
from temper.cost import estimate_op
from temper.cost.host import transfer_ns
from temper.errors import UsageError
from temper.program.op import Op
from temper.program.tensor import SRAM, TensorSpec


@dataclass(frozen=True)
class Micro:
    """One case: modelled time with its band, the rate, the board's peak and the nearest row."""

    name: str
    chip: str
    case: str
    time_ns: float
    low_ns: float
    high_ns: float
    rate: float
    unit: str  # GB/s | TFLOP/s
    peak: float
    bound: str
    cores: int
    neighbour: str
    extrapolated: bool

    @property
    def share(self) -> float:
        """Of the board's peak."""
        return self.rate / self.peak if self.peak else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "share": self.share, "source": "modelled"}


def micro(name: str, chip: str = "n150") -> list[Micro]:
    """All cases of one micro-benchmark on one board."""
    if name not in BENCHMARKS:
        raise UsageError(f"no micro-benchmark {name!r}", allowed=sorted(BENCHMARKS))
    return BENCHMARKS[name](chips.get(chip))


def _op(
    name: str, chip: Chip, case: str, op: Op, inputs: list[TensorSpec], output: TensorSpec,
    work: float, unit: str, peak: float,
) -> Micro:  # fmt: skip
    """``work`` is bytes or FLOP; over nanoseconds that is GB/s or GFLOP/s."""
    found = estimate_op(op, inputs, [output], chip, traced=True)
    rate = work / found.kernel_ns / (1e3 if unit == "TFLOP/s" else 1.0)
    return Micro(
        name, chip.name, case, found.kernel_ns, found.low_ns, found.high_ns, rate, unit, peak,
        found.bound, found.cores, found.neighbour, found.extrapolated,
    )  # fmt: skip


def _dram_read(chip: Chip) -> list[Micro]:
    """Interleaved DRAM to SRAM, by size and format."""
    records = []
    for fmt in ("bfloat16", "bfloat8_b", "float32"):
        for rows in (512, 2048, 4096):
            source = TensorSpec((1, 1, rows, 1024), fmt)
            if source.size_bytes > chip.compute_cores * chip.sram_usable_bytes // 2:
                continue
            op = Op("Copy", ("x",), ("y",))
            case = f"{rows} x 1024 {fmt}, {source.size_bytes / 2**20:.1f} MiB"
            records.append(
                _op("dram_read", chip, case, op, [source], source.with_memory(SRAM),
                    source.size_bytes, "GB/s", chip.dram_peak_gbps)
            )  # fmt: skip
    return records


def _matmul(chip: Chip) -> list[Micro]:
    """Square matmuls by size, and one size by fidelity."""
    records = []
    for size, fmt, fidelity in (
        (512, "bfloat16", "HiFi4"), (1024, "bfloat16", "HiFi4"), (2048, "bfloat16", "HiFi4"),
        (4096, "bfloat16", "HiFi4"), (2048, "bfloat16", "HiFi2"), (2048, "bfloat8_b", "HiFi2"),
        (2048, "bfloat8_b", "LoFi"), (2048, "bfloat4_b", "LoFi"),
    ):  # fmt: skip
        spec = TensorSpec((1, 1, size, size), fmt)
        op = Op("Matmul", ("a", "b"), ("y",), {"fidelity": fidelity, "packer_l1_acc": True})
        case = f"{size} x {size} x {size} {fmt} {fidelity}"
        records.append(
            _op("matmul", chip, case, op, [spec, spec], spec, 2.0 * size**3, "TFLOP/s",
                chip.peak_tflops(fidelity))
        )  # fmt: skip
    return records


def _eltwise(chip: Chip) -> list[Micro]:
    """Additions and functions over interleaved DRAM; bytes read and written count."""
    records = []
    spec = TensorSpec((1, 1, 2048, 2048), "bfloat16")
    for case, op, inputs in (
        ("add", Op("BinaryNg", ("a", "b"), ("y",), {"function": "add"}), [spec, spec]),
        ("multiply", Op("BinaryNg", ("a", "b"), ("y",), {"function": "mul"}), [spec, spec]),
        ("relu", Op("Unary", ("x",), ("y",), {"functions": [["relu"]]}), [spec]),
        ("exp", Op("Unary", ("x",), ("y",), {"functions": [["exp"]]}), [spec]),
        ("log", Op("Unary", ("x",), ("y",), {"functions": [["log"]]}), [spec]),
        ("gelu", Op("Unary", ("x",), ("y",), {"functions": [["gelu"]]}), [spec]),
        ("clamp, add, log fused", Op("Unary", ("x",), ("y",), {"functions": [
            ["clamp", 0.0, None], ["add", 1e-7], ["log"]]}), [spec]),
    ):  # fmt: skip
        moved = spec.size_bytes * (len(inputs) + 1)
        records.append(
            _op("eltwise", chip, f"{case}, 2048 x 2048 bfloat16", op, inputs, spec, moved, "GB/s",
                chip.dram_peak_gbps)
        )  # fmt: skip
    return records


def _pcie(chip: Chip) -> list[Micro]:
    """Host memory to DRAM and back, by size, in pages of 2 KiB tiles."""
    # Bytes a lane and direction carries after encoding: 2 GB/s in generation 4, 4 in 5.
    peak = chip.pcie_lanes * {3: 0.985, 4: 1.969, 5: 3.938}[chip.pcie_gen]
    uncertain = bool(
        chip.evidence.get("link_to_device_gbps") and chip.evidence["link_to_device_gbps"].uncertain
    )
    records = []
    for to_device in (True, False):
        for mib in (1, 16, 64):
            spec = TensorSpec((1, 1, 512 * mib, 1024), "bfloat16")
            time_ns = transfer_ns(chip, spec, to_device=to_device)
            way = "to the device" if to_device else "from the device"
            records.append(
                Micro("pcie", chip.name, f"{mib} MiB {way}", time_ns, time_ns, time_ns,
                      spec.size_bytes / time_ns, "GB/s", peak, "link", 0, "", uncertain)
            )  # fmt: skip
    return records


BENCHMARKS: dict[str, Callable[[Chip], list[Micro]]] = {
    "dram_read": _dram_read,
    "matmul": _matmul,
    "eltwise": _eltwise,
    "pcie": _pcie,
}
