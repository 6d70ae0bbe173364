"""The Spark session behind a lake: the caller's, or one that is started when it is first needed."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeVar

from skep_format.errors import InputError, UnsupportedError
from skep_sql.protocols import TIME_ZONE
from skep_table.events import NO_EVENTS, Events
from skep_writer.session import active_spark, check_session, forget_ended, make_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
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
    from skep_writer.reading.source import SkepSource

    if not spark.sparkContext.master.startswith("local"):  # there the driver's Python is the executors', too
        ensure_executors(spark)
    spark.dataSource.register(SkepSource)


T = TypeVar("T")
UTC: Final = "UTC"  # of sessions that are started here, as of Sail and of skep's own reader
_STARTING: Final = threading.Lock()  # of several threads that need the session one starts it


class SparkJobs:
    """The jobs of one statement, whichever session runs them, and whenever that is started. They have a tag: job groups
    are those of the writes."""

    def __init__(self) -> None:
        self._tag = f"skep-{uuid.uuid4().hex}"
        self._context: SparkContext | None = None

    def join(self, session: SparkSession) -> None:
        """What this thread asks the session for from now on belongs to them."""
        if self._context is None:
            self._context = session.sparkContext
            self._context.addJobTag(self._tag)
            self._context.setInterruptOnCancel(True)

    def leave(self) -> None:
        """What this thread asks for later does not."""
        if self._context is not None:
            self._context.removeJobTag(self._tag)
            self._context.setInterruptOnCancel(False)

    def cancel(self) -> None:
        """Ends those that run now."""
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)


_JOBS: Final[ContextVar[SparkJobs | None]] = ContextVar("jobs", default=None)


@contextmanager
def held_by(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A variable has the value within the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def gathered(jobs: SparkJobs) -> Iterator[None]:
    """The jobs of all sessions that are asked for in here are of these."""
    with held_by(_JOBS, jobs), ExitStack() as stack:
        stack.callback(jobs.leave)
        yield


_WHY: Final[ContextVar[str | None]] = ContextVar("why", default=None)


def needed_because(why: str) -> AbstractContextManager[None]:
    """Events of a session that is started in here have the reason."""
    return held_by(_WHY, why)


class SparkHolder:
    """Provides one session. Only a session that was started here is stopped here. `events`: `spark.start`."""

    def __init__(
        self, given: SparkSession | None = None, conf: Mapping[str, str] | None = None, events: Events = NO_EVENTS
    ) -> None:
        if given is not None:
            check_session(given)
        self.given = given
        self.conf = dict(conf or {})
        self._events = events
        self._made: SparkSession | None = None
        self._stopped = False

    @property
    def session(self) -> SparkSession:
        """EnvironmentMissingError when pyspark or Java is missing or Spark does not start. InputError when stopped."""
        found = self._found()
        jobs = _JOBS.get()
        if jobs is not None:
            jobs.join(found)
        return found

    def _found(self) -> SparkSession:
        if self.given is not None:
            return self.given
        from skep_writer.failures import has_ended

        if self._stopped:
            raise InputError("the lake is closed, and its Spark session with it", hint="connect again: skep.connect(…)")
        with _STARTING:
            if self._made is not None and has_ended():  # out of memory, or ended by another
                self._made = None
                forget_ended()
            return self._made if self._made is not None else self._start()

    def _start(self) -> SparkSession:
        from skep_catalog.class_archive import spark_environment

        active = active_spark()
        if active is not None:
            return active
        conf = {TIME_ZONE: UTC, **self.conf}
        master = conf.pop("spark.master", None)
        with self._events.step("spark.start", why=_WHY.get()):
            self._made = make_spark(spark_environment(conf), master=master, conf=conf)
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
        if made is None:
            return
        from skep_writer.failures import has_ended

        if has_ended():
            forget_ended()
        else:
            made.stop()


def _running_elsewhere() -> SparkSession | None:
    """A session that others have started in this process."""
    if "pyspark" not in sys.modules:
        return None
    return active_spark()
