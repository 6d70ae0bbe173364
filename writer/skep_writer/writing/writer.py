"""The embedded Spark writer: Spark frames stay in Spark, frames of the driver go out to tasks as Arrow tables."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skep_format.errors import LeaseLostError, UnsupportedError
from skep_format.runner import Runner, ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_table.hooks import CommitHook
from skep_table.runtime.signals import before_exit
from skep_table.table import HudiTable
from skep_table.write.bootstrap.run import SourceRows
from skep_table.write.context import WriteContext
from skep_table.write.flow import TableWriter
from skep_table.write.input.given import matched_schema
from skep_table.write.keyed import Keyer
from skep_table.write.local import ArrowEngine
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.options import HBASE_AUTO_RATE, HBASE_PUT_BATCH, INDEX_TYPE, IndexType
from skep_table.write.planning.write_settings import WriteSettings
from skep_table.write.rows import KeyedRows
from skep_writer.edge import Batches, column_of, frame_schema, map_frame
from skep_writer.executors import ensure_executors
from skep_writer.schemas import spark_arrow, spark_type
from skep_writer.services import service_runner
from skep_writer.session import check_session, is_spark_frame, job_group
from skep_writer.task_errors import errors_of_tasks
from skep_writer.writing.arranged import write_arranged
from skep_writer.writing.estimate import fitting_batches
from skep_writer.writing.spark_rows import frame_rows
from skep_writer.writing.streamed import stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CANCEL_SECONDS: Final = 0.5


class SparkFrameEngine:
    """Spark frames are written by Spark tasks. Other frames are here already: their tasks get their rows along."""

    def __init__(self, spark: SparkSession, settings: WriteSettings) -> None:
        if settings.case_sensitive is None:
            is_case_sensitive = spark.conf.get("spark.sql.caseSensitive") == "true"
            settings = replace(settings, case_sensitive=is_case_sensitive)
        self.spark = spark
        self._settings = settings
        self.runner = service_runner(spark)
        self._arrow = ArrowEngine(self.runner, settings)
        self._group = f"skep-{uuid.uuid4().hex}"
        self._ended = threading.Event()  # one for each write

    @contextmanager
    def running(self) -> Iterator[None]:
        ended = self._ended = threading.Event()
        try:
            # Leaving a call of Spark waits for its answer: it has to come soon.
            with errors_of_tasks(), before_exit(self.cancel), job_group(self.spark, self._group):
                yield
        except BaseException as error:
            if not isinstance(error, Exception):  # interrupted: the answer to the running call is never read
                canceling = threading.Thread(target=self._cancel_once, name="skep-cancel", daemon=True)
                canceling.start()
                canceling.join(_CANCEL_SECONDS)
            raise
        finally:
            ended.set()

    def cancel(self, _error: LeaseLostError | None = None) -> None:
        """What still runs for a write that can't complete any more is of no use."""
        threading.Thread(target=self._cancel_until, args=(self._ended,), name="skep-cancel", daemon=True).start()

    def _cancel_once(self) -> None:
        self.spark.sparkContext.cancelJobGroup(self._group)

    def _cancel_until(self, ended: threading.Event) -> None:
        """Again and again: Spark cancels what runs, and a write may be about to start a job."""
        while not ended.is_set():
            self._cancel_once()
            ended.wait(_CANCEL_SECONDS)

    def take(self, frame: object, columns: pa.Schema) -> object:
        if not is_spark_frame(frame):
            return self._arrow.take(frame, columns)
        given: DataFrame = frame
        listed = frame_schema(given)  # PySpark can't list columns whose types it has no class for
        matched = listed if self._settings.case_sensitive else matched_schema(listed, columns)
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
        self._ensure_tasks()
        return frame_rows(frame, keyer, self._settings, self.runner)

    def _ensure_tasks(self) -> None:
        ensure_executors(self.spark)
        options = self._settings.options
        if options.value(INDEX_TYPE) is IndexType.HBASE and options.value(HBASE_AUTO_RATE):
            raise UnsupportedError(
                f"{HBASE_AUTO_RATE.key}: tasks of a Spark frame run in processes that share no rate",
                hint=f"{HBASE_PUT_BATCH.key} is how many puts a second each task makes",
                option=HBASE_AUTO_RATE.key,
            )

    def stream(self, frame: object, keyer: Keyer, context: WriteContext) -> list[BucketResult] | None:
        if context.combine or not is_spark_frame(frame):
            return None
        self._ensure_tasks()
        if context.arrangement is not None:
            return write_arranged(frame, keyer, context, self._settings)
        with fitting_batches(frame, self._settings.rows_per_batch):
            return stream(frame, keyer, context)


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
        settings = WriteSettings.of(table.options)
        self._spark_engine = engine = SparkFrameEngine(check_session(spark), settings)
        super().__init__(table.with_context(on_lost=engine.cancel), engine, settings, hooks, create)

    @property
    def _executors(self) -> Runner | None:
        runner = self._spark_engine.runner
        return None if isinstance(runner, ThreadRunner) else runner

    def _read(self, rows: SourceRows) -> object:
        """A frame of Spark, where its types are those of the rows."""
        frame = None if self._executors is None else _frame_of_files(self._spark_engine.spark, rows)
        return super()._read(rows) if frame is None else frame


def _frame_of_files(spark: SparkSession, rows: SourceRows) -> DataFrame | None:
    """The rows of a bootstrap's source files, which tasks read; None where Spark has no such columns."""
    schema, of_a_file = to_arrow(rows.source.columns), replace(rows, files=()).of
    if spark_arrow(schema).types != schema.types:
        return None

    def read(batches: Batches) -> Iterator[pa.Table]:
        for batch in batches:
            for payload in batch.column(0):
                for found in of_a_file(pickle.loads(payload.as_buffer())):
                    yield pa.Table.from_batches([found])

    places = [(bytearray(pickle.dumps(place)),) for place in rows.files]
    parts = spark.sparkContext.parallelize(places, max(1, min(len(places), rows.parallelism)))
    return map_frame(spark.createDataFrame(parts, "payload binary"), read, schema)
