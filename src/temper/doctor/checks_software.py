"""Python, packages, environment variables, leftover processes and caches."""

from __future__ import annotations

import difflib
import os
import re

from temper.chips import ARCHITECTURES
from temper.doctor import versions
from temper.doctor.environment import KNOWN_VARIABLES, WRONG_VARIABLES
from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check
from temper.machine.machine import LiveMachine
from temper.targets.ttnn.environment import (
    VARIABLE,
    VERSION,
    TtnnError,
    find,
    make_command,
    problems,
)

ARCH_NAMES = tuple(ARCHITECTURES)
PROFILER_PORT = 8086
TRACE_REGION = "TT_RUNTIME_TRACE_REGION_SIZE"


@check("ttnn-worker", "software")
def ttnn_worker(context: Examined) -> Result:
    """The environment that runs programs on a card; looked at where it is meant to be used."""
    live = isinstance(context.machine, LiveMachine)  # not a captured tree of another machine
    if not live or not (context.has_card or os.environ.get(VARIABLE)):
        return
    try:
        environment = find("n150")
        wrong = problems(environment)
    except TtnnError as error:
        wrong = [error.what]
    level = context.level("warning")
    for line in wrong:
        yield Finding("ttnn-worker", "software", level, line, fix=make_command(),
                      why="target='ttnn' needs it", source="docs/card.md")  # fmt: skip
    if not wrong:
        yield Finding("ttnn-worker", "software", "ok", f"ttnn {VERSION} in {environment.python}")


@check("python", "software")
def python_and_packages(context: Examined) -> Result:
    """Versions of Python and of the packages that must fit together."""
    facts = context.machine.facts
    version = versions.parse(facts.python)
    if not facts.known or version is None:
        return
    pythons = " or ".join(versions.show(v) for v in versions.TTNN_PYTHONS)
    has_wheel = version[:2] in versions.TTNN_PYTHONS
    last = next((card.last_stack for card in context.cards if card.last_stack), None)
    installed = ", ".join(f"{name} {number}" for name, number in sorted(facts.packages.items()))
    shown = f"Python {facts.python}" + (f"; {installed}" if installed else "")
    if context.has_card and last is None and not has_wheel and "ttnn" not in facts.packages:
        yield Finding(
            "python", "software", "warning", shown, expected=f"Python {pythons}",
            why="ttnn has no wheel for this Python, so the card cannot be used from here",
            fix="make a virtual environment with one of them: pip install 'tt-temper[ttnn]'",
            source="package index, ttnn 0.81.1",
        )  # fmt: skip
    elif not context.has_card and not has_wheel:
        yield Finding(
            "python", "software", "note", shown,
            expected=f"Python {pythons} for ttnn, once a card is in; the virtual chip needs none",
            source="package index, ttnn 0.81.1",
        )  # fmt: skip
    else:
        yield Finding("python", "software", "ok", shown)
    yield from _torch(facts.packages.get("torch"))
    ttnn = versions.parse(facts.packages.get("ttnn"))
    if ttnn and last is not None and ttnn[:2] > last.ttnn:
        yield Finding(
            "ttnn", "software", "warning", f"ttnn {versions.show(ttnn)}",
            expected="v0.55, built from source", why="later versions dropped Grayskull",
            fix="check out tt-metal v0.55 and build it", source="Grayskull specification",
        )  # fmt: skip
    elif ttnn and last is None and ttnn < versions.TTNN_MIN:
        yield Finding(
            "ttnn", "software", "warning", f"ttnn {versions.show(ttnn)}",
            expected="0.81 or newer", why="temper follows the behaviour of 0.81.1",
            fix="pip install -U ttnn", source="this package",
        )  # fmt: skip
    if context.has_card and last is None and has_wheel and "ttnn" not in facts.packages:
        yield Finding(
            "ttnn", "software", "note", "ttnn is not installed in this environment",
            expected="ttnn, to run on the card", why="without it temper uses the virtual chip",
            fix="pip install 'tt-temper[ttnn]'", source="package index",
        )  # fmt: skip


def _torch(text: str | None) -> Result:
    version = versions.parse(text)
    least, below = versions.TORCH
    if version and not least <= version[:2] < below:
        yield Finding(
            "torch", "software", "warning", f"torch {versions.show(version)}",
            expected=f"{versions.show(least)} or newer, below {versions.show(below)}",
            why="capture and the device build on internals of these versions",
            fix="make a fresh environment: pip install tt-temper", source="this package",
        )  # fmt: skip


