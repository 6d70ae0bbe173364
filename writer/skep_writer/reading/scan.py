"""Reading through Spark: the slices of a read become tasks whose batches are rows of a frame; frames become Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from skep_table.query import cdc
from skep_table.query.options import QueryType
from skep_table.query.plan import ReadTask, plan
from skep_table.query.read import read_schema
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.input.conform import conform
from skep_writer.edge import Batches, pack, unpack
from skep_writer.executors import ensure_executors
from skep_writer.reading.native import native_rows, split
from skep_writer.reading.pruned import python_frame
from skep_writer.schemas import spark_arrow, spark_type
from skep_writer.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def to_spark(table: HudiTable, request: ReadRequest, spark: SparkSession) -> DataFrame:
    """A lazy frame of the answer. The plan is made now, so the frame keeps showing the table as it is now.

    Base files that Spark reads as skep does are left to its own reader; the other slices are merged by Python tasks.
    """
    check_session(spark)
    target = spark_arrow(read_schema(table, request))
    if request.query is QueryType.CDC:
        frame = python_frame(spark, cdc.plan_changes(table, request), target, request)
    else:
        frame = _frame(spark, plan(table, request), target, request)
    return frame if request.limit is None else frame.limit(request.limit)


def _frame(spark: SparkSession, tasks: Sequence[ReadTask], target: pa.Schema, request: ReadRequest) -> DataFrame:
    native, merged = split(spark, tasks)
    if not native:
        return python_frame(spark, merged, target, request)
    frame = native_rows(spark, native, request)
    return frame.union(python_frame(spark, merged, target, request)) if merged else frame


def arrow_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of rows that this process holds."""
    check_session(spark)
    ensure_executors(spark)
    target = spark_arrow(rows.schema)
    rows = conform(rows, target)
    step = max(1, -(-rows.num_rows // spark.sparkContext.defaultParallelism))
    shares = [(bytearray(pack(rows.slice(at, step))),) for at in range(0, rows.num_rows, step)]

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                yield from unpack(payload).to_batches()

    parts = spark.sparkContext.parallelize(shares, max(1, len(shares)))
    return spark.createDataFrame(parts, "payload binary").mapInArrow(run, spark_type(target))


def with_constants(frame: DataFrame, values: Mapping[str, object], schema: pa.Schema) -> DataFrame:
    """The frame with a column for each value that it lacks, of the type in `schema`."""
    from pyspark.sql.functions import lit

    for name in set(values) - set(frame.columns):
        if name in schema.names:
            frame = frame.withColumn(
                name, lit(values[name]).cast(spark_type(pa.schema([schema.field(name)]))[0].dataType)
            )
    return frame


def numbered(frame: DataFrame, column: str) -> DataFrame:
    """The frame with a number that rises from row to row."""
    from pyspark.sql.functions import monotonically_increasing_id

    return frame.withColumn(column, monotonically_increasing_id())
