"""Feature-preprocessing operators and pipelines; importing it needs no torch."""

from temper.etl.operators import (
    Bucketize,
    Clip,
    EmbeddingLookup,
    Hash,
    Hex2Int,
    Logarithm,
    Modulus,
    Neg2Zero,
    OneHot,
    Operator,
    VocabGen,
    VocabMap,
)
from temper.etl.pipeline import Pipeline
from temper.etl.recipes import criteo_pipeline, load_pipeline
from temper.etl.reports import Progress, Report
from temper.etl.schema import CRITEO, Column, Schema, load_schema

__all__ = [
    "CRITEO",
    "Bucketize",
    "Clip",
    "Column",
    "EmbeddingLookup",
    "Hash",
    "Hex2Int",
    "Logarithm",
    "Modulus",
    "Neg2Zero",
    "OneHot",
    "Operator",
    "Pipeline",
    "Progress",
    "Report",
    "Schema",
    "VocabGen",
    "VocabMap",
    "criteo_pipeline",
    "load_pipeline",
    "load_schema",
]
