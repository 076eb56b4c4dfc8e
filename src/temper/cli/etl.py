"""``temper etl``: preprocessing pipelines over files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from temper.cli.output import console, emit_json, json_option, table
from temper.errors import UsageError

if TYPE_CHECKING:
    from temper.etl import Pipeline, Progress, Report


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--output", help="Folder for part files; without it nothing is written.")
@click.option("--pipeline", "pipeline_file", help="Pipeline file (JSON); default: Criteo's usual.")
@click.option("--schema", help="criteo, or a JSON file that names the columns of INPUTS.")
@click.option("--columns", help="Only these columns come out, separated by commas.")
@click.option("--partition-by", metavar="COLUMN", help="A folder for each value: label=1/part-….")
@click.option("--modulus", default=100_000, show_default=True, help="Of the default pipeline.")
@click.option("--format", "kind", default="parquet", show_default=True, help="parquet or arrow.")
@click.option(
    "--compression",
    help="packed (dictionaries and packed bits; parquet's default), none, lz4 (arrow's), zstd, "
    "snappy.",
)
@click.option("--on-error", default="error", show_default=True, help="error, skip or fill.")
@click.option("--delimiter", help="Of text files; default: tab, comma for .csv.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--vocabulary", help="Use saved vocabularies; unseen values are counted.")
@click.option("--save-vocabulary", help="Save the vocabularies to this file.")
@click.option("--rows-per-part", default=1 << 18, show_default=True)
@click.option("--engine", default="local", show_default=True, help="local, or ray (an extra).")
@click.option("--synthesise", type=int, help="First write this many synthetic rows to INPUTS.")
@json_option
def command(
    inputs: tuple[str, ...],
    output: str | None,
    pipeline_file: str | None,
    schema: str | None,
    columns: str | None,
    partition_by: str | None,
    modulus: int,
    kind: str,
    compression: str | None,
    on_error: str,
    delimiter: str | None,
    resume: bool,
    vocabulary: str | None,
    save_vocabulary: str | None,
    rows_per_part: int,
    engine: str,
    synthesise: int | None,
    as_json: bool,
) -> None:
    """Parse, transform and index INPUTS: TSV, CSV, Parquet and Arrow, as files, folders (also with
    key=value folders in them), quoted globs, URLs that fsspec knows, or - for standard input.

    The default pipeline is the usual one for Criteo's logs: Neg2Zero and log1p on counts,
    hexadecimal to integer, modulus, and vocabularies on categories.

    \b
    Examples:
      temper etl day_0.tsv -o features
      temper etl day_0.tsv day_1.tsv.gz -o features --on-error skip --resume
      temper etl day_1.tsv -o test --vocabulary features/_vocabulary.arrow
      temper etl 'logs/*/day_*.parquet' -o features --columns label,I1,C1 --partition-by label
      temper etl s3://bucket/logs -o s3://bucket/features
      temper etl sample.tsv --synthesise 100000 -o features
    """
    from temper.etl import criteo_pipeline, load_pipeline, load_schema

    options: dict[str, Any] = {"on_error": on_error, "rows_per_part": rows_per_part}
    if columns is not None:
        options["columns"] = [name.strip() for name in columns.split(",") if name.strip()]
    if schema is not None:
        options["schema"] = load_schema(schema)
    if pipeline_file:
        pipeline = load_pipeline(pipeline_file, **options)
    else:
        pipeline = criteo_pipeline(modulus, **options)
    if synthesise is not None:
        from temper.etl.synthetic import write_criteo_like

        there = [path for path in inputs if os.path.lexists(path)]
        if there:
            raise UsageError(
                f"--synthesise would overwrite {there[0]}",
                try_=["another name", "without --synthesise, to read it"],
            )
        for seed, path in enumerate(inputs):
            write_criteo_like(path, synthesise, seed=seed)
    if vocabulary:
        pipeline.load_vocabularies(vocabulary)
    report = _run(pipeline, list(inputs), output, engine, resume=resume, delimiter=delimiter,
                  format=kind, compression=compression, partition_by=partition_by)  # fmt: skip
    if save_vocabulary:
        pipeline.save_vocabularies(save_vocabulary)
    if as_json:
        emit_json(report.as_dict())
    else:
        _show(report, output)


def _run(
    pipeline: Pipeline, inputs: list[str], output: str | None, engine: str, **options: Any
) -> Report:
    import tempfile

    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    if engine not in ("local", "ray"):
        raise UsageError(f"no engine {engine!r}", allowed=["local", "ray"])
    if engine == "ray":
        from temper.etl.distributed import run_on_ray

        if output is None:
            raise UsageError("--engine ray needs --output")
        return run_on_ray(pipeline, inputs, output, **options)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("MB, {task.fields[rate]}"))  # fmt: skip
    shown = console(stderr=True)
    with Bar(*columns, console=shown, disable=not shown.is_terminal, transient=True) as bar:
        task = bar.add_task("rows", total=None, rate="")

        def tell(progress: Progress) -> None:
            rate = f"{progress.rows / max(progress.seconds, 1e-9) / 1e6:.2f} million rows/s"
            bar.update(task, description=progress.stage, total=progress.bytes_total // 10**6,
                       completed=progress.bytes_done // 10**6, rate=rate)  # fmt: skip

        if output is not None:
            return pipeline.run(inputs, output, progress=tell, **options)
        with tempfile.TemporaryDirectory() as folder:
            return pipeline.run(inputs, f"{folder}/out", progress=tell, **options)


def _show(report: Report, output: str | None) -> None:
    sizes = list(report.vocabulary_sizes.values())
    size = f"{report.bytes_in / 1e6:,.1f} MB"
    if report.finished_before:
        read = f"nothing to do: an earlier run finished these {size}"
    elif report.gbps is None:
        read = f"{size} in all, what an earlier run had left in {report.seconds:.2f} s"
    else:
        read = f"{size} in {report.seconds:.2f} s, measured: {report.gbps:.2f} GB/s"
    rows: list[tuple[object, object]] = [("rows", f"{report.rows:,}"), ("read", read)]
    if sizes:
        rows.append(("vocabularies", f"{len(sizes)} with {min(sizes):,} to {max(sizes):,} keys"))
    for reason, count in report.malformed.items():
        rows.append(("malformed", f"{count:,} rows: {reason}"))
    if report.unseen:
        rows.append(("unseen", f"{sum(report.unseen.values()):,} values out of vocabulary"))
    if output is not None:
        rows.append(("written", f"{len(report.parts)} part(s) in {output}"))
    out = console()
    out.print(table("", ("", "preprocessing"), rows))
    for example in report.examples:
        out.print(f"  {example}", markup=False)
