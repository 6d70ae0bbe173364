"""Where table services run their tasks when there is a Spark session: one task of Spark for each file group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep_format.runner import Runner, ThreadRunner
from skep_writer.edge import SparkRunner
from skep_writer.executors import ensure_executors
from skep_writer.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def service_runner(spark: SparkSession) -> Runner:
    """Spark's executors; where the driver is all there is, threads do the same without sending plans through the JVM.

    EnvironmentMissingError when the executors' Python can't run skep's tasks.
    """
    check_session(spark)
    master = spark.sparkContext.master
    if master == "local" or master.startswith("local["):
        return ThreadRunner(spark.sparkContext.defaultParallelism)
    ensure_executors(spark)
    return SparkRunner(spark)
