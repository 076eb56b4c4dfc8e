"""Ready-made pipelines: the usual one for Criteo's logs, and those of pipeline files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from temper.errors import BadFileError, UsageError
from temper.etl.operators import (
    Hex2Int,
    Logarithm,
    Modulus,
    Neg2Zero,
    VocabGen,
    VocabMap,
    operator_from_dict,
)
from temper.etl.pipeline import Pipeline
from temper.etl.schema import load_schema


def criteo_pipeline(modulus: int = 100_000, **options: Any) -> Pipeline:
    """The usual pipeline for Criteo's logs: dense log1p, categories to identifiers."""
    return Pipeline(
        [Neg2Zero(), Logarithm("log1p"), Hex2Int(), Modulus(modulus), VocabGen(), VocabMap()],
        **options,
    )


def load_pipeline(path: str | os.PathLike[str], **options: Any) -> Pipeline:
    """A pipeline file: ``{"schema": "criteo", "operators": [{"operator": "Neg2Zero"}, …]}``."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        operators = [operator_from_dict(item) for item in value["operators"]]
        given = options.pop("schema", None)
        schema = given or load_schema(value.get("schema", "criteo"))
    except OSError as error:
        raise UsageError(f"no pipeline file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFileError(
            f"{path} is not a pipeline file: {error}",
            needs='{"schema": "criteo", "operators": [{"operator": "Neg2Zero"}, …]}',
        ) from None
    return Pipeline(operators, schema, **options)
