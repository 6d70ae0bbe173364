"""The Spark edge: the one place where Arrow batches cross between Spark and Python, with all its traps.

`mapInArrow` binds what a task yields by position, and only exact types; so every batch is cast and put in order here, on
the way out as on the way in. What moves between stages is not rows but whole Arrow tables as binary values: the JVM never
takes rows apart, and a shuffle moves a few large values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from skep_table.errors import SchemaError
from skep_table.write.attempt import Attempt, attempt_scope
from skep_table.write.frame import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("skep.spark")
T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]

_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PAYLOADS_PER_BATCH = 8
_SMALLER_BATCHES = (256, 16, 2)
_OVERFLOW_SIGNS = (
    "OutOfMemory",
    "OversizedAllocation",
    "overflow",
    "Buffer over",
    "exceeds",
    "Failure allocating buffer",
)
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
        with attempt_scope(_attempt()):
            for table in function(batches):
                yield from conform(table, schema).combine_chunks().to_batches()

    return frame.mapInArrow(run, spark_ddl(schema))


def spark_ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)


def frame_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types in which Spark hands the frame's columns over. SchemaError for what it can't."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        schema: pa.Schema = to_arrow_schema(frame.schema)
    except Exception as error:
        raise SchemaError(f"the frame has a column that Spark can't hand over as Arrow: {error}") from error
    # to_arrow_schema of 3.5 leaves out what Spark puts in when it runs: timestamps bear the session's zone
    return schema


class SparkRunner:
    """Runs pure tasks as Spark tasks: one a task, in one job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        listed = list(tasks)
        if not listed:
            return []

        def run(part: Iterator[T]) -> Iterator[R]:
            with attempt_scope(_attempt()):
                for task in part:
                    yield function(task)

        return self._spark.sparkContext.parallelize(listed, len(listed)).mapPartitions(run).collect()


def _attempt() -> Attempt:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return Attempt(context.partitionId(), context.stageId(), context.taskAttemptId())


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings for a block and puts back what was there, or was not."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def small_batches(spark: SparkSession) -> AbstractContextManager[None]:
    """For stages whose rows are whole tables."""
    return session_settings(spark, {_ROWS_PER_BATCH: str(_PAYLOADS_PER_BATCH)})


def with_fitting_batches(spark: SparkSession, rows: int, run: Callable[[], T]) -> T:
    """Runs a job over the caller's rows with batches of `rows` rows (0: Spark's setting), smaller ones when they overflow.

    Spark's cap counts rows only: of rows with megabytes in them a batch grows past what Arrow and the JVM can hold.
    """
    known = rows or int(spark.conf.get(_ROWS_PER_BATCH, "10000"))
    tries = [known, *(smaller for smaller in _SMALLER_BATCHES if smaller < known and not rows)]
    for count in tries:
        try:
            with session_settings(spark, {_ROWS_PER_BATCH: str(count)}):
                return run()
        except Exception as error:
            if count == tries[-1] or not any(sign in str(error) for sign in _OVERFLOW_SIGNS):
                raise
            log.warning("batches of %d rows overflow, trying smaller ones (skep.spark.rows.per.batch sets it)", count)
    raise AssertionError("the last try raises or answers")


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
