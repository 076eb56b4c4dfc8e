"""A pipeline as a PyTorch dataset: batches of tensors that a compiled model takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from temper.errors import UsageError
from temper.etl.pipeline import Paths, Pipeline

Batch = dict[str, torch.Tensor]


class PipelineDataset(IterableDataset[Batch]):
    """Batches by role: ``label`` (rows,), ``dense`` float32 and ``category`` int64 (rows, columns).

    Every batch has ``batch_size`` rows, the last one what is left unless ``drop_last``: a compiled
    model then sees one shape. Workers of a ``DataLoader(batch_size=None)`` share the files.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: Paths,
        batch_size: int,
        *,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}; it starts at 1")
        unknown = [p.name for p in pipeline.plans if p.map and p.name not in pipeline.vocabularies]
        if unknown:
            raise UsageError(
                f"column {unknown[0]!r} has no vocabulary yet, and each worker would build its own",
                try_=["pipeline.fit(paths) before", "pipeline.load_vocabularies(path)"],
            )
        expanded = [plan.name for plan in pipeline.plans if plan.expand]
        if expanded:
            raise UsageError(f"column {expanded[0]!r} is a list; a batch holds plain columns")
        self.pipeline = pipeline
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._sources = pipeline.sources(inputs, **options)

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        mine = self._sources if worker is None else self._sources[worker.id :: worker.num_workers]
        rest: dict[str, list[np.ndarray]] = {}
        held = 0
        for batch in self.pipeline.stream(mine) if mine else ():
            for role, columns in self._by_role(batch).items():
                rest.setdefault(role, []).append(columns)
            held += batch.num_rows
            while held >= self.batch_size:
                yield self._take(rest, self.batch_size)
                held -= self.batch_size
        if held and not self.drop_last:
            yield self._take(rest, held)

    def _by_role(self, batch: Any) -> dict[str, np.ndarray]:
        arrays: dict[str, list[np.ndarray]] = {}
        for plan, column in zip(self.pipeline.plans, batch.columns, strict=True):
            values = column.to_numpy(zero_copy_only=True)
            arrays.setdefault(plan.column.role, []).append(values)
        kinds = {"dense": np.float32, "category": np.int64}
        return {
            role: np.stack(found, axis=1).astype(kinds.get(role, found[0].dtype), copy=False)
            for role, found in arrays.items()
        }

    def _take(self, rest: dict[str, list[np.ndarray]], count: int) -> Batch:
        made = {}
        for role, pieces in rest.items():
            whole = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
            made[role] = torch.from_numpy(np.ascontiguousarray(whole[:count]))
            rest[role] = [whole[count:]]
        if "label" in made and made["label"].shape[1] == 1:
            made["label"] = made["label"][:, 0]
        return made
