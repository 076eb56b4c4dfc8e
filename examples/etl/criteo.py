"""Click logs to features: parse, transform, build vocabularies, write, and reuse them.

    python examples/etl/criteo.py [--rows 100000]

Rates are measured on this host.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from temper.etl import Hex2Int, Logarithm, Modulus, Neg2Zero, Pipeline, VocabGen, VocabMap
from temper.etl.synthetic import write_criteo_like


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for day in (0, 1):
            write_criteo_like(folder / f"day_{day}.tsv", rows, seed=day)

        pipeline = Pipeline(
            [
                Neg2Zero(), Logarithm("log1p"),  # counts
                Hex2Int(), Modulus(100_000),  # categories
                VocabGen(min_count=2, max_size=50_000), VocabMap(),
            ],
            on_error="skip",
        )  # fmt: skip
        stages = " | ".join(" + ".join(op.name for op in stage) for stage in pipeline.stages)
        print(f"stages: {stages}")
        report = pipeline.run(folder / "day_0.tsv", folder / "features")
        print(f"day 0: {report.rows:,} rows, {report.gbps:.2f} GB/s measured, "
              f"{len(report.parts)} part(s)")  # fmt: skip

        # The next day takes the first day's identifiers; what is new is out of vocabulary.
        nextday = Pipeline([Neg2Zero(), Logarithm("log1p"), Hex2Int(), Modulus(100_000),
                            VocabMap()])  # fmt: skip
        nextday.load_vocabularies(folder / "features" / "_vocabulary.arrow")
        count = sum(batch.num_rows for batch in nextday.transform(folder / "day_1.tsv"))
        unseen = sum(nextday.counters.unseen.values())
        print(f"day 1: {count:,} rows, {unseen / count / 26:.1%} of the values unseen before")


if __name__ == "__main__":
    main()