@check("tt-smi", "software")
def tt_smi(context: Examined) -> Result:
    """Whether tt-smi is there and answers."""
    if not context.has_card or not context.use_tt_smi:
        return
    output = context.machine.command("tt-smi")
    version = versions.parse(context.machine.facts.packages.get("tt-smi"))
    asking = [
        (card.architecture.tt_smi_recommended, card.architecture.title)
        for card in context.cards
        if card.architecture and card.architecture.tt_smi_recommended
    ]
    wanted, title = max(asking, default=((), ""))
    if output.status == "absent":
        yield Finding(
            "tt-smi", "software", "note", "tt-smi is not installed",
            expected="tt-smi, for DRAM training and resets", fix="pip install tt-smi",
            why="DRAM training is only visible through it", source="tt-smi",
        )  # fmt: skip
    elif output.status == "timeout":
        yield Finding(
            "tt-smi", "software", "warning", "tt-smi -s did not answer within 10 s",
            expected="a snapshot in a few seconds",
            why="it waits for a card that hangs or that another process holds",
            fix="end leftover processes, then tt-smi -r 0", source="tt-smi",
        )  # fmt: skip
    elif not any(card.smi.bus_id for card in context.cards):
        yield Finding(
            "tt-smi", "software", "note",
            f"tt-smi ran ({output.status}), but its output has no device of this machine",
            expected="JSON with device_info", why="very old versions write a file instead; "
            "Grayskull needs tt-smi 2.x or 3.0", fix="update tt-smi to match the card",
            source="tt-smi",
        )  # fmt: skip
    elif wanted and version and version < wanted:
        yield Finding(
            "tt-smi", "software", "warning", f"tt-smi {versions.show(version)}",
            expected=f"{versions.show(wanted)} or newer for {title}",
            why="tt-metal's installation guide asks for it",
            fix="pip install -U tt-smi", source="tt-metal INSTALLING.md",
        )  # fmt: skip
    else:
        yield Finding("tt-smi", "software", "ok", "tt-smi answers")


@check("arch-name", "software")
def arch_name(context: Examined) -> Result:
    """Whether ARCH_NAME fits the card."""
    value = context.machine.facts.environment.get("ARCH_NAME")
    present = sorted({card.arch for card in context.cards if card.arch})
    if value is None:
        dropped = next((card for card in context.cards if card.last_stack), None)
        if dropped is not None and dropped.last_stack and dropped.architecture:
            yield Finding(
                "arch-name", "software", "warning", "ARCH_NAME is not set",
                expected=f"ARCH_NAME={dropped.arch}",
                why=f"tt-metal v{versions.show(dropped.last_stack.ttnn)}, "
                f"{dropped.architecture.title}'s last, builds for the architecture named there",
                fix=f"export ARCH_NAME={dropped.arch}", source="tuning guide",
            )  # fmt: skip
        return
    near = difflib.get_close_matches(value.lower(), ARCH_NAMES, n=1, cutoff=0.4)
    if value not in ARCH_NAMES:
        yield Finding(
            "arch-name", "software", "problem", f"ARCH_NAME={value[:40]}",
            expected=" or ".join(ARCH_NAMES), why="tt-metal does not know this name",
            fix=f"export ARCH_NAME={(present or near or ['wormhole_b0'])[0]}", source="tt-metal",
        )  # fmt: skip
    elif present and value not in present:
        yield Finding(
            "arch-name", "software", "problem", f"ARCH_NAME={value}",
            expected=f"ARCH_NAME={present[0]}, as the card is", why="kernels are built for "
            "another chip than the one plugged in", fix=f"export ARCH_NAME={present[0]}",
            source="tt-metal",
        )  # fmt: skip
    else:
        yield Finding("arch-name", "software", "ok", f"ARCH_NAME={value}")


@check("tt-metal-home", "software")
def tt_metal_home(context: Examined) -> Result:
    """Whether TT_METAL_HOME is a tree of tt-metal."""
    facts = context.machine.facts
    value = facts.environment.get("TT_METAL_HOME")
    if value is None:
        if any(card.last_stack for card in context.cards) and facts.known:
            yield Finding(
                "tt-metal-home", "software", "warning", "TT_METAL_HOME is not set",
                expected="the path of the tt-metal v0.55 checkout",
                why="that version finds its kernels through it",
                fix="export TT_METAL_HOME=$HOME/tt-metal", source="tuning guide",
            )  # fmt: skip
        return  # current wheels bring their own
    if value not in facts.existing_paths:
        yield Finding(
            "tt-metal-home", "software", "problem",
            f"TT_METAL_HOME={value[:80]}: no such directory",
            expected="an existing checkout, or the variable unset with wheels",
            why="tt-metal looks for kernels there", fix="unset TT_METAL_HOME, or correct it",
            source="tt-metal",
        )  # fmt: skip
    else:
        yield Finding("tt-metal-home", "software", "ok", f"TT_METAL_HOME={value[:80]}")


