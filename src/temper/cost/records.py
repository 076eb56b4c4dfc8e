"""What the cost model says about one operation and about a whole program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

BOUNDS = ("compute", "sfpu", "dram", "noc", "launch", "host")


@dataclass(frozen=True, slots=True)
class OpCost:
    """Modelled time of one operation on the device, in nanoseconds.

    ``low_ns`` and ``high_ns`` hold 80% of measured times in rows of sources that were left out of
    the fit. ``gap_ns`` is the idle time before the kernel starts when the host keeps ahead.
    """

    kernel_ns: float
    low_ns: float
    high_ns: float
    gap_ns: float
    bound: str
    cores: int
    utilisation: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    neighbour: str = ""
    extrapolated: bool = False
    kernel: tuple[str, ...] = ()  # family and kernel variant, whose errors belong together
    least_ns: float = 0.0  # what the peaks of the chip allow


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """Modelled time of one steady call: device, host and their overlap, in nanoseconds."""

    ops: tuple[OpCost, ...]
    device_ns: float
    device_low_ns: float
    device_high_ns: float
    host_ns: float
    transfer_in_ns: float
    transfer_out_ns: float
    call_ns: float
    call_low_ns: float
    call_high_ns: float
    first_call_ns: float

    @property
    def dispatch_ns(self) -> float:
        """Host time to enqueue one call; another name for ``host_ns``."""
        return self.host_ns

    @property
    def extrapolated(self) -> bool:
        return any(op.extrapolated for op in self.ops)


@dataclass(frozen=True, slots=True)
class Context:
    """What is known about a run beyond the op: cores that ran, cores offered, trace replay."""

    cores: int = 0  # 0: as ttnn would choose
    available: int = 0  # 0: the chip's compute grid
    traced: bool | None = None  # None: not known
    measured: bool = False  # a row of a public table: its op may be told in part


@dataclass(frozen=True, slots=True)
class Physics:
    """One op in physical terms: nanoseconds at nominal rates, before the fitted factors.

    Serial terms add up; overlapped terms run at the same time and are joined by a p-norm.
    ``variant`` names the kernel from coarse to fine; factors of the longest known prefix apply.
    """

    family: str
    variant: tuple[str, ...]
    cores: int
    serial: Mapping[str, float]
    overlap: Mapping[str, float]
    size: float = 0.0  # work in elements or FLOP, for the nearest measured neighbour
    matrix_ns: float = 0.0  # the matrix engines' share at their peak
