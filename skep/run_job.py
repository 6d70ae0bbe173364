"""Runs a PySpark job as it is, with its Hudi calls carried out by skep: `python -m skep.run_job job.py arguments…`.

With spark-submit this file is the program, and the job its first argument.
"""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: list[str]) -> None:
    """Runs the job in this process, under its own name and with its own arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit("usage: python -m skep.run_job job.py [arguments…]")
    job = Path(arguments[0])
    if not job.is_file():
        sys.exit(f"skep.run_job: there is no file {job}")
    from skep.jobs.hudi_jobs import use_for_hudi, without_hudi_classes
    from skep_catalog.class_archive import spark_environment
    from skep_format.errors import EnvironmentMissingError
    from skep_writer.routed import each_new_session
    from skep_writer.session import use_this_interpreter

    def prepare(spark: SparkSession) -> None:
        use_this_interpreter(spark)
        use_for_hudi(spark)

    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets: it has started the JVM
        with suppress(EnvironmentMissingError):
            os.environ.update(spark_environment())
    sys.argv = list(arguments)
    sys.path.insert(0, str(job.resolve().parent))
    with each_new_session(prepare, without_hudi_classes):
        runpy.run_path(str(job), run_name="__main__")


if __name__ == "__main__":
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]  # of spark-submit: the modules beside this one are no top-level ones
    main(sys.argv[1:])
