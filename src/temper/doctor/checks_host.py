"""Kernel, distribution, memory, disk, governor and load of the host."""

from __future__ import annotations

import re

from temper.doctor import versions
from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check

# tt-smi's host screen asks 32 GB; an architecture may ask more. The kernel keeps a few
# percent for itself, so a 32 GB machine shows about 31.
_MEMORY_GB = 32
_MEMORY_TOLERANCE = 0.92
_UBUNTU = ("22.04", "24.04")  # what the vendor tests where no card says otherwise
# Kernel builds, caches and model files; our own figure.
_DISK_FREE_BYTES = 10 * 10**9


@check("kernel", "host")
def kernel(context: Examined) -> Result:
    """The kernel's version against what the driver supports."""
    text = context.machine.text("/proc/sys/kernel/osrelease")
    version = versions.parse(text)
    if version is None:
        return
    if version < versions.KERNEL_MIN:
        yield Finding(
            "kernel", "host", context.level("problem"), f"Linux {text}", expected="5.4 or newer",
            why="tt-kmd does not build on older kernels", fix="update the distribution",
            source="tt-kmd dkms.conf",
        )  # fmt: skip
    else:
        yield Finding("kernel", "host", "ok", f"Linux {text}")


@check("distribution", "host")
def distribution(context: Examined) -> Result:
    """The distribution against those that are tested."""
    text = context.machine.text("/etc/os-release") or ""
    values = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.M))
    if not values:
        return
    name = values.get("PRETTY_NAME") or values.get("NAME") or "unknown"
    asked = {card.architecture.ubuntu for card in context.cards if card.architecture}
    tested = min(asked, default=_UBUNTU)  # the oldest, where cards of several kinds are there
    good = values.get("ID") == "ubuntu" and values.get("VERSION_ID") in tested
    yield Finding(
        "distribution", "host", "ok" if good else "note", name[:80],
        expected="" if good else f"Ubuntu {' or '.join(tested)} is what the vendor tests",
        why="" if good else "others often work, in a container if not directly",
        source="" if good else "tt-smi host screen; Grayskull specification",
    )  # fmt: skip


@check("memory", "host")
def memory(context: Examined) -> Result:
    """Whether the host has memory enough."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", context.machine.text("/proc/meminfo") or "", re.M)
    if not found:
        return
    total_gb = int(found.group(1)) * 1024 / 1e9
    wanted = max([_MEMORY_GB, *(c.architecture.memory_gb for c in context.cards if c.architecture)])
    if total_gb < wanted * _MEMORY_TOLERANCE:
        yield Finding(
            "memory", "host", context.level("warning"), f"{total_gb:.0f} GB of memory",
            expected=f"{wanted} GB", why="weights are prepared in host memory; 1 GiB pages come "
            "off it too", fix="add memory, or compile smaller models",
            source="Grayskull specification" if wanted == 64 else "tt-smi host screen",
        )  # fmt: skip
    else:
        yield Finding("memory", "host", "ok", f"{total_gb:.0f} GB of memory")


@check("disk", "host")
def disk(context: Examined) -> Result:
    """Whether there is room for kernels and models."""
    free = context.machine.facts.disk_free_bytes
    if free is None:
        return
    shown = f"{free / 1e9:.0f} GB free in the home directory"
    if free < _DISK_FREE_BYTES:
        yield Finding(
            "disk", "host", "warning", shown, expected="10 GB",
            why="compiled kernels, caches and profiles fill it; a full disk fails builds oddly",
            fix="free space, or point TT_METAL_CACHE to a larger disk", source="our own figure",
        )  # fmt: skip
    else:
        yield Finding("disk", "host", "ok", shown)


@check("governor", "host")
def governor(context: Examined) -> Result:
    """Whether the governor holds the processor's clock down."""
    base = "/sys/devices/system/cpu/cpu0/cpufreq"
    now = context.machine.text(f"{base}/scaling_governor")
    if not now:
        return
    driver = context.machine.text(f"{base}/scaling_driver") or ""
    # With these drivers "powersave" still scales with load; elsewhere it pins the lowest clock.
    scales = driver in ("intel_pstate", "amd-pstate-epp")
    if now == "powersave" and not scales:
        yield Finding(
            "governor", "host", context.level("warning"), f"CPU governor {now} ({driver})",
            expected="performance", why="each op launched by the host costs microseconds of one "
            "core: a slow clock shows as gaps between ops",
            fix="sudo cpupower frequency-set -g performance", source="sysfs cpufreq",
        )  # fmt: skip
    else:
        hint = "" if now == "performance" else "performance gives steadier benchmarks"
        yield Finding("governor", "host", "ok", f"CPU governor {now}", why=hint)


@check("load", "host")
def load(context: Examined) -> Result:
    """Whether others use the processor."""
    fields = (context.machine.text("/proc/loadavg") or "").split()
    cpus = context.machine.facts.cpus
    try:
        now = float(fields[0].replace(",", "."))
    except (IndexError, ValueError):
        return
    shown = f"load {now:.1f}" + (f" on {cpus} CPUs" if cpus else "")
    if cpus and now > max(1.0, 0.5 * cpus):
        yield Finding(
            "load", "host", context.level("warning"), shown, expected="under half of the CPUs",
            why="other programs slow the host side and spoil measurements",
            fix="close background applications (the guide says so too), then measure",
            source="tuning guide; /proc/loadavg",
        )  # fmt: skip
    else:
        yield Finding("load", "host", "ok", shown)
