"""Offers placed programs to the real ttnn: what it accepts, refuses, or makes otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from temper.chips import get
from temper.errors import CompileError
from temper.program import Program
from temper.program.memory_plan import plan as memory_plan
from temper.targets.ttnn.client import checked
from temper.targets.ttnn.codes import device_codes
from temper.targets.ttnn.environment import Environment
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
    """One program before ttnn. Peaks are ours and ttnn's: bytes of a core's SRAM, of all DRAM.

    ``sram`` is tensors with the circular buffers of the op that runs, ``tensors`` what the
    allocator holds of SRAM.
    """

    program: str
    chip: str
    mocked: bool
    verdicts: tuple[OpVerdict, ...]
    sram: tuple[int, int] = (0, 0)
    tensors: tuple[int, int] = (0, 0)
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
            "sram_tensor_peak_bytes_per_core": {
                "planned": self.tensors[0],
                "ttnn": self.tensors[1],
            },
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
    try:
        plan = plan_of(program, options)
    except CompileError as error:  # an op that the table has no call for: nothing can be offered
        none = OpVerdict(-1, "", program.name, "", "refused", error.what)
        return Legality(program.name, program.chip, environment.mocked, (none,))
    asked = {"do": "inspect", "plan": plan.to_json(), "memory": memory}
    reply = checked(server(environment).ask(asked)[0])
    found = [
        OpVerdict(-1, "PrepareConvWeight", r["label"], "", "refused", r["message"])
        for r in reply["setup"]
    ]
    found += [_verdict(program, record) for record in reply["steps"]]
    sram, tensors, dram = _peaks(program, reply) if memory else ((0, 0),) * 3
    return Legality(
        program.name, program.chip, environment.mocked, tuple(found), sram, tensors, dram
    )


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


def _peaks(program: Program, reply: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """Peaks of SRAM, of tensors in it and of DRAM, each by our memory plan and by ttnn.

    A step that was refused is left out; peaks of a whole call come with a program without one.
    """
    ours = memory_plan(program)
    banks = get(program.chip).dram_banks
    whole = {"sram": 0, "dram": 0}
    buffers = 0
    for record in (r for r in reply["steps"] if "during" in r):
        before, during = record["before"], record["during"]
        whole = {where: max(whole[where], before[where] + during[where]) for where in whole}
        used = (before["sram"] + op["sram"] + op["buffers"] for op in during["ops"])
        buffers = max(buffers, *used, before["sram"])
    whole = reply.get("peaks", whole)
    tensors = max((step.sram_tensor_bytes for step in ours.steps), default=0)
    return (
        (ours.sram_high_water, max(buffers, whole["sram"])),
        (tensors, whole["sram"]),
        (ours.timeline.dram_high_water_bytes * banks, whole["dram"] * banks),
    )
