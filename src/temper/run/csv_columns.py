"""The columns of an ops CSV: one row each, which the writer, the reader and the report share."""

from __future__ import annotations

from dataclasses import dataclass

BOTH, SEED, NEWER = "both", "seed", "newer"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: which files have it, when its cells change, and where the op table has it."""

    name: str
    style: str = BOTH  # files that have it: the seed's names, those of current tt-metal, or both
    varies: str = ""  # "call": filled for each execution; "trace": for each replay of a trace
    on_device: bool = True  # of a cell that varies: whether it stays empty for a host op
    number: str = ""  # the op table's number that it is read into, as it stands
    text: str = ""  # the op table's text that it is read into, as it stands
    read: bool = False  # read, and made into something else

    @property
    def wanted(self) -> bool:
        """Whether the reader decodes it."""
        return bool(self.number or self.text or self.read)


# What stands between head and tail: a group of columns for every tensor.
TENSORS = Column("")
_C = Column
COLUMNS: tuple[Column, ...] = (
    _C("OP CODE", text="code"),
    _C("OP TYPE", read=True),
    _C("GLOBAL CALL COUNT", varies="call", on_device=False, number="call"),
    _C("DEVICE ID", number="device"),
    _C("DEVICE ARCH", NEWER, read=True),
    _C("ATTRIBUTES", text="attributes"),
    _C("MATH FIDELITY", text="fidelity"),
    _C("CORE COUNT", number="cores"),
    _C("AVAILABLE WORKER CORE COUNT", NEWER, number="available"),
    _C("PARALLELIZATION STRATEGY"),
    _C("HOST START TS", varies="call", on_device=False, number="start_ns"),
    _C("HOST END TS", varies="call", on_device=False),
    _C("HOST DURATION [ns]", varies="call", on_device=False, number="host_ns"),
    _C("DEVICE FW START CYCLE", varies="call"),
    _C("DEVICE FW END CYCLE", varies="call"),
    _C("OP TO OP LATENCY [ns]", varies="call", number="gap_ns"),
    _C("OP TO OP LATENCY BR/NRISC START [ns]", varies="call"),
    _C("DEVICE FW DURATION [ns]"),
    _C("DEVICE KERNEL DURATION [ns]", number="kernel_ns"),
    _C("DEVICE KERNEL DURATION DM START [ns]"),
    _C("DEVICE KERNEL DURATION PER CORE MIN [ns]"),
    _C("DEVICE KERNEL DURATION PER CORE MAX [ns]"),
    _C("DEVICE KERNEL DURATION PER CORE AVG [ns]"),
    _C("DEVICE KERNEL FIRST TO LAST START [ns]"),
    _C("DEVICE BRISC KERNEL DURATION [ns]"),
    _C("DEVICE NCRISC KERNEL DURATION [ns]"),
    _C("DEVICE TRISC0 KERNEL DURATION [ns]"),
    _C("DEVICE TRISC1 KERNEL DURATION [ns]"),
    _C("DEVICE TRISC2 KERNEL DURATION [ns]"),
    _C("DEVICE ERISC KERNEL DURATION [ns]"),
    _C("DEVICE COMPUTE CB WAIT FRONT [ns]"),
    _C("DEVICE COMPUTE CB RESERVE BACK [ns]"),
    _C("DISPATCH TOTAL CQ CMD OP TIME [ns]"),
    _C("DISPATCH GO SEND WAIT TIME [ns]"),
    TENSORS,
    _C("METAL TRACE ID", varies="trace", read=True),
    _C("METAL TRACE REPLAY SESSION ID", varies="trace"),
    _C("COMPUTE KERNEL SOURCE"),
    _C("COMPUTE KERNEL HASH"),
    _C("DATA MOVEMENT KERNEL SOURCE"),
    _C("DATA MOVEMENT KERNEL HASH"),
    _C("PROGRAM HASH", NEWER),
    _C("PROGRAM CACHE HIT", NEWER),
    _C("BRISC MAX KERNEL SIZE [B]", SEED),
    _C("NCRISC MAX KERNEL SIZE [B]", SEED),
    _C("TRISC 0 MAX KERNEL SIZE [B]", SEED),
    _C("TRISC 1 MAX KERNEL SIZE [B]", SEED),
    _C("TRISC 2 MAX KERNEL SIZE [B]", SEED),
    _C("ERISC MAX KERNEL SIZE [B]", SEED),
    _C("TENSIX DM 0 MAX KERNEL SIZE [B]", NEWER),
    _C("TENSIX DM 1 MAX KERNEL SIZE [B]", NEWER),
    _C("TENSIX COMPUTE 0 MAX KERNEL SIZE [B]", NEWER),
    _C("TENSIX COMPUTE 1 MAX KERNEL SIZE [B]", NEWER),
    _C("TENSIX COMPUTE 2 MAX KERNEL SIZE [B]", NEWER),
    _C("ACTIVE ETH DM 0 MAX KERNEL SIZE [B]", NEWER),
    _C("ACTIVE ETH DM 1 MAX KERNEL SIZE [B]", NEWER),
    _C("IDLE ETH DM 0 MAX KERNEL SIZE [B]", NEWER),
    _C("IDLE ETH DM 1 MAX KERNEL SIZE [B]", NEWER),
    _C("PM IDEAL [ns]", number="pm_ideal_ns"),
    _C("PM COMPUTE [ns]", number="pm_compute_ns"),
    _C("PM BANDWIDTH [ns]", number="pm_bandwidth_ns"),
    _C("PM REQ I BW"),
    _C("PM REQ O BW"),
    _C("PM FPU UTIL (%)"),
    _C("NOC UTIL (%)"),
    _C("MULTICAST NOC UTIL (%)", NEWER),
    _C("DRAM BW UTIL (%)"),
    _C("DRAM BW UTIL PER CTRL (%)", NEWER),
    _C("ETH BW UTIL (%)", NEWER),
    _C("NPE CONG IMPACT (%)"),
    _C("LOC", read=True),
    _C("CONST_EVAL_OP", text="const_eval"),
    _C("PROGRAM_METADATA", read=True),
)


def columns_of(newer: bool) -> list[Column]:
    """The columns of one style of file, with ``TENSORS`` where its tensors stand."""
    return [c for c in COLUMNS if c.style in (BOTH, NEWER if newer else SEED)]


# Filled in for each execution, in this order; everything else is the same whenever the op runs.
DYNAMIC = tuple(c.name for c in COLUMNS if c.varies == "call")
# Filled in for each execution of a replayed trace, empty otherwise.
TRACE = tuple(c.name for c in COLUMNS if c.varies == "trace")
# Cells of a host op that stay empty.
OF_DEVICE = frozenset(c.name for c in COLUMNS if c.varies and c.on_device)
# What the reader decodes, and which of it are numbers in a healthy file.
WANTED = frozenset(c.name for c in COLUMNS if c.wanted)
NUMERIC = frozenset(c.name for c in COLUMNS if c.number)
