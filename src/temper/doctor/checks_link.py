"""The PCIe link as negotiated, its errors, and which NUMA node the card hangs on."""

from __future__ import annotations

import re

from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check
from temper.machine.cards import Card
from temper.machine.link import generation

# Usable GB/s of one lane after encoding, by generation.
LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
_SOURCE = "sysfs current_link_*; board specification"


@check("pcie", "link")
def pcie_link(context: Examined) -> Result:
    """Speed and width of the link against what card and slot can do."""
    machine = context.machine
    for card in context.cards:
        speed_text = machine.text(f"{card.path}/current_link_speed") if card.path else None
        if speed_text is None:
            continue
        width = machine.number(f"{card.path}/current_link_width")
        now = generation(speed_text)
        if now is None or not width or width > 32:
            yield Finding(
                "pcie", "link", "problem", f"link is down or unreadable ({speed_text[:40]})",
                expected="a trained link", why="the card has dropped off the bus",
                fix="power the machine off fully, reseat the card, check its power plugs; "
                "then look for AER lines in dmesg", source=_SOURCE, card=card.label,
            )  # fmt: skip
            continue
        most = generation(machine.text(f"{card.path}/max_link_speed"))
        yield from _judge(card, now, width, most)


def _judge(card: Card, now: int, width: int, most: int | None) -> Result:
    arch = card.architecture
    wanted = arch.pcie_gen if arch else 4
    shown = f"PCIe Gen{now} x{width}" + (f" (card can Gen{most})" if most else "")
    expected = f"Gen{wanted} x16"
    rate = f"about {LANE_GBPS[now] * width:.0f} GB/s of {LANE_GBPS[wanted] * 16:.0f} GB/s"
    if width < 16:
        yield Finding(
            "pcie", "link", "problem", shown, expected=expected,
            why=f"inputs and outputs cross at {rate}; the width never drops to save power, so "
            "this is the slot, a riser or a bad contact",
            fix="move the card to a slot wired x16 to the processor, check bifurcation in the "
            "BIOS, reseat", source=_SOURCE, card=card.label,
        )  # fmt: skip
    elif now >= wanted:
        yield Finding("pcie", "link", "ok", shown, card=card.label)
    elif arch and now == arch.idle_pcie_gen:
        yield Finding(
            "pcie", "link", "ok", f"{shown}: the idle link saves power",
            why=f"{arch.title} firmware 19.8 and newer drops to Gen{now} while idle; judge it "
            "under load with 'temper monitor'", source="tt-kmd and firmware notes", card=card.label,
        )  # fmt: skip
    elif arch and now == arch.enough_pcie_gen:
        yield Finding(
            "pcie", "link", "note", f"{shown}: the host's slot is Gen{now}", expected=expected,
            why=f"{rate}; tt-metal's own transfers reach 21.5 GB/s, so little is lost",
            source=_SOURCE, card=card.label,
        )  # fmt: skip
    else:
        yield Finding(
            "pcie", "link", "problem" if now <= 2 else "warning", shown, expected=expected,
            why=f"inputs and outputs cross at {rate}",
            fix="set the slot to Auto or the card's generation in the BIOS; try another slot, "
            "no riser; if the host is older, this is its limit", source=_SOURCE, card=card.label,
        )  # fmt: skip


@check("aer", "link")
def aer_errors(context: Examined) -> Result:
    """Errors that the link has counted."""
    for card in context.cards:
        counts = {
            kind: _total(context.machine.text(f"{card.path}/aer_dev_{kind}"))
            for kind in ("fatal", "nonfatal", "correctable")
        }
        known = {kind: count for kind, count in counts.items() if count is not None}
        if not known or not card.path:
            continue
        shown = "PCIe errors since boot: " + ", ".join(f"{n} {kind}" for kind, n in known.items())
        grave = "problem" if known.get("fatal") else "warning" if known.get("nonfatal") else ""
        if not grave and known.get("correctable", 0) >= 100:
            grave = "warning"
        if not grave:
            yield Finding("aer", "link", "ok", shown, card=card.label)
            continue
        yield Finding(
            "aer", "link", grave, shown, expected="none, or a few correctable ones",
            why="errors on the link cost retries and can hang a run",
            fix="reseat the card, avoid risers, force one generation lower as a test; on "
            "Blackhole hosts set AER to 'OS first' in the BIOS",
            source="sysfs aer_dev_*; Blackhole board guide", card=card.label,
        )  # fmt: skip
    yield from _kernel_log(context)


def _kernel_log(context: Examined) -> Result:
    output = context.machine.command("dmesg") if context.has_card else None
    if output is None or output.status != "ok":
        return  # most distributions keep the kernel's log from ordinary users
    bdfs = [card.bdf for card in context.cards if card.bdf]
    lines = [
        line.strip()
        for line in output.text.splitlines()
        if ("AER" in line and any(bdf in line for bdf in bdfs))
        or ("tenstorrent" in line and re.search(r"fail|error|timed? ?out|hang", line, re.I))
    ]
    if lines:
        yield Finding(
            "aer", "link", "warning", f"{len(lines)} kernel warnings about the card, the last: "
            f"{lines[-1][:160]}", expected="none", why="the kernel saw the card misbehave",
            fix="read them all: sudo dmesg | grep -iE 'tenstorrent|AER'", source="dmesg",
        )  # fmt: skip


def _total(text: str | None) -> int | None:
    """The last line of an aer_dev file is the total; older kernels have no such line."""
    numbers = re.findall(r"^(\S+)\s+(\d{1,12})\s*$", text or "", re.M)
    totals = [int(n) for name, n in numbers if name.startswith("TOTAL")]
    if totals:
        return totals[-1]
    return sum(int(n) for _, n in numbers) if numbers else None


@check("numa", "link")
def numa_node(context: Examined) -> Result:
    """Whether the card hangs on the processor that runs the program."""
    machine = context.machine
    nodes = [n for n in machine.listing("/sys/devices/system/node") if re.fullmatch(r"node\d+", n)]
    if len(nodes) < 2:
        return
    for card in context.cards:
        node = machine.number(f"{card.path}/numa_node") if card.path else None
        if node is None:
            continue
        if node < 0:
            yield Finding(
                "numa", "link", "note", f"{len(nodes)} NUMA nodes, the card's is not known",
                expected="a node number", why="the BIOS does not say where the slot hangs",
                fix="try both: numactl --cpunodebind=0 --membind=0 <command>, then 1",
                source="sysfs numa_node", card=card.label,
            )  # fmt: skip
            continue
        here = machine.number(_pages_of(node))
        elsewhere = sum(machine.number(_pages_of(int(n[4:]))) or 0 for n in nodes) - (here or 0)
        if here == 0 and elsewhere > 0 and not context.translating:
            yield Finding(
                "numa", "link", "warning",
                f"card on NUMA node {node}, all {elsewhere} 1 GiB pages on other nodes",
                expected=f"pages on node {node}", why="every transfer then crosses the sockets",
                fix=f"write the page count to {_pages_of(node)} (setup_hugepages.sh --node {node})",
                source="sysfs numa_node", card=card.label,
            )  # fmt: skip
        else:
            yield Finding(
                "numa", "link", "ok", f"card on NUMA node {node} of {len(nodes)}",
                why=f"best run with: numactl --cpunodebind={node} --membind={node}",
                card=card.label,
            )  # fmt: skip


def _pages_of(node: int) -> str:
    base = f"/sys/devices/system/node/node{node}/hugepages"
    return f"{base}/hugepages-1048576kB/nr_hugepages"
