"""``temper bench``: measure a model honestly, against itself, a baseline or a range."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from temper import chips
from temper.cli.bench_modelled import show_micro, show_workload
from temper.cli.language import bench_language
from temper.cli.model import compile_options, target_option
from temper.cli.output import console, emit_json, json_option
from temper.cli.progress import terminable
from temper.cli.values import Number, Share, Whole, kept_chip, named_values
from temper.errors import TemperError, UsageError
from temper.files import check_writable
from temper.tuning.expected import parse


@click.command(
    epilog="Examples: 'temper bench model.py:make', "
    "'temper bench model.py:make -O enable_trace=true --save base.json', "
    "'temper bench model.py:make --against base.json --gate 5%', "
    "'temper bench model.py:make --versus enable_trace=true', "
    "'temper bench --lint script.py', 'temper bench --llm ./llama-3.2-1b --users 1,32', "
    "'temper bench --workload stateless --chip e75', 'temper bench --micro matmul --chip p150'"
)
@click.argument("model", required=False)
@compile_options
@target_option
@click.option("--trials", default=10, show_default=True, type=Whole(2), help="Timed trials.")
@click.option("--iterations", type=Whole(1), help="Calls a trial (default: by time).")
@click.option(
    "--seconds", default=20.0, show_default=True, type=Number(above=0), help="Time to stay within."
)
@click.option(
    "--expect",
    "expects",
    multiple=True,
    metavar="RANGE",
    help="stateless, stateful (the guide's), or LOW:HIGH[GB/s|samples/s|ms].",
)
@click.option("--save", "save_to", type=click.Path(path_type=Path), help="Keep as a baseline.")
@click.option("--against", type=click.Path(path_type=Path), help="Compare with a baseline.")
@click.option(
    "--gate",
    "share",
    default="5%",
    show_default=True,
    type=Share(),
    help="Slower than the baseline by more exits with 1.",
)
@click.option(
    "--versus",
    multiple=True,
    metavar="NAME=VALUE",
    help="A second setting, measured side by side; repeat for several options.",
)
@click.option(
    "--lint",
    "script",
    type=click.Path(path_type=Path),
    metavar="SCRIPT",
    help="Read a benchmark script for mistakes; nothing is run.",
)
@click.option(
    "--llm",
    metavar="MODEL",
    help="A language model: a folder with config.json, or file.py:callable.",
)
@click.option("--users", default="1,32", show_default=True, help="Batches, with --llm.")
@click.option("--context", default="1024", show_default=True, help="Context lengths, with --llm.")
@click.option("--prompt", default=128, show_default=True, type=Whole(1), help="With --llm.")
@click.option("--workload", help="The guide's stateless or stateful workload, modelled.")
@click.option("--micro", help="dram_read, matmul, eltwise or pcie, modelled.")
@json_option
def command(
    model: str | None,
    options: dict[str, Any],
    batch: int | None,
    trials: int,
    iterations: int | None,
    seconds: float,
    expects: tuple[str, ...],
    save_to: Path | None,
    against: Path | None,
    share: float,
    versus: tuple[str, ...],
    script: Path | None,
    llm: str | None,
    users: str,
    context: str,
    prompt: int,
    workload: str | None,
    micro: str | None,
    as_json: bool,
) -> None:
    """Measure MODEL (file.py:callable): wall time of this host and modelled time of the chip."""
    if script is not None:
        _lint(script, as_json)
        return
    if llm is not None:
        bench_language(llm, options, users, context, prompt, as_json)
        return
    if workload is not None or micro is not None:
        if workload is not None:
            show_workload(workload, str(options.get("chip") or kept_chip("e75")), as_json)
        else:
            show_micro(str(micro), str(options.get("chip") or kept_chip()), as_json)
        return
    if not model:
        raise UsageError("temper bench needs a model", try_=["model.py:make", "--lint script.py"])
    from temper.tuning import baseline
    from temper.tuning.bench import bench_all
    from temper.tuning.bench_json import as_json as document
    from temper.tuning.statistics import compare
    from temper.tuning.subject import subject

    base = baseline.read(against) if against else None
    if save_to:
        check_writable(save_to.parent)
    chip = chips.get(str(options.get("chip") or kept_chip())).name
    ranges = [parse(text, chip) for text in expects]
    subjects = [subject(model, options=options, batch=batch)]
    if versus:
        subjects.append(
            subject(model, options={**options, **named_values("--versus", versus)}, batch=batch)
        )
    with terminable(), console(stderr=True).status("loading") as status:
        results = bench_all(subjects, trials, iterations, seconds, ranges, progress=status.update)
    first = results[0]
    verdicts = baseline.against(first, base, share) if base else []
    refused = any(r.refused for r in results) and (bool(versus) or bool(base))
    if save_to and not first.refused and not first.interrupted:
        baseline.save(first, save_to, model)
    calls = [[v for t in r.samples_ns for v in t] for r in results]
    compared = compare(calls[0], calls[1]) if versus else None
    if as_json:
        whole = document(first, model)
        whole["temper"]["against"] = [v.as_dict() for v in verdicts]
        if compared:
            whole["temper"]["versus"] = {
                "result": document(results[1], model)["temper"],
                "measured": None if refused else compared.as_dict(),
                "refused": refused,
            }
        emit_json(whole)
    else:
        from temper.tuning.bench_text import show, show_verdicts, show_versus

        out = console()
        for result in results:
            show(out, result, model)
        if compared:
            show_versus(out, results[0], results[1], compared, refused)
        show_verdicts(out, verdicts, share)
        if save_to and not first.refused and not first.interrupted:
            out.print(f"baseline: {save_to}; next: temper bench {model} --against {save_to}")
    if save_to and first.refused:
        raise TemperError(
            "a measurement that the lint refuses cannot become a baseline",
            found=next(f.text for f in first.findings if f.refuse),
            try_=["a quieter host", "more --iterations"],
        )
    if first.interrupted:
        click.echo(f"temper: interrupted after {first.wall.trials} of {trials} trials", err=True)
        sys.exit(130)
    bad = {"ms": "above"}
    outside = any(judgement == bad.get(e.unit, "below") for e, judgement in first.expected)
    if refused or outside or any(v.failed for v in verdicts):
        sys.exit(1)


def _lint(script: Path, as_json: bool) -> None:
    from temper.tuning.lint_script import lint_script

    found = lint_script(script)
    if as_json:
        emit_json({"script": str(script), "findings": found})
    else:
        out = console()
        for finding in found:
            word = "refuse" if finding.refuse else "warn"
            out.print(f"{script}:{finding.line}: {word}: {finding.text}", markup=False)
        if not found:
            out.print(f"{script}: nothing found")
    if found:
        sys.exit(1)
