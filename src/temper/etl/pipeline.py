"""Pipelines: operators over a schema, fused, fitted, run over files and resumed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from temper.errors import BadFileError, UsageError
from temper.etl import kernel, kernel_types, vocabulary
from temper.etl.execute import Buffers, ChainExecutor, Counters, RowsPart, total_bytes
from temper.etl.inputs import check_apart, open_sources
from temper.etl.operators import Operator
from temper.etl.output import VOCABULARY, Encoded, Manifest, Output, fingerprint
from temper.etl.plan import ColumnPlan, chosen, plan_columns, stages
from temper.etl.reports import Progress, Report
from temper.etl.schema import CRITEO, Schema
from temper.etl.sources import Input

# Files, folders, globs, URLs, or tables of Arrow, Polars or pandas; one or several.
Paths = Any
ROWS_PER_PART = 1 << 18


class Pipeline:
    """Operators in order over a schema's columns.

    ``on_error`` says what a malformed row does: "error" stops, "skip" leaves the row out and
    counts it, "fill" takes malformed and absent fields as missing and counts the row. ``columns``
    names those that come out, all by default; the others are not even parsed.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        schema: Schema = CRITEO,
        *,
        on_error: str = "error",
        rows_per_part: int = ROWS_PER_PART,
        columns: Sequence[str] | None = None,
    ) -> None:
        if on_error not in kernel_types.POLICIES:
            raise UsageError(f"on_error is {on_error!r}", allowed=kernel_types.POLICIES)
        if rows_per_part < 1:
            raise UsageError("rows_per_part starts at 1")
        self.operators = tuple(operators)
        self.schema = schema
        self.on_error = on_error
        self.rows_per_part = rows_per_part
        self.plans = chosen(plan_columns(self.operators, schema), columns)
        self.vocabularies: dict[str, vocabulary.Words] = {}
        self.counters = Counters()

    @property
    def stages(self) -> list[list[Operator]]:
        """Runs of operators that execute as one pass."""
        return stages(self.operators)

    def fit(self, paths: Paths, **options: Any) -> Pipeline:
        """Builds the vocabularies by counting; reads only the columns that have one."""
        self._fit(self._open(paths, options), _silent, time.perf_counter())
        return self

    def transform(self, paths: Paths, **options: Any) -> Iterator[Any]:
        """Record batches with the fitted or loaded vocabularies; unseen values are counted."""
        return self.stream(self._open(paths, options))

    def sources(self, paths: Paths, **options: Any) -> list[Input]:
        """What is behind paths, folders, globs, URLs and tables, in the order it is read."""
        return self._open(paths, options)

    def stream(self, sources: Sequence[Input]) -> Iterator[Any]:
        """Record batches of these sources with the fitted or loaded vocabularies."""
        return self._stream(sources, grow=False)

    def fit_transform(self, paths: Paths, **options: Any) -> Iterator[Any]:
        """Record batches; one pass when every value is kept in order of appearance, else two."""
        sources = self._open(paths, options)
        if not self._one_pass():
            self._fit(sources, _silent, time.perf_counter())
        return self._stream(sources, grow=self._one_pass())

    def table(self, paths: Paths, **options: Any) -> Any:
        """The whole result as one Arrow table, for data that fits in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.fit_transform(paths, **options)))

    def polars(self, paths: Paths, **options: Any) -> Any:
        """The whole result as a Polars frame."""
        import polars

        return polars.from_arrow(self.table(paths, **options))

    def pandas(self, paths: Paths, **options: Any) -> Any:
        """The whole result as a pandas frame."""
        return self.table(paths, **options).to_pandas()

    def save_vocabularies(self, path: str | os.PathLike[str]) -> None:
        """Write all vocabularies to one Arrow file."""
        vocabulary.save(path, self.vocabularies)

    def load_vocabularies(self, path: str | os.PathLike[str]) -> Pipeline:
        """Vocabularies for ``transform``; every VocabMap column must be in the file."""
        return self._take(vocabulary.load(path), path)

    def _take(self, found: dict[str, vocabulary.Words], path: object) -> Pipeline:
        missing = [plan.name for plan in self.plans if plan.map and plan.name not in found]
        if missing:
            raise BadFileError(f"{path} has no vocabulary for {', '.join(missing)}")
        self.vocabularies = found
        return self

    def run(
        self,
        paths: Paths,
        output: str | os.PathLike[str],
        *,
        format: str = "parquet",
        compression: str | None = None,
        partition_by: str | None = None,
        resume: bool = False,
        progress: Callable[[Progress], None] | None = None,
        **options: Any,
    ) -> Report:
        """Writes part files to the folder ``output``; an interrupted run continues with resume."""
        started = time.perf_counter()
        tell = progress or _silent
        sources = self._open(paths, options)
        check_apart(sources, output)
        target = Output(output, format, compression, partition_by)
        with target.store.alone(), self.unchanged_on_error():
            return self._run(sources, target, resume, tell, started)

    @contextmanager
    def unchanged_on_error(self) -> Iterator[None]:
        """Half-built vocabularies are dropped: they belong to the broken run's folder."""
        before = dict(self.vocabularies)
        try:
            yield
        except BaseException:
            self.vocabularies = before
            raise

    def _run(
        self, sources: Sequence[Input], target: Output, resume: bool,
        tell: Callable[[Progress], None], started: float,
    ) -> Report:  # fmt: skip
        inputs = [source.fingerprint() for source in sources]
        manifest = target.prepare(self.fingerprint(target), inputs, resume=resume)
        resumed, finished = bool(manifest.parts) or manifest.fitted, manifest.done
        grow = self._one_pass() and not self.vocabularies
        if manifest.fitted:
            self._take(target.read_vocabularies(VOCABULARY), VOCABULARY)
        elif manifest.words:
            self._replay([target.read_vocabularies(name) for name in manifest.words])
        elif self._generated() and not grow and not self.vocabularies:
            self._fit(sources, tell, started)
        if not manifest.done:
            if self.vocabularies and not grow and not manifest.fitted:
                target.write_vocabularies(VOCABULARY, self.vocabularies)
                manifest.fitted = True
                target.commit(manifest)
            self._write(sources, target, manifest, grow, tell, started)
            if self.vocabularies:
                target.write_vocabularies(VOCABULARY, self.vocabularies)
            target.finish(manifest)
        elif VOCABULARY in target.store.names():
            self._take(target.read_vocabularies(VOCABULARY), VOCABULARY)
        counters = manifest.counters
        return Report(
            counters.rows, total_bytes(sources), time.perf_counter() - started,
            tuple(part["file"] for part in manifest.parts), counters.malformed,
            tuple(counters.examples), counters.unseen,
            {name: len(words) for name, words in self.vocabularies.items()}, resumed or finished,
            finished,
        )  # fmt: skip

    def fingerprint(self, target: Output) -> str:
        """A name of everything that decides the bytes of the output, but for the inputs."""
        given = {
            name: hashlib.sha256(words.keys.tobytes()).hexdigest()
            for name, words in self.vocabularies.items()
        }
        return fingerprint(
            [self.schema.as_dict(), [op.as_dict() for op in self.operators], self.on_error,
             self.rows_per_part, target.settings, given, [plan.name for plan in self.plans]]
        )  # fmt: skip

    def _open(self, paths: Paths, options: Mapping[str, Any]) -> list[Input]:
        return open_sources(paths, self.schema, **options)

    def _generated(self) -> list[ColumnPlan]:
        return [plan for plan in self.plans if plan.gen]

    def _one_pass(self) -> bool:
        return all(vocabulary.one_pass(plan.gen, plan.key_bound) for plan in self.plans if plan.gen)

    def _live(self, plans: Sequence[ColumnPlan]) -> dict[str, kernel_types.Vocabulary]:
        """Kernel vocabularies with the keys known so far."""
        live = {}
        for plan in plans:
            tracked = plan.gen.max_tracked if plan.gen else 1 << 31
            words = self.vocabularies.get(plan.name)
            limit = max(tracked, plan.key_bound, len(words) if words else 0)
            live[plan.name] = kernel.make_vocabulary(plan.key_bound, limit)
            if words is not None:
                live[plan.name].add(words.keys)
        return live

    def _executor(self, *, grow: bool) -> ChainExecutor:
        modes = {}
        for plan in self.plans:
            if plan.map and not (grow and plan.gen):
                if plan.name not in self.vocabularies:
                    raise UsageError(
                        f"VocabMap on column {plan.name!r} has no vocabulary",
                        try_=["VocabGen() before it and fit()", "load_vocabularies(path)"],
                    )
                modes[plan.name] = kernel_types.MAP
            elif plan.gen and grow:
                modes[plan.name] = kernel_types.GROW if plan.map else kernel_types.COUNT
        live = self._live([plan for plan in self.plans if plan.name in modes])
        return ChainExecutor(
            self.plans, self.schema, on_error=self.on_error, vocabularies=live, modes=modes,
            rows_per_part=self.rows_per_part,
        )  # fmt: skip

    def _fit(
        self, sources: Sequence[Input], tell: Callable[[Progress], None], started: float
    ) -> None:
        plans = [replace(plan, map=None, expand=None) for plan in self._generated()]
        if not plans:
            return
        self.vocabularies = {}
        live = self._live(plans)
        # A row that another column's field would drop must not be counted: parse all columns.
        all_plans = plans if self.on_error == "error" else self.plans
        executor = ChainExecutor(
            all_plans, self.schema, on_error=self.on_error, vocabularies=live,
            modes=dict.fromkeys(live, kernel_types.COUNT), rows_per_part=self.rows_per_part,
        )  # fmt: skip
        for part, buffers in executor.parts(sources):
            tell(_progress("vocabularies", part, sources, started))
            executor.release(buffers)
        for plan in plans:
            assert plan.gen is not None
            counted = vocabulary.snapshot(live[plan.name], counted=True)
            self.vocabularies[plan.name] = vocabulary.select(counted, plan.gen)

    def _stream(self, sources: Sequence[Input], *, grow: bool) -> Iterator[Any]:
        if grow:
            self.vocabularies = {}
        executor = self._executor(grow=grow)
        for part, buffers in executor.parts(sources):
            self.counters = part.counters
            if part.batch.num_rows or part.counters.rows == 0:
                yield executor.kept(part, buffers)
        if grow:
            self._collect(executor)

    def _collect(self, executor: ChainExecutor) -> None:
        for plan in self._generated():
            live = executor.vocabularies[plan.name]
            self.vocabularies[plan.name] = vocabulary.snapshot(live, counted=not plan.map)

    def _replay(self, files: Sequence[Mapping[str, vocabulary.Words]]) -> None:
        pieces: dict[str, list[vocabulary.Words]] = {}
        for file in files:
            for name, words in file.items():
                pieces.setdefault(name, []).append(words)
        self.vocabularies = {
            name: vocabulary.Words(
                np.concatenate([item.keys for item in found]),
                np.concatenate([item.counts for item in found]),
            )
            for name, found in pieces.items()
        }

    def _write(
        self, sources: Sequence[Input], target: Output, manifest: Manifest, grow: bool,
        tell: Callable[[Progress], None], started: float,
    ) -> None:  # fmt: skip
        """Parses and writes at the same time: one part is filled while the last is written."""
        executor = self._executor(grow=grow)
        executor.counters = manifest.counters.copy()
        known = {plan.name: len(executor.vocabularies[plan.name])
                 for plan in self._generated() if grow}  # fmt: skip
        pending: Future[None] | None = None
        with ThreadPoolExecutor(1, "temper-etl-write") as pool:
            for part, buffers in executor.parts(sources, manifest.position):
                words = {}
                for name, start in known.items():
                    live = executor.vocabularies[name]
                    words[name] = vocabulary.snapshot(live, counted=False, start=start)
                    known[name] = len(live)
                encoded = target.encode(part.batch)
                if pending is not None:
                    pending.result()
                pending = pool.submit(self._save, target, manifest, part, encoded, words)
                if encoded.copied:
                    executor.release(buffers)
                else:
                    pending.add_done_callback(partial(_release, executor, buffers))
                tell(_progress("rows", part, sources, started))
            if pending is not None:
                pending.result()
        if grow:
            self._collect(executor)

    @staticmethod
    def _save(
        target: Output, manifest: Manifest, part: RowsPart, encoded: Encoded,
        words: Mapping[str, vocabulary.Words],
    ) -> None:  # fmt: skip
        try:
            if encoded.rows or not manifest.parts:
                target.write_part(manifest, encoded)
            if words:
                target.write_words(manifest, words)
            manifest.position, manifest.counters = part.position, part.counters
            target.commit(manifest)
        except OSError as error:
            raise UsageError(
                f"cannot write to {target.store.place}: {error.strerror or error}"
            ) from None


def _release(executor: ChainExecutor, buffers: Buffers, _: Future[None]) -> None:
    executor.release(buffers)


def _silent(_: Progress) -> None:
    """No one asked."""


def _progress(stage: str, part: RowsPart, sources: Sequence[Input], started: float) -> Progress:
    sizes = [source.size_bytes for source in sources]
    done = sum(sizes[: part.position.file])
    if part.position.file < len(sources):
        source = sources[part.position.file]
        done += 0 if source.columnar else min(part.position.offset, sizes[part.position.file])
    return Progress(stage, part.counters.rows, done, sum(sizes), time.perf_counter() - started)
