"""Questions of a diagnosis: what each is asked of, and how its answer is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from temper.chips import Chip
from temper.doctor.finding import Examination
from temper.doctor.registry import Examined

# How a step knows: read from the kernel, measured here and now, modelled, or arithmetic.
BASES = ("read", "measured", "modelled", "arithmetic")


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a diagnosis and its answer; weight ranks it as a cause (0: no cause)."""

    question: str
    answer: str
    basis: str
    weight: float = 0.0
    cause: str = ""
    next_step: str = ""

    def as_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


Tree = Callable[["Patient"], Iterator[Question]]


@dataclass(frozen=True, slots=True)
class Patient:
    """What a diagnosis looks at."""

    context: Examined
    chip: Chip
    report: Examination
    tensor: tuple[int, int, str]  # rows, columns, format of the tensor for memory-errors
    measure_card: bool = False


def from_check(
    patient: Patient, check: str, question: str, weight: float, missing: str = "nothing to read"
) -> Question:
    """A step that repeats what a check found; a warning weighs half of a problem."""
    found = [f for f in patient.report.findings if f.check == check]
    if not found:
        return Question(question, missing, "read")
    order = ("problem", "warning")
    worst = min(found, key=lambda f: order.index(f.level) if f.level in order else 2)
    factor = {"problem": 1.0, "warning": 0.5}.get(worst.level, 0.0)
    answer = worst.seen + (f"; expected {worst.expected}" if factor and worst.expected else "")
    return Question(question, answer, "read", weight * factor, worst.why or worst.seen, worst.fix)
