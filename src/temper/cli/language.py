"""``--llm`` of bench, fit, explain and tune: tokens per second, what fits, what pays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from temper.cli.output import console, emit_json, table
from temper.errors import UsageError
from temper.units import bytes_text, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from temper.tuning.language import Band
    from temper.tuning.language_accuracy import LanguageAccuracy, LanguageFloor

# What a decode step is run with unless somebody says otherwise.
DEFAULTS = {
    "experimental_weight_dtype": "bfp_bf8",
    "experimental_kv_cache_dtype": "bfp_bf8",
    "enable_trace": True,
}


def numbers(name: str, text: str) -> list[int]:
    """``1,8,32`` as numbers; an error names the option."""
    if not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", text):
        raise UsageError(f"{name} takes whole numbers with commas", given=text, try_=["1,8,32"])
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise UsageError(f"{name} takes numbers of at least 1", given=text)
    return found


def bench_language(
    model: str, options: dict[str, Any], users: str, contexts: str, prompt: int, as_json: bool
) -> None:
    """Prints one line for each batch and context."""
    from temper.tuning.language import LanguageCosts

    counts, lengths = numbers("--users", users), numbers("--context", contexts)
    with console(stderr=True).status("reading the config") as status:
        costs = LanguageCosts(model, {**DEFAULTS, **options})
        found = [
            costs.times(count, length, prompt, room=max(lengths), progress=status.update)
            for count in counts
            for length in lengths
        ]
    if as_json:
        emit_json({"model": model, "options": _told(costs.options), "times": found})
        return
    rows = [
        (
            t.users,
            t.context,
            time_text(t.first_token_ns.value),
            time_text(t.step_ns.value),
            _banded(t.tokens_per_user),
            _banded(t.tokens),
            f"{t.roofline_share:.0%}",
            "" if t.fits else "does not fit",
        )
        for t in found
    ]
    columns = ("users", "context", "first token", "step", "tokens/s per user", "tokens/s in all",
               "of DRAM roofline", "")  # fmt: skip
    out = console()
    title = f"{model} on {found[0].chip}, modelled; a prompt of {prompt} tokens"
    out.print(table(title, columns, rows, right=columns))
    last = found[-1]
    out.print(
        f"a step reads {bytes_text(last.read_bytes)} (users: {last.users}, context: "
        f"{last.context}): {time_text(last.roofline_ns)} at the DRAM's peak"
    )
    made_for = getattr(costs.config, "max_position_embeddings", None) or max(lengths)
    if max(lengths) > made_for:
        out.print(f"the model was made for {made_for} positions; longer contexts are costed alike")
    slow = sorted(last.layer, key=lambda op: -op.time_ns)[:6]
    ops = [(op.kind, op.module, time_text(op.time_ns), op.bound) for op in slow]
    out.print(table("the longest ops of a layer", ("op", "module", "time", "bound"), ops,
                    right=("time",)))  # fmt: skip
    told = ", ".join(f"{k}={v}" for k, v in _told(costs.options).items())
    out.print(f"modelled with {told}", style="dim")
    if not all(t.fits for t in found):
        out.print(f"longest contexts: temper fit --llm {model} --chip {found[0].chip}")
    if any(t.extrapolated for t in found):
        out.print("some ops are extrapolated: no measured rows near them", style="dim")


def fit_language(model: str, options: dict[str, Any], users: str, as_json: bool) -> None:
    """Prints the longest context that fits for each number of users, by format."""
    from temper.tuning.language import LanguageCosts

    counts = numbers("--users", users)
    fits: list[dict[str, Any]] = []
    with console(stderr=True).status("compiling") as status:
        for weights, cache in (("bfp_bf8", "bfp_bf8"), ("bfp_bf8", ""), ("", "")):
            costs = LanguageCosts(
                model,
                {
                    "experimental_weight_dtype": weights,
                    "experimental_kv_cache_dtype": cache,
                    "enable_trace": True,
                    **options,
                },
            )
            for count in counts:
                status.update(f"weights {weights or 'bf16'}, cache {cache or 'bf16'}, {count}")
                fits.append(
                    {
                        "weights": str(costs.options["experimental_weight_dtype"] or "bfloat16"),
                        "cache": str(costs.options["experimental_kv_cache_dtype"] or "bfloat16"),
                        "users": count,
                        "context": costs.longest(count),
                    }
                )
    if as_json:
        emit_json({"model": model, "chip": costs.chip.name, "fits": fits})
        return
    rows = [
        (f["weights"], f["cache"], f["users"], f["context"] or "weights alone do not fit")
        for f in fits
    ]
    columns = ("weights", "cache", "users", "longest context")
    out = console()
    out.print(table(f"{model} on {costs.chip.name}", columns, rows, right=columns[2:]))
    out.print("bytes: modelled by the allocator; nothing was run", style="dim")


def explain_language(
    model: str,
    options: dict[str, Any],
    users: int,
    context: int,
    accuracy: bool,
    as_json: bool,
) -> None:
    """Prints the ladder of a decode step: what each choice brings and costs in accuracy."""
    from temper.tuning.language_accuracy import LanguageSample
    from temper.tuning.language_ladder import ladder

    with console(stderr=True).status("compiling") as status:
        sample, why = None, "not asked for"
        if accuracy:
            try:
                sample = LanguageSample(model)
            except UsageError as error:
                why = str(error).splitlines()[0]
        rungs = ladder(model, options, users, context, status.update, sample)
    if as_json:
        emit_json({"model": model, "users": users, "context": context, "rungs": rungs,
                   "eager_bfloat16": sample.eager if sample else None})  # fmt: skip
        return
    rows = [
        (
            rung.name,
            time_text(rung.times.step_ns.value),
            _banded(rung.times.tokens_per_user),
            f"{rung.gain:.2f}x" if rung.gain else "",
            f"{rung.times.roofline_share:.0%}",
            rung.accuracy.text if rung.accuracy else "",
        )
        for rung in rungs
    ]
    columns = ("rung", "step", "tokens/s per user", "gain", "of DRAM roofline",
               "perplexity, top-1")  # fmt: skip
    where = f"{rungs[0].times.chip}, {users} users, context {context}"
    out = console()
    out.print(table(f"decode of {model} on {where}, modelled", columns, rows, right=columns[1:]))
    _tell_accuracy(out, sample.eager if sample else None, why)


def tune_language_command(
    model: str,
    options: dict[str, Any],
    users: int,
    context: int,
    floor: LanguageFloor,
    as_json: bool,
) -> None:
    """Prints the fastest setting that keeps the floor, and those that were faster and do not."""
    from temper.tuning.language_tune import tune_language

    with console(stderr=True).status("loading") as status:
        tuned = tune_language(model, options, users, context, floor, status.update)
    if as_json:
        emit_json({"model": model, "users": users, "context": context, "tuned": tuned})
        return
    rows = [
        (
            trial.name,
            time_text(trial.times.step_ns.value),
            _banded(trial.times.tokens_per_user),
            trial.accuracy.text if trial.accuracy else "not run",
            "best"
            if trial is tuned.best
            else ""
            if trial.kept or trial.accuracy is None
            else "below the floor",
        )
        for trial in tuned.trials
    ]
    columns = ("setting", "step", "tokens/s per user", "perplexity, top-1", "")
    where = f"{tuned.best.times.chip}, {users} users, context {context}"
    out = console()
    out.print(table(f"decode of {model} on {where}", columns, rows, right=columns[1:3]))
    pairs = ", ".join(f"{k!r}: {v!r}" for k, v in tuned.best.options.items())
    out.print(f"floor: {floor.text}")
    out.print(f'torch.compile(model, backend="tt", options={{{pairs}}})', markup=False)
    _tell_accuracy(out, tuned.eager, "")


def _tell_accuracy(out: Console, eager: LanguageAccuracy | None, why: str) -> None:
    if eager is None:
        out.print(f"times: modelled; accuracy: {why}", style="dim", markup=False)
        return
    out.print(
        f"times: modelled; accuracy: measured on {eager.tokens} tokens of the model's own text "
        "against float32, sums as on the chip: perplexity over float32's, and the share of places "
        f"with the same likeliest token. Eager bfloat16 has {eager.text}",
        style="dim",
        markup=False,
    )


def _banded(band: Band) -> str:
    return f"{band.value:.3g} ({band.low:.3g} to {band.high:.3g})"


def _told(options: Any) -> dict[str, Any]:
    names = ("chip", "optimization_level", *DEFAULTS)
    return {name: options[name] for name in names}