@check("trace-region", "software")
def trace_region(context: Examined) -> Result:
    """Whether the trace region's size is a number that fits."""
    value = context.machine.facts.environment.get(TRACE_REGION)
    if value is None:
        return
    if re.fullmatch(r"\d+", value) and 0 < int(value) < 2**34:
        yield Finding("trace-region", "software", "ok", f"{TRACE_REGION}={value} B")
        return
    yield Finding(
        "trace-region", "software", "problem", f"{TRACE_REGION}={value[:40]}",
        expected="a plain number of bytes, e.g. 10000000",
        why="tt-xla reads an unsigned integer; units such as MB, signs and underscores are not",
        fix=f"export {TRACE_REGION}=10000000", source="tt-xla client_instance.cc",
    )  # fmt: skip


@check("variables", "software")
def misnamed_variables(context: Examined) -> Result:
    """Variables that nothing reads because of their spelling."""
    for name, value in sorted(context.machine.facts.environment.items()):
        if name in WRONG_VARIABLES:
            right, why = WRONG_VARIABLES[name]
        elif name in KNOWN_VARIABLES or not name.startswith(("TT_METAL_", "TT_RUNTIME_")):
            continue
        else:
            near = difflib.get_close_matches(name, KNOWN_VARIABLES, n=1, cutoff=0.88)
            if not near:
                continue  # new versions add names; only likely typing errors are worth a word
            right, why = near[0], "nothing reads this name, it looks like a typing error"
        yield Finding(
            "variables", "software", "warning", f"{name}={value[:40]} has no effect",
            expected=right, why=why, fix=f"unset {name}; export {right}={value[:40] or '1'}",
            source="tt-metal rtoptions.cpp; tt-xla",
        )  # fmt: skip


@check("leftovers", "software")
def leftover_processes(context: Examined) -> Result:
    """Processes of earlier runs that still hold the card."""
    holders = []
    machine = context.machine
    if context.has_card:
        for pid in machine.listing("/proc"):
            if not pid.isdigit() or pid == str(os.getpid()):
                continue
            for number in machine.listing(f"/proc/{pid}/fd"):
                if machine.target(f"/proc/{pid}/fd/{number}").startswith("/dev/tenstorrent/"):
                    holders.append(f"{pid} ({machine.text(f'/proc/{pid}/comm') or '?'})"[:40])
                    break
    if holders:
        yield Finding(
            "leftovers", "software", "warning",
            f"processes hold the card: {', '.join(holders[:8])}",
            expected="none before a run", why="the card serves one program at a time; a dead run's "
            "process blocks the next", fix="end them by their number if they are yours: kill <pid>",
            source="/proc/<pid>/fd (other users' processes are not visible)",
        )  # fmt: skip
    if _listens(context, PROFILER_PORT):
        yield Finding(
            "leftovers", "software", "warning", f"something listens on port {PROFILER_PORT}",
            expected="a free port", why="Tracy's clients answer there; a leftover one makes the "
            "next capture time out (temper's own profiler picks a free port)",
            fix=f"find it: ss -ltnp 'sport = :{PROFILER_PORT}', then end it by its number",
            source="/proc/net/tcp; tt-torch profiling guide",
        )  # fmt: skip


def _listens(context: Examined, port: int) -> bool:
    ending = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (context.machine.text(table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[1].endswith(ending) and fields[3] == "0A":
                return True
    return False


@check("kernel-cache", "software")
def kernel_cache(context: Examined) -> Result:
    """Whether kernels of earlier versions fill the cache."""
    facts = context.machine.facts
    place = facts.environment.get("TT_METAL_CACHE") or f"{facts.home}/.cache"
    builds = context.machine.listing(f"{place}/tt-metal-cache")
    if len(builds) > 3:
        yield Finding(
            "kernel-cache", "software", "note",
            f"{len(builds)} generations of compiled kernels in {place}/tt-metal-cache",
            expected="one is used by the installed version",
            why="the others are stale: they only take space, and a half-written one can confuse",
            fix=f"rm -r {place}/tt-metal-cache (the next first run compiles again)",
            source="tt-metal kernel cache",
        )  # fmt: skip
