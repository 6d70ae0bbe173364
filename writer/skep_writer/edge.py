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
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zipimport import zipimporter

import pyarrow as pa

from skep_format.errors import InputError, SchemaError
from skep_format.schema.types import quoted
from skep_format.schema.untyped import untyped
from skep_table.write.input.conform import conform
from skep_table.write.output.attempt import Attempt, attempt_scope
from skep_writer.schemas import in_utc, null_in_null, spark_type
from skep_writer.settings import session_settings
from skep_writer.task_errors import carrying_errors, errors_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]

ROWS_PER_BATCH_KEY = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PAYLOADS_PER_BATCH = 8


def map_frame(frame: DataFrame, function: Callable[[Batches], Iterable[pa.Table]], schema: pa.Schema) -> DataFrame:
    """`function` over each task's batches; its tables come back with exactly the columns of `schema`."""

    names = frame.columns
    if any(set(name) & set(".`") for name in names):
        frame = frame.toDF(*(f"c{at}" for at in range(len(names))))  # mapInArrow takes such names apart
    else:
        names = []

    def run(batches: Batches) -> Batches:
        with task_scope():
            for table in function(_renamed(batches, names) if names else batches):
                yield from conform(table, schema).combine_chunks().to_batches()

    return frame.mapInArrow(run, spark_type(schema))


def _renamed(batches: Batches, names: Sequence[str]) -> Batches:
    for batch in batches:
        fields = [field.with_name(name) for field, name in zip(batch.schema, names, strict=True)]
        yield pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def frame_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types in which Spark hands the frame's columns over. SchemaError names the column that it can't."""
    try:
        struct = frame.schema
    except Exception as error:  # types that PySpark has no class for
        raise _refused(*_unknown_column(frame)) from error
    return arrow_schema(struct)


def _unknown_column(frame: DataFrame) -> tuple[str, str]:
    """Name and type of the first column whose type PySpark can't parse."""
    from pyspark.sql.types import _parse_datatype_json_string

    for field in frame._jdf.schema().fields():
        try:
            _parse_datatype_json_string(field.dataType().json())
        except Exception:
            return field.name(), field.dataType().simpleString()
    return "?", "unknown"


def _refused(column: str, found: str) -> SchemaError:
    return SchemaError(
        f"column {column}: a table can't hold Spark's type {found}",
        hint="cast it to a type that Hudi has, or leave it out",
        column=column,
        found=found,
        expected="a type Hudi has",
    )


def column_of(frame: DataFrame, name: str) -> Column:
    """A top-level column, whatever is in its name."""
    return frame[quoted(name)]


