"""The embedded Spark writer: Spark frames stay in Spark, frames of the driver go out to tasks as Arrow tables."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skep_format.errors import LeaseLostError
from skep_format.options import Options
from skep_format.runner import Runner, ThreadRunner
from skep_format.schema.policy import CASE_SENSITIVE
from skep_format.timeline.metadata import WriteOperation
from skep_table.hooks import CommitHook
from skep_table.runtime.signals import before_exit
from skep_table.table import HudiTable
from skep_table.write.context import Memory, WriteContext
from skep_table.write.flow import TableWriter
from skep_table.write.idempotency import CommitLabel
from skep_table.write.input.given import matched_schema
from skep_table.write.keyed import Keyer
from skep_table.write.local import ArrowEngine
from skep_table.write.output.bucket import BucketResult
from skep_table.write.result import WriteResult
from skep_table.write.rows import KeyedRows
from skep_writer.edge import SparkRunner, column_of, frame_schema
from skep_writer.executors import ensure_executors
from skep_writer.schemas import spark_arrow, spark_type
from skep_writer.session import check_session, is_spark_frame, job_group
from skep_writer.task_errors import errors_of_tasks
from skep_writer.writing.arranged import write_arranged
from skep_writer.writing.spark_rows import frame_rows
from skep_writer.writing.streamed import write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CANCEL_SECONDS: Final = 0.5


class SparkFrameEngine:
    """Spark frames are written by Spark tasks. Other frames are here already: their tasks get their rows along."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self._spark = spark
        self._options = options
        self._runner = _runner_of_driver_rows(spark)
        self._case_sensitive = is_case_sensitive(spark, options)
        self._arrow = ArrowEngine(self._runner, Memory.of(options), case_sensitive=self._case_sensitive)

    def take(self, frame: object, columns: pa.Schema) -> object:
        if not is_spark_frame(frame):
            return self._arrow.take(frame, columns)
        given: DataFrame = frame
        listed = frame_schema(given)  # PySpark can't list columns whose types it has no class for
        matched = listed if self._case_sensitive else matched_schema(listed, columns)
        if matched == listed:
            return given
        named = given.toDF(*matched.names)
        return named.withColumns(
            {
                new.name: column_of(named, new.name).cast(spark_type(spark_arrow(pa.schema([new]))).fields[0].dataType)
                for old, new in zip(listed, matched, strict=True)
                if old.type != new.type
            }
        )

    def schema(self, frame: object) -> pa.Schema:
        return frame_schema(frame) if is_spark_frame(frame) else self._arrow.schema(frame)

    def rows(self, frame: object, keyer: Keyer) -> KeyedRows:
        """See Engine: Spark frames by Spark, other frames on threads of the driver."""
        if not is_spark_frame(frame):
            return self._arrow.rows(frame, keyer)
        ensure_executors(self._spark)
        return frame_rows(frame, keyer, self._options, self._runner)

    def stream(self, frame: object, keyer: Keyer, context: WriteContext) -> list[BucketResult] | None:
        if context.combine or not is_spark_frame(frame):
            return None
        ensure_executors(self._spark)
        if context.arrangement is not None:
            return write_arranged(frame, keyer, context, self._options)
        return write_stream(frame, keyer, context, self._options)


def is_case_sensitive(spark: SparkSession, options: Options) -> bool:
    """Whether names of columns have to agree in case: by the option, else by the session's setting for SQL."""
    if options.is_set(CASE_SENSITIVE):
        return options.value(CASE_SENSITIVE)
    return spark.conf.get("spark.sql.caseSensitive") == "true"


def _runner_of_driver_rows(spark: SparkSession) -> Runner:
    """On a single machine threads do what tasks would, without sending the rows through the JVM."""
    master = spark.sparkContext.master
    if master == "local" or master.startswith("local["):
        return ThreadRunner(spark.sparkContext.defaultParallelism)
    return SparkRunner(spark)


class SparkWriter(TableWriter):
    """Writes Spark, Arrow, pandas and polars frames into one table; each call is one commit. See TableWriter."""

    def __init__(
        self,
        table: HudiTable,
        spark: SparkSession,
        hooks: Sequence[CommitHook] = (),
        create: Callable[[], object] | None = None,
    ) -> None:
        table.options.check()
        engine = SparkFrameEngine(check_session(spark), table.options)
        self._spark, self._group = spark, f"skep-{uuid.uuid4().hex}"
        self._ended = threading.Event()  # one for each write
        super().__init__(table.with_context(on_lost=self._cancel_jobs), engine, hooks, create)

    def _once(
        self,
        operation: WriteOperation,
        commit: Callable[[HudiTable, CommitLabel], WriteResult],
        batch_id: str | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        with self._jobs():
            return super()._once(operation, commit, batch_id, extra_metadata)

    @contextmanager
    def _jobs(self) -> Iterator[None]:
        """Of one write."""
        ended = self._ended = threading.Event()
        try:
            # Leaving a call of Spark waits for its answer: it has to come soon.
            with errors_of_tasks(), before_exit(self._cancel), job_group(self._spark, self._group):
                yield
        except BaseException as error:
            if not isinstance(error, Exception):  # interrupted: the answer to the running call is never read
                canceling = threading.Thread(target=self._cancel_once, name="skep-cancel", daemon=True)
                canceling.start()
                canceling.join(_CANCEL_SECONDS)
            raise
        finally:
            ended.set()

    def _cancel_jobs(self, _error: LeaseLostError) -> None:
        """What still runs for a write that can't complete any more is of no use."""
        self._cancel()

    def _cancel(self) -> None:
        threading.Thread(target=self._cancel_until, args=(self._ended,), name="skep-cancel", daemon=True).start()

    def _cancel_once(self) -> None:
        self._spark.sparkContext.cancelJobGroup(self._group)

    def _cancel_until(self, ended: threading.Event) -> None:
        """Again and again: Spark cancels what runs, and a write may be about to start a job."""
        while not ended.is_set():
            self._spark.sparkContext.cancelJobGroup(self._group)
            ended.wait(_CANCEL_SECONDS)
