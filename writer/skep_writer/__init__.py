"""The embedded PySpark writer: the only package that imports pyspark, and only when a session is asked for."""

from skep_writer.scan import arrow_schema, collect_arrow, to_spark
from skep_writer.session import active_spark, make_spark
from skep_writer.writer import SparkWriter

__all__ = ["SparkWriter", "active_spark", "arrow_schema", "collect_arrow", "make_spark", "to_spark"]
