"""A measurement for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from temper.tuning.baseline import Verdict
from temper.tuning.bench import Bench
from temper.tuning.statistics import TimesComparison
from temper.units import hanging

if TYPE_CHECKING:
    from rich.console import Console


def show(out: Console, result: Bench, model: str) -> None:
    """Figures of one setting, measured and modelled apart, then the findings."""
    setting = ", ".join(f"{k}={v}" for k, v in result.settings.items() if k != "batch")
    out.print(f"{model}, batch {result.batch}" + (f", {setting}" if setting else ""), style="bold")
    wall = result.wall
    steady = "steady" if result.warmed else "not steady"
    lines = [
        ("measured", "wall time of this host"),
        ("  call", f"{_ms(wall.mean)} ± {_ms(wall.deviation)} ms; 95% interval of the mean "
                   f"{_ms(wall.ci_low)} to {_ms(wall.ci_high)}"),
        ("", f"median {_ms(wall.median)}, p90 {_ms(wall.p90)}, p99 {_ms(wall.p99)} ms; "
             f"{wall.trials} trials, {wall.calls} calls"),
        ("  rate", f"{result.samples_per_s:,.1f} samples/s by the median, "
                   f"{result.gb_per_s:.4g} GB/s ({result.input_bytes:,} B in, "
                   f"{result.output_bytes:,} B out)"),
        ("  first", f"{_ms(result.first_call_ns)} ms with compiling; warm-up "
                    f"{len(result.warmup_ns)} calls, {steady}"),
    ]  # fmt: skip
    model_of = result.modelled
    if model_of:
        lines += [
            ("modelled", f"virtual {result.chip}, band holds 80% of measured rows"
                         + (", some ops extrapolated" if model_of.extrapolated else "")),
            ("  device", f"{_ms(model_of.device_ns)} ms ({_ms(model_of.device_low_ns)} to "
                         f"{_ms(model_of.device_high_ns)})"),
            ("  call", f"{_ms(model_of.call_ns)} ms ({_ms(model_of.call_low_ns)} to "
                       f"{_ms(model_of.call_high_ns)}) with transfers and dispatch"),
            ("  rate", f"{result.modelled_samples_per_s:,.1f} samples/s, "
                       f"{result.modelled_gb_per_s:.4g} GB/s"),
            ("  first", f"{_ms(model_of.first_call_ns)} ms with kernel compiling"),
        ]  # fmt: skip
    for label, text in lines:
        out.print(hanging(f"  {label:<10} {text}", out.width, 13), markup=False)
    clock = "modelled" if model_of else "measured"
    for expected, judgement in result.expected:
        typical = f", typically {expected.typical:g}" if expected.typical else ""
        out.print(
            f"  expected   {expected.low:g} to {expected.high:g} {expected.unit}{typical} "
            f"({expected.name}): {judgement} ({clock})",
            markup=False,
        )
    for finding in result.findings:
        word = "refuse" if finding.refuse else "warn"
        line = hanging(f"  {word:<10} {finding.text}", out.width, 13)
        out.print(line, markup=False, style="yellow")


def show_versus(
    out: Console, first: Bench, second: Bench, compared: TimesComparison, refused: bool
) -> None:
    """The second setting against the first, on both clocks."""
    if first.modelled and second.modelled:
        gain = first.modelled.call_ns / first.batch / (second.modelled.call_ns / second.batch)
        overlap = (
            first.modelled.call_low_ns / first.batch <= second.modelled.call_high_ns / second.batch
            and second.modelled.call_low_ns / second.batch
            <= first.modelled.call_high_ns / first.batch
        )
        bands = "; the bands overlap" if overlap else ""
        out.print(f"second over first, modelled: ×{gain:.3f} samples/s{bands}")
    if refused:
        out.print("second over first, measured: refused, see the findings", style="red")
        return
    scale = second.batch / first.batch
    chance = "significant" if compared.significant else "within chance"
    out.print(
        f"second over first, measured: ×{compared.speedup * scale:.3f} samples/s "
        f"(95% {compared.low * scale:.3f} to {compared.high * scale:.3f}; Mann-Whitney "
        f"p={compared.p_value:.2g}, {chance})"
    )


def show_verdicts(out: Console, verdicts: Sequence[Verdict], share: float) -> None:
    """One line a clock."""
    for verdict in verdicts:
        word = "FAILED" if verdict.failed else "ok"
        note = f"; {verdict.note}" if verdict.note else ""
        out.print(
            f"against the baseline, {verdict.clock}: {_ms(verdict.before_ns)} -> "
            f"{_ms(verdict.after_ns)} ms ({verdict.change:+.1%}, gate {share:.0%}): {word}{note}",
            style="red" if verdict.failed else None,
            markup=False,
        )


def _ms(value_ns: float) -> str:
    value = value_ns / 1e6
    return f"{value:,.1f}" if value >= 100 else f"{value:.4g}"
