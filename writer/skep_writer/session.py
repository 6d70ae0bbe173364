"""Spark sessions: one is made when the caller has none; one that is there is used as it is and never stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skep_format.distribution import install_command
from skep_format.errors import EnvironmentMissingError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS = Path(__file__).absolute().with_name("log4j2.properties")  # relative in a zip that Spark ships
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    # What runs out of memory ends, as executors do: a thread that dies of it leaves its caller waiting for ever.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    " -XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr",
}


def make_spark(
    java_environment: Mapping[str, str] | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, else a new one on this machine.

    `java_environment` (JAVA_HOME …) is in place while the JVM starts. `master` and `conf` apply to a new session only.
    Raises EnvironmentMissingError when pyspark or pandas is missing, or the JVM does not come up.
    """
    spark_module = _pyspark()
    active = spark_module.SparkSession.getActiveSession()
    if active is not None:
        return check_session(active)
    environment = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        **(java_environment or {}),
    }
    with _environment(environment):
        builder = spark_module.SparkSession.builder.appName("skep")
        if master is not None or "SPARK_REMOTE" not in os.environ:
            builder = builder.master(master or os.environ.get("MASTER", "local[*]"))
        for key, value in {**_DEFAULTS, **(conf or {})}.items():
            builder = builder.config(key, value)
        try:
            return check_session(builder.getOrCreate())
        except UnsupportedError:
            raise
        except Exception as error:
            raise EnvironmentMissingError(
                f"the Spark session did not start: {error}", hint="`skep doctor` shows which Java was found"
            ) from error


def active_spark() -> SparkSession | None:
    """The session that this thread or process already has. Starts nothing."""
    sql = _pyspark()
    active = sql.SparkSession.getActiveSession()
    return None if active is None else check_session(active)


def forget_ended() -> None:
    """PySpark forgets the process that it had, and the session in it: the next one starts another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    context: Any = SparkContext
    context._gateway = context._jvm = context._active_spark_context = None
    session: Any = SparkSession
    session._instantiatedSession = session._activeSession = None


def check_session(spark: Any) -> SparkSession:
    """Refuses Spark Connect sessions: they have no way to run the writer's tasks yet."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedError(
            "Spark Connect sessions are not supported yet",
            hint="use a classic session: SparkSession.builder.master(…).getOrCreate(), without SPARK_REMOTE",
            found=f"{type(spark).__module__}.{type(spark).__qualname__}",
        )
    return spark


def is_spark_frame(frame: object) -> bool:
    """A classic Spark frame. UnsupportedError for one of Spark Connect."""
    kind = type(frame)
    if not kind.__module__.startswith("pyspark.sql") or not hasattr(frame, "mapInArrow"):
        return False
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedError("frames of Spark Connect are not supported yet", found=kind.__module__)
    return True


def _pyspark() -> Any:
    try:
        import pandas  # noqa: F401 - pyspark's Arrow code imports it
        import pyarrow
        import pyspark.sql
    except ImportError as error:
        raise EnvironmentMissingError(
            f"{error.name} is not installed", hint=install_command("local"), missing=error.name
        ) from error
    pyarrow.table({}).to_pandas()  # Arrow may have been loaded without pandas, for a quick start
    return pyspark.sql


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def job_group(spark: SparkSession, name: str) -> Iterator[None]:
    """Jobs that this thread starts within the block are of the group `name`; the caller's own group comes back."""
    context = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in _GROUP_PROPERTIES}
    context.setJobGroup(name, before["spark.job.description"] or "skep", interruptOnCancel=True)
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)


def use_this_interpreter(spark: SparkSession) -> None:
    """Python tasks of a local session run in the interpreter of this process, unless somebody chose one.

    Spark takes the first `python3` of the path, which may be of another release and lack the packages of the job.
    """
    context = spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
