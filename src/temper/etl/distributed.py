"""The same pipeline on a cluster: ranges of the files are counted, then mapped, by Ray.

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
from temper.etl.execute import ChainExecutor, Counters, Position, total_bytes
from temper.etl.inputs import SPLIT_BYTES, check_apart, split_source
from temper.etl.output import VOCABULARY, Output, fingerprint
from temper.etl.pipeline import Paths, Pipeline
from temper.etl.reports import Report
from temper.etl.sources import Input
from temper.etl.vocabulary import Words


@dataclass(frozen=True)
class InputRange:
    """One part of the input that one task reads: a range of bytes or rows of one file."""

    number: int
    sources: tuple[Input, ...]


@dataclass(frozen=True)
class Mapped:
    """What one task wrote."""

    parts: list[dict[str, Any]]
    counters: Counters


def splits(sources: Sequence[Input], split_bytes: int = SPLIT_BYTES) -> list[InputRange]:
    """Ranges of the files in order; order is what makes results equal to a single process."""
    ranges = [part for source in sources for part in split_source(source, split_bytes)]
    return [InputRange(number, (part,)) for number, part in enumerate(ranges)]


def count_split(pipeline: Pipeline, split: InputRange) -> dict[str, Words]:
    """Keys of one split in order of appearance, with counts."""
    plans = [replace(plan, map=None, expand=None) for plan in pipeline.plans if plan.gen]
    every = plans if pipeline.on_error == "error" else pipeline.plans
    live = {
        plan.name: kernel.make_vocabulary(
            plan.key_bound, max(plan.gen.max_tracked if plan.gen else 0, plan.key_bound)
        )
        for plan in plans
    }
    executor = ChainExecutor(
        every, pipeline.schema, on_error=pipeline.on_error, vocabularies=live,
        modes=dict.fromkeys(live, kernel_types.COUNT), rows_per_part=pipeline.rows_per_part,
    )  # fmt: skip
    for _, buffers in executor.parts(split.sources):
        executor.release(buffers)
    return {name: vocabulary.snapshot(item, counted=True) for name, item in live.items()}


def combine(counted: Sequence[Mapping[str, Words]]) -> dict[str, Words]:
    """Keys of neighbouring splits as if one task had counted them: appearance is by split order."""
    made = {}
    for name in dict.fromkeys(name for words in counted for name in words):
        found = [words[name] for words in counted if name in words]
        keys = np.concatenate([item.keys for item in found])
        counts = np.concatenate([item.counts for item in found])
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        totals = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(totals, inverse, counts)
        order = np.argsort(first)
        made[name] = Words(distinct[order], totals[order])
    return made


def select(counted: Mapping[str, Words], pipeline: Pipeline) -> dict[str, Words]:
    """What each VocabGen keeps of all keys."""
    return {
        plan.name: vocabulary.select(counted[plan.name], plan.gen)
        for plan in pipeline.plans
        if plan.gen
    }


def map_split(pipeline: Pipeline, split: InputRange, target: Output) -> Mapped:
    """Transforms one split and writes its parts."""
    executor = pipeline._executor(grow=False)
    parts: list[dict[str, Any]] = []
    written = 0
    for part, buffers in executor.parts(split.sources, Position()):
        if part.batch.num_rows or (split.number == 0 and not parts):
            stem = f"part-{split.number:05d}-{written:05d}"
            try:
                parts += target.write_files(stem, target.encode(part.batch))
            except OSError as error:
                told = f"cannot write to {target.store.place}: {error.strerror or error}"
                raise UsageError(told) from None
            written += 1
        executor.release(buffers)
    return Mapped(parts, executor.counters)


def run_on_ray(
    pipeline: Pipeline,
    paths: Paths,
    output: str | os.PathLike[str],
    *,
    format: str = "parquet",
    compression: str | None = None,
    partition_by: str | None = None,
    resume: bool = False,
    split_bytes: int = SPLIT_BYTES,
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
    if any(source.table is not None for source in sources):
        raise UsageError("a table in memory cannot be read by a cluster", try_="run() here")
    # Tasks run elsewhere: relative paths would mean other files there.
    sources = [
        source if source.remote else replace(source, path=os.path.abspath(source.path))
        for source in sources
    ]
    place = str(output) if "://" in str(output) else str(Path(output).absolute())
    check_apart(sources, place)
    target = Output(place, format, compression, partition_by)
    with target.store.alone(), pipeline.unchanged_on_error():
        return _run(ray, pipeline, sources, target, resume, started, split_bytes)


def _run(
    ray: Any, pipeline: Pipeline, sources: Sequence[Input], target: Output, resume: bool,
    started: float, split_bytes: int,
) -> Report:  # fmt: skip
    every = splits(sources, split_bytes)
    # One process cuts its parts elsewhere: neither can continue the other's folder.
    ranges = [[source.begin, source.end] for split in every for source in split.sources]
    identity = fingerprint([pipeline.fingerprint(target), ranges])
    manifest = target.prepare(identity, [s.fingerprint() for s in sources], resume=resume)
    resumed, finished = manifest.fitted or bool(manifest.splits), manifest.done
    if manifest.fitted:
        pipeline.vocabularies = target.read_vocabularies(VOCABULARY)
    elif any(plan.gen for plan in pipeline.plans) and not pipeline.vocabularies:
        pipeline.vocabularies = select(_counted(ray, pipeline, every), pipeline)
    if pipeline.vocabularies and not manifest.fitted:
        target.write_vocabularies(VOCABULARY, pipeline.vocabularies)
        manifest.fitted = True
        target.commit(manifest)
    left = [split for split in every if split.number not in manifest.splits]
    shared = ray.put(pipeline)
    for number, done in _each(ray, map_split, left, shared, target):
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
        {name: len(words) for name, words in pipeline.vocabularies.items()}, resumed or finished,
        finished,
    )  # fmt: skip


# Of a tree's level: as many sets of keys meet in one task, on whatever node is free.
_FAN_IN = 8


def _counted(ray: Any, pipeline: Pipeline, every: Sequence[InputRange]) -> Mapping[str, Words]:
    """Every split counted, and the keys merged as a tree; only the last set comes back here."""
    shared = ray.put(pipeline)
    count = ray.remote(_guarded(count_split, _threads(ray, len(every))))
    merge = ray.remote(_guarded(_combine_all, "1"))
    level = [count.remote(shared, split) for split in every]
    while len(level) > 1:
        level = [merge.remote(*level[at : at + _FAN_IN]) for at in range(0, len(level), _FAN_IN)]
    found: Mapping[str, Words] = _opened(ray.get(level[0]))
    return found


def _combine_all(*counted: Any) -> Any:
    for item in counted:
        if isinstance(item, _Failed):
            return item
    return combine(counted)


@dataclass(frozen=True)
class _Failed:
    """An error of ours on its way back: Ray would wrap it into one of its own."""

    kind: type[TemperError]
    args: tuple[Any, ...]


def _opened(result: Any) -> Any:
    if isinstance(result, _Failed):
        raise result.kind(*result.args)
    return result


def _guarded(task: Callable[..., Any], threads: str) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        os.environ["TEMPER_ETL_THREADS"] = threads
        try:
            return task(*args)
        except TemperError as error:
            return _Failed(type(error), error.args)

    return run


def _threads(ray: Any, tasks: int) -> str:
    """Tasks share their node's cores: each takes its part of the cluster, not all it can see."""
    share = max(1, int(ray.cluster_resources().get("CPU", 1)) // max(1, tasks))
    return os.environ.get("TEMPER_ETL_THREADS") or str(share)


def _each(
    ray: Any, task: Callable[..., Any], parts: Sequence[InputRange], shared: Any, target: Output
) -> Iterator[tuple[int, Any]]:
    """Runs the task over all splits; (split number, result) as they finish."""
    remote = ray.remote(_guarded(task, _threads(ray, len(parts))))
    running = {remote.remote(shared, split, target): split.number for split in parts}
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            yield running.pop(reference), _opened(ray.get(reference))


def _plus(one: Counters, other: Counters) -> Counters:
    return Counters(
        one.rows + other.rows, one.lines + other.lines, _sum(one.malformed, other.malformed),
        [*one.examples, *other.examples][:5], _sum(one.unseen, other.unseen),
    )  # fmt: skip


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
