"""Reading through Spark: the slices of a read become tasks whose batches are rows of a frame; frames become Arrow."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from skep_table.errors import UnsupportedError
from skep_table.query import execute
from skep_table.query.options import QueryType
from skep_table.query.plan import ReadTask, plan
from skep_table.query.read import read_schema
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.frame import conform, plain_type
from skep_writer.edge import Batches, arrow_schema
from skep_writer.executors import ensure_executors
from skep_writer.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TASKS_PER_CORE = 4


def to_spark(table: HudiTable, request: ReadRequest, spark: SparkSession) -> DataFrame:
    """A lazy frame of the answer. The plan is made now, so the frame keeps showing the table as it is now."""
    if request.query is QueryType.CDC:
        raise UnsupportedError(
            "cdc queries are not read through Spark yet", hint="read().to_arrow() or to_batches()", query="cdc"
        )
    check_session(spark)
    ensure_executors(spark)
    target = spark_arrow(read_schema(table, request))
    tasks = plan(table, request)
    shares = _shares(tasks, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
    payloads = [(bytearray(pickle.dumps(share)),) for share in shares]

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                for task in pickle.loads(payload.as_buffer()):
                    for rows in execute.run(task):
                        yield from conform(rows, target).combine_chunks().to_batches()

    parts = spark.sparkContext.parallelize(payloads, max(1, len(payloads)))
    frame = spark.createDataFrame(parts, "payload binary").mapInArrow(run, spark_type(target))
    return frame if request.limit is None else frame.limit(request.limit)


def _shares(tasks: Sequence[ReadTask], count: int) -> list[list[ReadTask]]:
    """At most `count` runs of tasks of about the same weight, in order; a task's weight is its bytes and an opening."""
    weights = [_bytes(task) + (1 << 20) for task in tasks]
    target = max(1, -(-sum(weights) // count))
    shares: list[list[ReadTask]] = []
    filled = target
    for task, weight in zip(tasks, weights, strict=True):
        if filled + weight // 2 >= target:
            shares.append([])
            filled = 0
        shares[-1].append(task)
        filled += weight
    return shares


def _bytes(task: ReadTask) -> int:
    base = task.slice.base_file.size_bytes if task.slice.base_file else 0
    return base + sum(log.size_bytes for log in task.slice.log_files)


def spark_arrow(schema: pa.Schema) -> pa.Schema:
    """The schema in the Arrow types that Spark takes back from Python."""
    return pa.schema([pa.field(field.name, _spark_arrow_type(field.type), field.nullable) for field in schema])


def _spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_spark_arrow_type(field.type))

    kind = plain_type(kind)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.int64() if pa.types.is_time64(kind) else pa.int32()
    if pa.types.is_fixed_size_binary(kind) or kind == pa.uuid():
        return pa.binary() if kind != pa.uuid() else pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, inner(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    return kind


def spark_type(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def collect_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a frame, without a detour through Python objects; instants in UTC."""
    schema = _in_utc(arrow_schema(frame.schema))
    if hasattr(frame, "toArrow"):
        return frame.toArrow().cast(schema)
    batches = frame._collect_as_arrow()  # Spark 3.5 has it, and keeps it to itself
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def _in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_utc(field.type)) for field in schema])


def _utc(kind: pa.DataType) -> pa.DataType:
    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_utc(field.type))

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, inner(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    return kind
