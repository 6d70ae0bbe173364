"""The Spark session behind a lake: the caller's, or one that is started when it is first needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from skep_sql.protocols import TIME_ZONE
from skep_table.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_source(spark: SparkSession) -> None:
    """Makes `spark.read.format("skep").load(path)` known to a session of Spark 4; sessions made by skep know it."""
    if not hasattr(spark, "dataSource"):
        raise UnsupportedError(
            f"Spark {spark.version} has no data sources in Python",
            hint="use Spark 4, or skep.load(path).to_spark()",
            found=spark.version,
            expected="4.0 or later",
        )
    from skep_writer.executors import ensure_executors
    from skep_writer.source import SkepSource

    if not spark.sparkContext.master.startswith("local"):  # there the driver's Python is the executors', too
        ensure_executors(spark)
    spark.dataSource.register(SkepSource)


UTC: Final = "UTC"  # of sessions that are started here, as of DuckDB and of skep's own reader
_STARTING: Final = threading.Lock()  # of several threads that need the session one starts it


class SparkHolder:
    """Provides one session. Only a session that was started here is stopped here."""

    def __init__(self, given: SparkSession | None = None, conf: Mapping[str, str] | None = None) -> None:
        if given is not None:
            from skep_writer.session import check_session

            check_session(given)
        self.given = given
        self.conf = dict(conf or {})
        self._made: SparkSession | None = None
        self._stopped = False

    @property
    def session(self) -> SparkSession:
        """EnvironmentMissingError when pyspark or Java is missing or Spark does not start. InputError when stopped."""
        if self.given is not None:
            return self.given
        if self._stopped:
            raise InputError("the lake is closed, and its Spark session with it", hint="connect again: skep.connect(…)")
        with _STARTING:
            return self._made if self._made is not None else self._start()

    def _start(self) -> SparkSession:
        from skep_catalog.java import find_java
        from skep_writer.session import active_spark, make_spark

        active = active_spark()
        if active is not None:
            return active
        conf = {TIME_ZONE: UTC, **self.conf}
        master = conf.pop("spark.master", None)
        self._made = make_spark({"JAVA_HOME": str(find_java().home)}, master=master, conf=conf)
        if hasattr(self._made, "dataSource"):
            register_source(self._made)
        return self._made

    @property
    def time_zone(self) -> str:
        """Of the session that runs, or that would be started. Starts nothing."""
        running = self.given or self._made or _running_elsewhere()
        zone = self.conf.get(TIME_ZONE, UTC) if running is None else running.conf.get(TIME_ZONE)
        return str(zone)

    @property
    def is_started(self) -> bool:
        """Whether a session is there already, the caller's or one of this lake."""
        return self.given is not None or self._made is not None

    def stop(self) -> None:
        """Stops the session if it was started here. Calling it again is no error."""
        made, self._made, self._stopped = self._made, None, True
        if made is not None:
            made.stop()


def _running_elsewhere() -> SparkSession | None:
    """A session that others have started in this process."""
    if "pyspark" not in sys.modules:
        return None
    from skep_writer.session import active_spark

    return active_spark()
