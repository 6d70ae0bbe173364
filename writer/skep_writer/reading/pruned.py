"""Rows that Python tasks read, as a relation: Spark's plan decides which columns and which rows they have to read.

Spark can't see into `mapInArrow`: a frame made with it reads all columns of all rows, also where a query needs one. A
relation with Spark's interface `PrunedFilteredScan` receives the columns and filters when a query is planned. PySpark
has no way to implement it: a small Java class does, and calls this process, which builds a `mapInArrow` over just these
columns. Where a session can't do this, frames read all columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skep_format.errors import UnsupportedError
from skep_format.schema.types import RECORD_KEY
from skep_table.query.filters.predicate import Predicate
from skep_table.query.plan import ReadTask, matching
from skep_table.query.request import ReadRequest
from skep_writer.edge import Batches, forget_zip_finders
from skep_writer.executors import ensure_executors
from skep_writer.jvm import PRUNED_RELATION, java_object, planning_call
from skep_writer.reading.conditions import from_spark
from skep_writer.reading.relation import warn_slower
from skep_writer.reading.shares import Task, bytes_of, rows_of_share, task_shares
from skep_writer.schemas import spark_type
from skep_writer.task_errors import carrying_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def python_frame(spark: SparkSession, tasks: Sequence[Task], target: pa.Schema, request: ReadRequest) -> DataFrame:
    """A lazy frame of the rows of `tasks` in the columns of `target`, read by Python tasks."""
    ensure_executors(spark)
    rows = _Rows(spark, tasks, target, request)
    return _relation(spark, rows) or rows.frame(target, None)


@dataclass
class _Rows:
    """The rows of some tasks, of which each query asks for some columns."""

    spark: SparkSession
    tasks: Sequence[Task]
    target: pa.Schema
    request: ReadRequest
    _shares: list[bytes] | None = field(default=None, init=False)

    def frame(self, target: pa.Schema, predicate: Predicate | None) -> DataFrame:
        """The columns of `target`; rows that fail the predicate may be left out."""
        shares = self._shares_with(predicate)

        def run(batches: Batches) -> Iterator[pa.RecordBatch]:
            try:
                with carrying_errors():
                    for batch in batches:
                        for number in batch.column(0).to_pylist():
                            yield from rows_of_share(shares[number], target, predicate)
            finally:
                forget_zip_finders()

        numbers = self.spark.range(0, len(shares), 1, max(1, len(shares)))
        return numbers.mapInArrow(run, spark_type(target))

    def planned(self, columns: Sequence[str], filters: Sequence[Any]) -> Any:
        """Spark's question while it plans, as an RDD of its internal rows, which have the columns asked for first."""
        predicate = from_spark(filters, self._columns_to_filter())
        counted = RECORD_KEY if RECORD_KEY in self.target.names else self.target.names[0]
        chosen = pa.schema([self.target.field(name) for name in columns or (counted,)])
        return self.frame(chosen, predicate)._jdf.queryExecution().toRdd()

    def _columns_to_filter(self) -> pa.Schema:
        """Those that have the types of the table, so that a filter means the same to a task."""
        reads = [task for task in self.tasks if isinstance(task, ReadTask)]
        if not reads or len(reads) < len(self.tasks):
            return pa.schema([])
        held = reads[0].scan.arrow_schema
        return pa.schema([column for column in self.target if column.type == held.field(column.name).type])

    def _shares_with(self, predicate: Predicate | None) -> list[bytes]:
        cores = self.spark.sparkContext.defaultParallelism
        if predicate is not None:
            reads = [task for task in self.tasks if isinstance(task, ReadTask)]
            left = matching(reads, predicate, self.request)
            if len(left) < len(self.tasks):
                return task_shares(left, cores)
        if self._shares is None:
            self._shares = task_shares(self.tasks, cores)
        return self._shares


def _relation(spark: SparkSession, rows: _Rows) -> DataFrame | None:
    """The rows as a relation; None, with a warning, where the session can't have one."""
    from pyspark.sql import DataFrame

    try:
        maker, planned = java_object(spark, PRUNED_RELATION), planning_call(spark, rows.planned)
    except UnsupportedError as error:
        warn_slower(f"Spark reads all columns of slices with logs: {error.message}")
        return None
    session: Any = spark._jsparkSession
    size = sum(map(bytes_of, rows.tasks))
    name = f"skep({len(rows.tasks)} file slices)"
    relation = maker.of(session.sqlContext(), spark_type(rows.target).json(), planned, name, size)
    return DataFrame(session.baseRelationToDataFrame(relation), spark)
