"""The changes of a table as a stream of Spark's: its checkpoint has times of commits, each batch the rows of a range.

Spark 3.5 takes streaming sources of Java only: a small class in `java/` is one, and calls this process for what is new
and for the rows of a batch. A batch that is repeated after a restart has the same range, and so the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from skep_format.errors import OptionError
from skep_format.instant_time import BEGINNING, InstantTime
from skep_format.options import Options
from skep_table.query import options as read_options
from skep_table.query.incremental import times_of
from skep_table.query.read import read_schema
from skep_table.query.request import ReadRequest, instant_text
from skep_table.table import HudiTable
from skep_writer.jvm import CHANGE_SOURCE, java_object, python_call
from skep_writer.reading.scan import to_spark
from skep_writer.routed import spark_alone
from skep_writer.schemas import spark_arrow, spark_type
from skep_writer.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LATEST: Final = "latest"


def stream_changes(spark: SparkSession, table: HudiTable, options: Options) -> DataFrame:
    """A streaming frame of the rows that commits insert or update, as they are at the end of each batch.

    `options` are Hudi's read keys: where the first batch begins, whether changes are those of CDC. The columns are
    those that the table has now. UnsupportedError where Spark does not take such a source.
    """
    from pyspark.sql import DataFrame

    check_session(spark)
    is_cdc = options.value(read_options.INCREMENTAL_FORMAT) is read_options.IncrementalFormat.CDC
    request = ReadRequest.of(
        options, query=read_options.QueryType.CDC if is_cdc else read_options.QueryType.INCREMENTAL
    )
    if request.since is not None or request.until is not None:
        raise OptionError(
            f"a stream has no {read_options.BEGIN_INSTANT.key} and {read_options.END_INSTANT.key}",
            hint=f"{read_options.START_OFFSET.key} is the time behind which it begins",
            option=read_options.BEGIN_INSTANT.key,
        )
    first, most = _first(table, options.value(read_options.START_OFFSET)), options.value(read_options.COMMITS_OF_BATCH)
    schema = read_schema(table, request)
    changes = _Changes(spark, table, replace(request, columns=tuple(schema.names)), first, most)
    jvm: Any = spark.sparkContext._jvm
    made = java_object(spark, CHANGE_SOURCE).of(
        spark._jsparkSession,
        spark_type(spark_arrow(schema)).json(),
        python_call(spark, changes.newest),
        python_call(spark, changes.rows),
        jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxFiles(1),
        f"skep({table.config.name})",
    )
    return DataFrame(made, spark)


def _first(table: HudiTable, start: str) -> InstantTime:
    if start.lower() != _LATEST:
        return instant_text(start, table.config.timezone.value)
    times = times_of(table)
    return times[-1] if times else BEGINNING


@dataclass(frozen=True)
class _Changes:
    """What a stream asks for, batch by batch. Its offsets are times of commits."""

    spark: SparkSession
    table: HudiTable
    request: ReadRequest
    first: InstantTime
    max_commits: int | None

    def newest(self, start: str | None, everything: bool) -> str | None:
        """Up to where the next batch goes: `start` where nothing is new, None where nothing ever was."""
        begin = self.first if start is None else InstantTime(start)
        later = [time for time in times_of(self.table.reload()) if time.is_after(begin)]
        chosen = later if everything else later[: self.max_commits]
        if chosen:
            return str(chosen[-1])
        # `latest` is a time from now on, also for a stream that is started again before there is a batch
        return start if start is not None or not self.first.strip("0") else str(self.first)

    def rows(self, start: str | None, end: str) -> Any:
        """The rows of a batch, as an RDD of Spark's internal rows."""
        since = min(str(self.first), end) if start is None else start  # `latest` is later when started again
        request = replace(self.request, since=since, until=end)
        with spark_alone():  # Java calls in threads of its own
            frame = to_spark(self.table.reload(), request, self.spark)
            return frame._jdf.queryExecution().toRdd()
