"""The same pipeline on a cluster: splits are counted, then mapped, by Ray Data.

Counting keeps each split's keys in order of first appearance; merged in split order they give
exactly the vocabulary of a single process, so the results are the same rows in the same order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from temper.errors import TemperError, UsageError
from temper.etl import kernel, kernel_types, vocabulary
from temper.etl.execute import Counters, Executor, Position, total_bytes
from temper.etl.output import VOCABULARY, Output, fingerprint
from temper.etl.pipeline import Paths, Pipeline, Report
from temper.etl.sources import Source
from temper.etl.vocabulary import Words


@dataclass(frozen=True)
class Split:
    """One part of the input that one task reads: whole files, so that any storage will do."""

    number: int
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Mapped:
    """What one task wrote."""

    parts: list[dict[str, Any]]
    counters: Counters


def splits(sources: Sequence[Source]) -> list[Split]:
    """A split a file; order is what makes results equal to a single process."""
    return [Split(number, (source,)) for number, source in enumerate(sources)]


def count_split(pipeline: Pipeline, split: Split) -> dict[str, Words]:
    """Keys of one split in order of appearance, with counts."""
    plans = [replace(plan, map=None, expand=None) for plan in pipeline.plans if plan.gen]
    every = plans if pipeline.on_error == "error" else pipeline.plans
    live = {
        plan.name: kernel.make_vocabulary(
            plan.key_bound, max(plan.gen.max_tracked if plan.gen else 0, plan.key_bound)
        )
        for plan in plans
    }
    executor = Executor(
        every, pipeline.schema, on_error=pipeline.on_error, vocabularies=live,
        modes=dict.fromkeys(live, kernel_types.COUNT), rows_per_part=pipeline.rows_per_part,
    )  # fmt: skip
    for _, buffers in executor.parts(split.sources):
        executor.release(buffers)
    return {name: vocabulary.snapshot(item, counted=True) for name, item in live.items()}


def merge(found: Sequence[Mapping[str, Words]], pipeline: Pipeline) -> dict[str, Words]:
    """One vocabulary a column from those of the splits, in split order."""
    merged: dict[str, Words] = {}
    for plan in pipeline.plans:
        if plan.gen is None:
            continue
        keys = np.concatenate([item[plan.name].keys for item in found])
        counts = np.concatenate([item[plan.name].counts for item in found])
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        totals = np.bincount(inverse, weights=counts, minlength=len(distinct)).astype(np.int64)
        order = np.argsort(first)
        merged[plan.name] = vocabulary.select(Words(distinct[order], totals[order]), plan.gen)
    return merged


def map_split(pipeline: Pipeline, split: Split, target: Output) -> Mapped:
    """Transforms one split and writes its parts."""
    executor = pipeline._executor(grow=False)
    parts: list[dict[str, Any]] = []
    for part, buffers in executor.parts(split.sources, Position()):
        if part.batch.num_rows or (split.number == 0 and not parts):
            name = f"part-{split.number:05d}-{len(parts):05d}.{target.kind}"
            try:
                target.write_file(name, target.encode(part.batch))
            except OSError as error:
                told = f"cannot write to {target.folder}: {error.strerror or error}"
                raise UsageError(told) from None
            parts.append({"file": name, "rows": part.batch.num_rows})
        executor.release(buffers)
    return Mapped(parts, executor.counters)


def run_on_ray(
    pipeline: Pipeline,
    paths: Paths,
    output: str | os.PathLike[str],
    *,
    format: str = "parquet",
    compression: str | None = None,
    resume: bool = False,
    **options: Any,
) -> Report:
    """``Pipeline.run`` on the Ray cluster that is connected, or on a local one."""
    # A cluster that starts here reports to no one; a setting of the user's stands.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UsageError("Ray is not installed", try_="pip install 'tt-temper[ray]'") from None
    started = time.perf_counter()
    sources = pipeline._open(paths, options)
    if any(source.path == "-" for source in sources):
        raise UsageError("standard input cannot be read by a cluster")
    # Tasks run elsewhere: relative paths would mean other files there.
    sources = [replace(source, path=os.path.abspath(source.path)) for source in sources]
    target = Output(Path(output).absolute(), format, compression)
    with target.alone(), pipeline.unchanged_on_error():
        return _run(ray, pipeline, sources, target, resume, started)


def _run(
    ray: Any, pipeline: Pipeline, sources: Sequence[Source], target: Output, resume: bool,
    started: float,
) -> Report:  # fmt: skip
    # One process cuts its parts elsewhere: neither can continue the other's folder.
    identity = fingerprint([pipeline.fingerprint(target), "a split a file"])
    manifest = target.prepare(identity, [s.fingerprint() for s in sources], resume=resume)
    resumed = manifest.fitted or bool(manifest.splits)
    every = splits(sources)
    if manifest.fitted:
        pipeline.load_vocabularies(target.folder / VOCABULARY)
    elif any(plan.gen for plan in pipeline.plans) and not pipeline.vocabularies:
        counted = dict(_each(ray, every, lambda split: count_split(pipeline, split)))
        pipeline.vocabularies = merge([counted[split.number] for split in every], pipeline)
    if pipeline.vocabularies and not manifest.fitted:
        pipeline.save_vocabularies(target.folder / VOCABULARY)
        manifest.fitted = True
        target.commit(manifest)
    left = [split for split in every if split.number not in manifest.splits]
    for number, done in _each(ray, left, lambda split: map_split(pipeline, split, target)):
        manifest.splits.append(number)
        manifest.parts = sorted([*manifest.parts, *done.parts], key=lambda part: part["file"])
        manifest.counters = _plus(manifest.counters, done.counters)
        target.commit(manifest)
    target.finish(manifest)
    counters = manifest.counters
    return Report(
        counters.rows, total_bytes(sources), time.perf_counter() - started,
        tuple(part["file"] for part in manifest.parts), counters.malformed,
        tuple(counters.examples), counters.unseen,
        {name: len(words) for name, words in pipeline.vocabularies.items()}, resumed,
    )  # fmt: skip


def _each(
    ray: Any, parts: Sequence[Split], task: Callable[[Split], Any]
) -> Iterator[tuple[int, Any]]:
    """Runs the task over all splits with Ray Data; (split number, result) as they finish."""

    if not parts:
        return
    items = ray.data.from_items(list(parts), override_num_blocks=len(parts))
    # Tasks share their node's cores: each takes its part of the cluster, not all it can see.
    share = max(1, int(ray.cluster_resources().get("CPU", 1)) // len(parts))
    threads = os.environ.get("TEMPER_ETL_THREADS") or str(share)

    def run(row: dict[str, Any]) -> dict[str, Any]:
        os.environ["TEMPER_ETL_THREADS"] = threads
        split = row["item"]
        try:
            return {"number": split.number, "result": task(split), "error": None}
        except TemperError as error:
            return {"number": split.number, "result": None, "error": (type(error), error.args)}

    for row in items.map(run).iter_rows():
        if row["error"] is not None:
            kind, args = row["error"]
            raise kind(*args)
        yield row["number"], row["result"]


def _plus(one: Counters, other: Counters) -> Counters:
    return Counters(
        one.rows + other.rows, one.lines + other.lines, _sum(one.malformed, other.malformed),
        [*one.examples, *other.examples][:5], _sum(one.unseen, other.unseen),
    )  # fmt: skip


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
