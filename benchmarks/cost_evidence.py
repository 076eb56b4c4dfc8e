"""Refresh the evidence tables of docs/cost.md from the constants in force.

python benchmarks/cost_evidence.py
"""

from __future__ import annotations

from pathlib import Path

from temper.cost import evidence

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cost.md"
BEGIN, END = "<!-- evidence -->", "<!-- end of evidence -->"
ARCHES = {"wormhole_b0": "Wormhole", "blackhole": "Blackhole", "grayskull": "Grayskull"}
HEAD = "| family | rows | median % | p90 % | bias % | rank corr. | in band % | repeats % |"


def figure(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def tables() -> str:
    whole = evidence.summary()
    held, fitted, noise = whole["held_out"], whole["in_fit"], whole["noise"]
    lines = [
        f"Fit of {whole['date']}: {whole['rows']} rows of {len(whole['sources'])} sources. On "
        f"sources left out: median error {held['median_ape']}%, worst tenth {held['p90_ape']}%, "
        f"bias {held['bias']:+}%. On the rows of the fit itself: {fitted['median_ape']}% and "
        f"{fitted['p90_ape']}%. Repeats of one configuration differ by {noise['median']}% "
        f"(median), {noise['p90']}% (worst tenth).",
    ]
    for arch, title in ARCHES.items():
        lines += ["", f"### {title}", "", HEAD, "|" + "---|" * 8]
        for e in evidence.table(arch):
            inside = None if e.in_band is None else e.in_band * 100
            cells = [
                e.family, str(e.rows), figure(e.median_ape, 1), figure(e.p90_ape), figure(e.bias),
                figure(e.spearman, 2), figure(inside), figure(e.noise, 1),
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{after}")


if __name__ == "__main__":
    main()
