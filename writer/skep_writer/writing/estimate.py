"""Estimates of a frame before it is evaluated, at next to no cost: whether it is small, and how wide its rows are.

Spark's own estimates do not measure rows: they consider neither the length of texts nor how well files are compressed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from skep_writer.edge import ROWS_PER_BATCH_KEY, column_of
from skep_writer.settings import own_setting, session_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

_MANY_ROWS = 20_000
_ROWS_OF_UNKNOWN_WIDTH = 256
_PEEKED_ROWS = 64
_BATCH_BYTES = 64 << 20
_MOST_BATCH_BYTES = 256 << 20
_STREAMING_NODES = {
    "Project",
    "Filter",
    "Relation",
    "LogicalRDD",
    "LocalRelation",
    "Range",
    "InMemoryRelation",
    "Union",
}
# What a file may be larger in Arrow, as a rule.
_PACKED = 16


def is_small(frame: DataFrame, most: int) -> bool:
    """Whether the frame is a few files or values as they are, surely below `most` bytes of Arrow data but for oddities.

    Not where columns are computed: the length of their texts is unknown.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()
    if int(plan.stats().sizeInBytes()) * _PACKED > most:
        return False
    return all(
        node in _STREAMING_NODES and (node != "Project" or not ("(" in rest or "more fields" in rest))
        for node, rest in _nodes(plan.toString())
    )


def fitting_batches(frame: DataFrame, rows: int) -> AbstractContextManager[None]:
    """For stages that read the caller's rows: batches of `rows` rows, or (0) as many as fit.

    Spark's cap counts rows only. A batch that grows past what the JVM can hold does not even fail: the thread that
    feeds Python dies and the task waits for ever. So a few rows are measured first, where that costs next to nothing.
    """
    spark = frame.sparkSession
    most = int(own_setting(spark, ROWS_PER_BATCH_KEY, "10000"))
    most = most if most > 0 else 10_000
    return session_settings(spark, {ROWS_PER_BATCH_KEY: str(rows or min(most, _fitting_rows(frame)))})


def few_rows(frame: DataFrame) -> AbstractContextManager[None]:
    """For stages that read rows whose width nobody has measured."""
    return session_settings(frame.sparkSession, {ROWS_PER_BATCH_KEY: str(_ROWS_OF_UNKNOWN_WIDTH)})


def _fitting_rows(frame: DataFrame) -> int:
    width = _width(frame)
    if width is None:
        return _MANY_ROWS
    if not _peeks_cheaply(frame):
        return _ROWS_OF_UNKNOWN_WIDTH
    widths = [row[0] or 0 for row in frame.select(width).take(_PEEKED_ROWS)]
    if not widths:
        return _ROWS_OF_UNKNOWN_WIDTH
    mean = max(1, sum(widths) // len(widths))
    return max(1, min(_MANY_ROWS, _BATCH_BYTES // mean, _MOST_BATCH_BYTES // max(1, *widths)))


def _width(frame: DataFrame) -> Column | None:
    """The bytes of a row in columns without a fixed width, None when all have one."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    parts = []
    for field in frame.schema.fields:
        text = column_of(frame, field.name)
        if isinstance(field.dataType, (ArrayType, MapType, StructType)):
            text = functions.to_json(functions.struct(text))
        elif not isinstance(field.dataType, (StringType, BinaryType)):
            continue
        parts.append(functions.coalesce(functions.octet_length(text), functions.lit(0)))
    return reduce(add, parts, functions.lit(0).cast("long")) if parts else None


def _peeks_cheaply(frame: DataFrame) -> bool:
    """Whether the first rows come without evaluating the rest: no shuffle and no Python below."""
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    return all(node in _STREAMING_NODES for node, _ in _nodes(plan))


def _nodes(plan: str) -> Iterator[tuple[str, str]]:
    """The name of each node of a plan, and how Spark prints the rest of it."""
    for line in plan.splitlines():
        node, _, rest = line.lstrip(" :+-|").partition(" ")
        if node:
            yield node, rest
