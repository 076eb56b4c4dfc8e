"""IOMMU, 1 GiB hugepages and their mount: how the card reaches host memory."""

from __future__ import annotations

import re

from temper.chips import ARCHITECTURES
from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check

PAGES = "/sys/kernel/mm/hugepages"
OVERRIDE = "/opt/tenstorrent/bin/hugepages-override.txt"
MOUNT = "/dev/hugepages-1G"
_WANTED = ", ".join(f"{a.pages_1g} for {a.title}" for a in ARCHITECTURES.values())
_SOURCE = "tt-umd hugepage.cpp; tt-system-tools hugepages-setup.sh"
_GUIDE = (
    "the tuning guide's 'HugePages 16 GB' is well meant, but it sets 2 MiB pages, and the "
    "user-mode driver can only use 1 GiB ones"
)


@check("iommu", "pages")
def iommu_type(context: Examined) -> Result:
    """Whether the IOMMU translates for the card."""
    for card in context.cards:
        if not card.path:
            continue
        kind = context.machine.text(f"{card.path}/iommu_group/type")
        if (kind or "").startswith("DMA"):
            yield Finding(
                "iommu", "pages", "ok", f"IOMMU translates ({kind}): 1 GiB pages are optional",
                why="the card reaches ordinary pinned memory; with 1 GiB pages transfers are a "
                "little faster (Wormhole about 14/13 GB/s write/read against 11.9/9.6)",
                source="tt-umd; tt-metal benchmark goldens", card=card.label,
            )  # fmt: skip
        else:
            shown = f"IOMMU type {kind}" if kind else "no IOMMU group"
            yield Finding(
                "iommu", "pages", "ok", f"{shown}: the card needs 1 GiB hugepages",
                source="tt-umd", card=card.label,
            )  # fmt: skip


def wanted_pages(context: Examined) -> int:
    """Total of 1 GiB pages: the override file's, else one a Grayskull, four a newer card."""
    override = context.machine.number(OVERRIDE)
    if override is not None and override > 0:
        return override
    return sum(c.architecture.pages_1g if c.architecture else 4 for c in context.cards)


@check("hugepages", "pages")
def hugepages(context: Examined) -> Result:
    """Whether there are 1 GiB hugepages enough."""
    machine = context.machine
    wanted = wanted_pages(context)
    large = machine.number(f"{PAGES}/hugepages-1048576kB/nr_hugepages")
    small = machine.number(f"{PAGES}/hugepages-2048kB/nr_hugepages") or 0
    small_note = f"; {small} pages of 2 MiB ({small / 512:.0f} GiB) do not count" if small else ""
    fix = (
        f"scripts/setup_hugepages.sh {wanted or 4} shows what to do, --apply does it; or add "
        f"'hugepagesz=1G hugepages={wanted or 4}' to the kernel command line and reboot"
    )
    if small >= 512:
        fix += "; give the 2 MiB pages back: sudo sysctl vm.nr_hugepages=0"
    if not context.has_card:
        yield Finding(
            "hugepages", "pages", "note",
            f"{large or 0} pages of 1 GiB reserved{small_note}",
            expected=f"once a card is in: {_WANTED}, unless the IOMMU translates",
            why=_GUIDE if small >= 512 else "", source=_SOURCE,
        )  # fmt: skip
        return
    if large is None and not machine.exists(PAGES):
        yield Finding("hugepages", "pages", "note", "hugepage counts are hidden (a container?)")
        return
    seen = f"{large or 0} pages of 1 GiB{small_note}"
    number = len(context.cards)
    cards = "the card" if number == 1 else f"{number} cards"
    expected = f"{wanted} pages of 1 GiB for {cards}"
    guide = f"; {_GUIDE}" if small >= 512 else ""
    if (large or 0) >= wanted:
        extra = small >= 512
        yield Finding(
            "hugepages", "pages", "note" if extra else "ok", seen, expected=expected,
            why=f"the 2 MiB pages lock {small / 512:.0f} GiB for nothing" if extra else "",
            fix="sudo sysctl vm.nr_hugepages=0" if extra else "", source=_SOURCE,
        )  # fmt: skip
    elif context.translating:
        yield Finding(
            "hugepages", "pages", "note", seen, expected=f"optional here; {expected}",
            why=f"the IOMMU translates, so none are needed; transfers gain a little{guide}",
            fix=fix, source=_SOURCE,
        )  # fmt: skip
    elif not large:
        yield Finding(
            "hugepages", "pages", "problem" if context.translating is False else "warning", seen,
            expected=expected,
            why=f"without a translating IOMMU the card cannot reach host memory{guide}",
            fix=fix, source=_SOURCE,
        )  # fmt: skip
    else:
        each = max(1, large // len(context.cards))
        short = large < len(context.cards)
        yield Finding(
            "hugepages", "pages", "problem" if short else "warning", seen, expected=expected,
            why=f"the driver falls back to {each} host channel(s) a card; a program that needs "
            f"more fails{guide}", fix=fix, source=_SOURCE,
        )  # fmt: skip


@check("hugepage-mount", "pages")
def hugepage_mount(context: Examined) -> Result:
    """Whether hugepages are mounted where the driver looks."""
    machine = context.machine
    pages = machine.number(f"{PAGES}/hugepages-1048576kB/nr_hugepages")
    mounts = machine.text("/proc/mounts")
    if not context.has_card or not pages or mounts is None:
        return  # without pages the mount is of no use; the page check has spoken
    places = {}
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[2] == "hugetlbfs":
            places[fields[1]] = fields[3]
    options = places.get(MOUNT)
    if options is not None and re.search(r"(?:^|,)pagesize=(1024M|1G|1048576K)\b", options):
        yield Finding("hugepage-mount", "pages", "ok", f"1 GiB pages mounted at {MOUNT}")
        return
    seen = f"{MOUNT} is not mounted" if options is None else f"{MOUNT} has {options}"
    if options is None and places:
        seen += f" (hugetlbfs only at {', '.join(sorted(places))})"
    yield Finding(
        "hugepage-mount", "pages", "problem" if context.translating is False else "note", seen,
        expected=f"hugetlbfs at {MOUNT} with pagesize=1G",
        why="the user-mode driver looks at that one path only",
        fix="scripts/setup_hugepages.sh --apply writes the systemd mount unit",
        source=_SOURCE,
    )  # fmt: skip
