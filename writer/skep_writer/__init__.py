"""The embedded PySpark write path: the only package that imports pyspark, and it does so when a session is asked for."""

from skep_writer.session import make_spark
from skep_writer.writer import SparkWriter

__all__ = ["SparkWriter", "make_spark"]
