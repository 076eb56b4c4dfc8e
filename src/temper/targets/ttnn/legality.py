"""Offers placed programs to the real ttnn: what it accepts, refuses, or makes otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from temper.chips import get
from temper.program import Program
from temper.program.memory_plan import plan as memory_plan
from temper.targets.ttnn.client import checked
from temper.targets.ttnn.codes import device_codes
from temper.targets.ttnn.environment import Environment
from temper.targets.ttnn.plan import CallPlan
from temper.targets.ttnn.target import plan_of, server


@dataclass(frozen=True)
class OpVerdict:
    """What became of one op: accepted, refused, differs (another spec), ops (other device ops)."""

    op: int
    kind: str
    label: str
    source: str
    verdict: str
    message: str = ""


@dataclass(frozen=True)
class Legality:
    """One program before ttnn. Peaks are bytes of a core's SRAM and of all DRAM, ours and its."""

    program: str
    chip: str
    mocked: bool
    verdicts: tuple[OpVerdict, ...]
    sram: tuple[int, int] = (0, 0)
    dram: tuple[int, int] = (0, 0)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(v.verdict for v in self.verdicts))

    @property
    def legal(self) -> bool:
        """Whether nothing was refused and every result is as planned."""
        return not any(v.verdict in ("refused", "differs") for v in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "chip": self.chip,
            "device": "mocked" if self.mocked else "card",
            "legal": self.legal,
            "counts": self.counts,
            "sram_peak_bytes_per_core": {"planned": self.sram[0], "ttnn": self.sram[1]},
            "dram_peak_bytes": {"planned": self.dram[0], "ttnn": self.dram[1]},
            "ops": [
                {f: getattr(v, f) for f in ("op", "kind", "label", "source", "verdict", "message")}
                for v in self.verdicts
            ],
        }


def check(
    program: Program, environment: Environment, options: Any, *, memory: bool = True
) -> Legality:
    """Every op of a placed program offered to ttnn, with zeros for data."""
    plan = plan_of(program, options)
    asked = {"do": "inspect", "plan": plan.to_json(), "memory": memory}
    reply = checked(server(environment).ask(asked)[0])
    found = [
        OpVerdict(-1, "PrepareConvWeight", r["label"], "", "refused", r["message"])
        for r in reply["setup"]
    ]
    found += [_verdict(program, record) for record in reply["steps"]]
    sram, dram = ((0, 0), (0, 0)) if not memory else _peaks(program, plan, reply["steps"])
    return Legality(program.name, program.chip, environment.mocked, tuple(found), sram, dram)


def _verdict(program: Program, record: dict[str, Any]) -> OpVerdict:
    verdict, message = record["verdict"], record.get("message", "")
    if verdict == "accepted":
        planned = [c for i in record["ops"] for c in device_codes(program, program.ops[i])]
        ran = record["device_ops"]
        if planned != ran:
            verdict = "ops"
            message = f"planned {', '.join(planned) or 'none'}; ttnn ran {', '.join(ran) or 'none'}"
    return OpVerdict(
        record["ops"][-1], record["kind"], record["label"], record["source"], verdict, message
    )


def _peaks(
    program: Program, plan: CallPlan, records: list[dict[str, Any]]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Peaks of our memory plan and of ttnn's allocator: tensors and circular buffers."""
    ours = memory_plan(program)
    banks = get(program.chip).dram_banks
    sram = dram = 0
    for record in records:
        if "before" not in record:
            continue
        buffers = record.get("sram_buffers") or 0
        during = record["before"]["sram"] + record.get("peak_sram_new", 0)
        sram = max(sram, during, record["after"]["sram"] + buffers)
        dram = max(dram, record["after"]["dram"])
    timeline = ours.timeline
    return (ours.sram_high_water, sram), (timeline.dram_high_water_bytes * banks, dram * banks)
