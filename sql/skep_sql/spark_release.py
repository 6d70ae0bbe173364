"""The release of Spark that is installed: what its answers are named, and which rules hold by default."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def is_spark_3() -> bool:
    """Whether it is Spark 3, whose errors of values are nulls by default; true where none is installed."""
    try:
        return int(version("pyspark").partition(".")[0]) <= 3
    except PackageNotFoundError:
        return True