def arrow_schema(struct: StructType) -> pa.Schema:
    """A Spark schema in Arrow types, instants in UTC whatever the session's zone. SchemaError for what has none."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import NullType, StructType

    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # from Spark 4 on
    fields = []
    for field in struct.fields:
        if any(type(kind).__name__ == "VariantType" for kind in _kinds(field.dataType)):
            raise _refused(field.name, field.dataType.simpleString())
        try:
            fields += to_arrow_schema(_with_voids(StructType([field]), NullType()), **zone)
        except Exception as error:
            raise _refused(field.name, field.dataType.simpleString()) from error
    return pa.schema(fields)


def _kinds(kind: Any) -> Iterator[Any]:
    """A Spark type and those within it."""
    yield kind
    inner = [field.dataType for field in getattr(kind, "fields", ())]
    inner += [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]
    for each in inner:
        yield from _kinds(each)


def collect_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a frame, without a detour through Python objects; instants in UTC."""
    from pyspark.sql.types import ByteType

    schema, typed = null_in_null(in_utc(arrow_schema(frame.schema))), _with_voids(frame.schema, ByteType())
    if typed is not frame.schema:  # lists of nulls without a type arrive with fewer of them than they have
        columns = [column_of(frame, field.name).cast(field.dataType).alias(field.name) for field in typed.fields]
        rows = collect_arrow(frame.select(columns))
        arrays = [
            pa.chunked_array([untyped(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(rows.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)
    frame._jdf.queryExecution().executedPlan()  # errors of planning come from here: others end the thread that serves
    if hasattr(frame, "toArrow"):
        return _as_stated(frame.toArrow(), schema)
    batches = frame._collect_as_arrow()  # Spark 3.5 has it, and keeps it to itself
    return _as_stated(pa.Table.from_batches(batches), schema) if batches else schema.empty_table()


def _as_stated(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """In the types that Spark states. A column may hold nulls where it states none: ANSI's `array(1)[7]` is null by its
    optimizer."""
    fields = [
        field.with_nullable(field.nullable or column.null_count > 0)
        for field, column in zip(schema, rows.columns, strict=True)
    ]
    return rows.cast(pa.schema(fields))


_AS_TEXTS: Final = ("interval", "interval year", "interval month", "interval year to month", "variant")


def collect_answer(frame: DataFrame) -> pa.Table:
    """The rows of a query's answer. Intervals of years and months, and variants, for which Arrow has no type, are texts
    as Spark casts them: variants are JSON."""
    fields = frame._jdf.schema().fields()
    as_texts = [field.dataType().typeName() in _AS_TEXTS for field in fields]
    if not any(as_texts):
        return collect_arrow(frame)
    numbered = frame.toDF(*(f"c{at}" for at in range(len(fields))))
    columns = [f"CAST(c{at} AS STRING) AS c{at}" if is_text else f"c{at}" for at, is_text in enumerate(as_texts)]
    return collect_arrow(numbered.selectExpr(*columns)).rename_columns([field.name() for field in fields])


def _with_voids(struct: StructType, void: Any) -> StructType:
    """The columns with another type for nulls without one, within lists, maps and structs, and text for keys of maps
    that are none; the same object where there are no such types. What is void may be null, whatever Spark states.
    """
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructField, StructType

    def typed(kind: Any) -> Any:
        if isinstance(kind, NullType):
            return void
        if isinstance(kind, ArrayType):
            return ArrayType(typed(kind.elementType), kind.containsNull or isinstance(kind.elementType, NullType))
        if isinstance(kind, MapType):
            key = StringType() if isinstance(kind.keyType, NullType) else typed(kind.keyType)
            return MapType(key, typed(kind.valueType), kind.valueContainsNull or isinstance(kind.valueType, NullType))
        if isinstance(kind, StructType):
            return StructType([StructField(each.name, typed(each.dataType), each.nullable) for each in kind.fields])
        return kind

    has_void = [
        not isinstance(field.dataType, NullType) and any(isinstance(kind, NullType) for kind in _kinds(field.dataType))
        for field in struct.fields
    ]
    if not any(has_void):
        return struct
    return StructType(
        [
            StructField(field.name, typed(field.dataType), field.nullable) if has else field
            for field, has in zip(struct.fields, has_void, strict=True)
        ]
    )


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

        with errors_of_tasks():
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
        with (
            carrying_errors(),
            attempt_scope(Attempt(context.partitionId(), context.stageId(), context.taskAttemptId())),
        ):
            yield
    finally:
        forget_zip_finders()


def forget_zip_finders() -> None:
    """Spares the worker's next task 0.1 to 0.2 s.

    A PySpark worker invalidates the import caches before each task, and Python then reads the whole directory of
    pyspark.zip again for every package that was ever imported from it. Finders are recreated when they are needed.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


def small_batches(spark: SparkSession) -> AbstractContextManager[None]:
    """For stages whose rows are whole tables. There is nothing in them that adaptive planning could learn."""
    return session_settings(
        spark, {ROWS_PER_BATCH_KEY: str(_PAYLOADS_PER_BATCH), "spark.sql.adaptive.enabled": "false"}
    )


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
