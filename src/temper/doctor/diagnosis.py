"""The tuning guide's three diagnoses, walked with measurements where there are any."""

from __future__ import annotations

from dataclasses import dataclass

from temper.chips import Chip
from temper.doctor.examination import run
from temper.doctor.registry import Examined
from temper.doctor.steps import Patient, Question
from temper.doctor.symptoms import OTHERWISE, TREES


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All steps, and the suspects among them, gravest first."""

    symptom: str
    chip: str
    steps: tuple[Question, ...]
    otherwise: str

    @property
    def causes(self) -> list[Question]:
        suspects = [step for step in self.steps if step.weight > 0]
        return sorted(suspects, key=lambda step: -step.weight)

    def as_dict(self) -> dict[str, object]:
        return {
            "symptom": self.symptom,
            "chip": self.chip,
            "steps": [step.as_dict() for step in self.steps],
            "causes": [step.as_dict() for step in self.causes],
            "otherwise": self.otherwise,
        }


def diagnose(
    context: Examined,
    symptom: str,
    chip: Chip,
    tensor: tuple[int, int, str],
    *,
    measure_card: bool = False,
) -> Diagnosis:
    """Walk one tree; ``measure_card`` also times the card itself through ttnn."""
    patient = Patient(context, chip, run(context), tensor, measure_card)
    steps = tuple(TREES[symptom](patient))
    return Diagnosis(symptom, chip.name, steps, OTHERWISE[symptom])
