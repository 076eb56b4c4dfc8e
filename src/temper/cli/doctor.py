"""``temper doctor``: is this machine ready, and if not, what to do."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from temper import chips
from temper.cli.output import emit_json, json_option
from temper.errors import UsageError
from temper.machine.archive import open_machine

if TYPE_CHECKING:
    from temper.doctor import Examination, Examined

SYMPTOMS = ("low-throughput", "high-latency", "memory-errors")


@click.command(
    epilog="""\b
Examples:
  temper doctor                              check this machine
  temper doctor --fail-on warning            for CI: also exit 1 on a warning
  temper doctor --symptom low-throughput     walk a diagnosis, with measurements
  temper doctor --error "TT_FATAL ..."       explain an error message ('-' reads stdin)
  temper doctor --capture out.tar            record this machine, names and serials removed
  temper doctor --root out.tar               examine a recorded machine
"""
)
@click.option("--root", metavar="DIR|TAR", help="Examine a captured machine instead.")
@click.option("--capture", "capture_to", metavar="FILE", help="Record this machine into a tar.")
@click.option("--symptom", type=click.Choice(SYMPTOMS), help="Walk one diagnosis tree.")
@click.option("--error", "message", metavar="TEXT", help="Explain an error message; '-' is stdin.")
@click.option("--chip", metavar="NAME", help="Chip for --symptom and --error without a card.")
@click.option(
    "--tensor",
    default="10000x128:float32",
    show_default=True,
    metavar="ROWSxCOLS:FORMAT",
    help="Tensor for the arithmetic of --symptom memory-errors.",
)
@click.option(
    "--measure-card", is_flag=True, help="Let --symptom low-throughput time card 0 with ttnn."
)
@click.option(
    "--fail-on",
    type=click.Choice(["problem", "warning"]),
    default="problem",
    show_default=True,
    help="The least grave level that makes the exit code 1.",
)
@click.option("--require-card", is_flag=True, help="A missing card is a problem.")
@click.option("--no-tt-smi", is_flag=True, help="Do not run tt-smi (it may take seconds).")
@click.option("-v", "--verbose", is_flag=True, help="Reasons and sources of every finding.")
@json_option
def command(
    root: str | None,
    capture_to: str | None,
    symptom: str | None,
    message: str | None,
    chip: str | None,
    tensor: str,
    measure_card: bool,
    fail_on: str,
    require_card: bool,
    no_tt_smi: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Check host, driver, card and environment; explain symptoms and errors.

    Reads files as an ordinary user, changes nothing. Exit code 0 when ready, 1 with problems.
    """
    if sum(map(bool, (capture_to, symptom, message is not None))) > 1:
        raise UsageError("--capture, --symptom and --error are separate tasks; give one")
    if message is not None:
        _explain(message, chip, as_json)
        return

    machine = open_machine(root)
    if capture_to:
        from temper.doctor.capture import capture

        count = capture(machine, Path(capture_to))
        click.echo(f"{capture_to}: {count} files, serial numbers and host names removed.")
        click.echo(f"Look through it before sharing; examine: temper doctor --root {capture_to}")
        return
    from temper.doctor.examination import run
    from temper.doctor.registry import Examined

    context = Examined(machine, use_tt_smi=not no_tt_smi, judge_host=symptom is not None)
    if symptom:
        _diagnose(context, symptom, chip, tensor, measure_card, as_json)
        return
    report = run(context)
    if require_card and not report.cards:
        report = _without_card_is_problem(report)
    if as_json:
        emit_json(report.as_dict())
    else:
        from temper.doctor.screen import emit, report_lines, width

        emit(report_lines(report, width(), verbose=verbose))
    sys.exit(report.exit_code(fail_on))


def _without_card_is_problem(report: Examination) -> Examination:
    findings = tuple(
        replace(f, level="problem") if f.check == "card" else f for f in report.findings
    )
    return replace(report, findings=findings)


def _explain(message: str, chip: str | None, as_json: bool) -> None:
    from temper.doctor.explain import MAX_MESSAGE, component, explain

    text = sys.stdin.read(MAX_MESSAGE) if message == "-" else message
    if not text.strip():
        raise UsageError("no message given", try_="temper doctor --error - < log")
    found = explain(text, chips.get(chip or chips.DEFAULT_CHIP))
    if as_json:
        emit_json({"known": bool(found), "explanations": found, "component": component(text)})
    else:
        from temper.doctor.screen import emit, explanation_lines, width

        emit(explanation_lines(found, component(text), width()))
    sys.exit(0 if found else 1)


def _diagnose(
    context: Examined,
    symptom: str,
    chip: str | None,
    tensor: str,
    measure_card: bool,
    as_json: bool,
) -> None:
    from temper.doctor.diagnosis import diagnose

    known = next((card.chip for card in context.cards if card.chip), None)
    target = chips.get(chip) if chip else known or chips.get(chips.DEFAULT_CHIP)
    result = diagnose(context, symptom, target, _tensor(tensor), measure_card=measure_card)
    if as_json:
        emit_json(result.as_dict())
    else:
        from temper.doctor.screen import diagnosis_lines, emit, width

        emit(diagnosis_lines(result, width()))


def _tensor(text: str) -> tuple[int, int, str]:
    import re

    from temper.doctor.symptoms import FORMATS

    match = re.fullmatch(r"(\d{1,12})x(\d{1,12})(?::(\w+))?", text.strip())
    fmt = (match.group(3) or "float32") if match else ""
    if match is None or fmt not in FORMATS or not int(match.group(1)) or not int(match.group(2)):
        raise UsageError(
            f"--tensor {text!r} is not ROWSxCOLS:FORMAT",
            try_="10000x128:float32",
            allowed=" ".join(FORMATS),
        )
    return int(match.group(1)), int(match.group(2)), fmt
