"""The Spark edge: the one place where Arrow batches cross between Spark and Python, with all its traps.

`mapInArrow` binds what a task yields by position, and only exact types; so every batch is cast and put in order here,
on the way out as on the way in. What moves between stages is not rows but whole Arrow tables as binary values: the JVM
never takes rows apart, and a shuffle moves a few large values.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar
from zipimport import zipimporter

import pyarrow as pa

from skep_table.errors import InputError, SchemaError
from skep_table.write.attempt import Attempt, attempt_scope
from skep_table.write.frame import conform
from skep_writer.settings import own_setting, session_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]

_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PAYLOADS_PER_BATCH = 8
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
_SPARK_TYPES = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.list_(pa.string()): "array<string>",
    pa.list_(pa.int64()): "array<bigint>",
}


def map_frame(frame: DataFrame, function: Callable[[Batches], Iterable[pa.Table]], schema: pa.Schema) -> DataFrame:
    """`function` over each task's batches; its tables come back with exactly the columns of `schema`."""

    def run(batches: Batches) -> Batches:
        with task_scope():
            for table in function(batches):
                yield from conform(table, schema).combine_chunks().to_batches()

    return frame.mapInArrow(run, spark_ddl(schema))


def spark_ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)


def frame_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types in which Spark hands the frame's columns over. SchemaError for what it can't."""
    return arrow_schema(frame.schema)


def arrow_schema(struct: StructType) -> pa.Schema:
    """A Spark schema in Arrow types, instants in UTC whatever the session's zone. SchemaError for what has none."""
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # from Spark 4 on
    try:
        schema: pa.Schema = to_arrow_schema(struct, **zone)
    except Exception as error:
        raise SchemaError(f"a column that Spark can't hand over as Arrow: {error}") from error
    return schema


class SparkRunner:
    """Runs pure tasks as Spark tasks: one a task, in one job. An InputError of a task is not tried again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        listed = list(tasks)
        if not listed:
            return []

        def run(part: Iterator[T]) -> Iterator[R | InputError]:
            with task_scope():
                for task in part:
                    try:
                        yield function(task)
                    except InputError as error:
                        yield error

        results = self._spark.sparkContext.parallelize(listed, len(listed)).mapPartitions(run).collect()
        for result in results:
            if isinstance(result, InputError):
                raise result
        return results


@contextmanager
def task_scope() -> Iterator[None]:
    """Around the Python part of a Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    try:
        with attempt_scope(Attempt(context.partitionId(), context.stageId(), context.taskAttemptId())):
            yield
    finally:
        forget_zip_finders()


def forget_zip_finders() -> None:
    """Spares the worker's next task 0.1 to 0.2 s.

    A PySpark worker invalidates the import caches before each task, and Python then reads the whole directory of
    pyspark.zip again for every package that was ever imported from it. Finders are made anew when they are needed.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


def small_batches(spark: SparkSession) -> AbstractContextManager[None]:
    """For stages whose rows are whole tables. There is nothing in them that adaptive planning could learn."""
    return session_settings(spark, {_ROWS_PER_BATCH: str(_PAYLOADS_PER_BATCH), "spark.sql.adaptive.enabled": "false"})


def fitting_batches(frame: DataFrame, rows: int) -> AbstractContextManager[None]:
    """For stages that read the caller's rows: batches of `rows` rows, or (0) as many as fit.

    Spark's cap counts rows only. A batch that grows past what the JVM can hold does not even fail: the thread that
    feeds Python dies and the task waits for ever. So a few rows are measured first, where that costs next to nothing.
    """
    spark = frame.sparkSession
    most = int(own_setting(spark, _ROWS_PER_BATCH, "10000"))
    most = most if most > 0 else 10_000
    return session_settings(spark, {_ROWS_PER_BATCH: str(rows or min(most, _fitting_rows(frame)))})


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
        column = frame["`" + field.name.replace("`", "``") + "`"]
        if isinstance(field.dataType, (StringType, BinaryType)):
            parts.append(functions.coalesce(functions.octet_length(column), functions.lit(0)))
        elif isinstance(field.dataType, (ArrayType, MapType, StructType)):
            text = functions.to_json(functions.struct(column))
            parts.append(functions.coalesce(functions.octet_length(text), functions.lit(0)))
    if not parts:
        return None
    total = functions.lit(0).cast("long")
    for part in parts:
        total = total + part
    return total


def _peeks_cheaply(frame: DataFrame) -> bool:
    """Whether the first rows come without evaluating the rest: no shuffle and no Python below."""
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    words = (line.lstrip(" :+-|").partition(" ")[0] for line in plan.splitlines())
    return all(word in _STREAMING_NODES for word in words if word)


def slots(count: int) -> list[int]:
    """For each of `count` shuffle partitions an integer that Spark's hash partitioning puts there."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < count:
        found.setdefault(_murmur3(candidate) % count, candidate)
        candidate += 1
    return [found[partition] for partition in range(count)]


def _murmur3(value: int) -> int:
    """Spark's hash of an int column: Murmur3 x86 32 with seed 42, as a signed number."""
    mask = 0xFFFFFFFF
    k = (value * 0xCC9E2D51) & mask
    k = ((k << 15) | (k >> 17)) & mask
    k = (k * 0x1B873593) & mask
    h = 42 ^ k
    h = ((h << 13) | (h >> 19)) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & mask
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & mask
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def pack(table: pa.Table) -> pa.Buffer:
    """A table as one binary value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpack(value: pa.BinaryScalar) -> pa.Table:
    """The table behind a binary value, without copying it."""
    return pa.ipc.open_stream(value.as_buffer()).read_all()


def binary_column(buffers: Sequence[pa.Buffer]) -> pa.Array:
    """Buffers as a binary column, each copied once."""
    return pa.array([memoryview(buffer) for buffer in buffers], pa.binary()) if buffers else pa.array([], pa.binary())
