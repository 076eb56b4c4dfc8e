"""Refresh the evidence tables of docs/cost.md from the constants in force.

python benchmarks/cost_evidence.py
"""

from __future__ import annotations

from pathlib import Path

from temper.cost import evidence

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cost.md"
BEGIN, END = "<!-- evidence -->", "<!-- end of evidence -->"
ARCHES = {"wormhole_b0": "Wormhole", "blackhole": "Blackhole", "grayskull": "Grayskull"}
HEAD = (
    "| family | rows | sources | unseen median % | p90 % | by source median % | p90 % | "
    "seen median % | p90 % | bias % | rank corr. | in band % | repeats % |"
)


def figure(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def tables() -> str:
    whole = evidence.summary()
    held, fitted, noise = whole["held_out"], whole["in_fit"], whole["noise"]
    fair, inside = whole["balanced"], whole["in_band"]
    lines = [
        f"Fit of {whole['date']}: {whole['rows']} rows of {len(whole['sources'])} sources. On "
        f"unseen sources (left out of the fit): median error {held['median_ape']}%, worst tenth "
        f"{held['p90_ape']}%, bias {held['bias']:+}%; with every source weighing the same "
        f"{fair['median_ape']}% and {fair['p90_ape']}%. On seen ones (the rows of the fit "
        f"itself): {fitted['median_ape']}% and {fitted['p90_ape']}%. In the band that the other "
        f"sources give: {inside['rows'] * 100:.1f}% of the rows, {inside['sources'] * 100:.1f}% "
        f"of a source's rows on average. Repeats of one configuration differ by "
        f"{noise['median']}% (median), {noise['p90']}% (worst tenth).",
    ]
    for arch, title in ARCHES.items():
        lines += ["", f"### {title}", "", HEAD, "|" + "---|" * 13]
        for e in evidence.table(arch):
            share = None if e.in_band is None else e.in_band * 100
            cells = [
                e.family, str(e.rows), str(e.sources), figure(e.median_ape, 1), figure(e.p90_ape),
                figure(e.balanced_median, 1), figure(e.balanced_p90), figure(e.seen_median, 1),
                figure(e.seen_p90), figure(e.bias), figure(e.spearman, 2), figure(share),
                figure(e.noise, 1),
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
