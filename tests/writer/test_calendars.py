"""Dates before 1582 and times before 1900: Spark reads what skep wrote, skep what Spark wrote, by either calendar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
DAYS = (date(1, 1, 1), date(1200, 3, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(2026, 1, 1))
ROWS = pa.table(
    {
        "id": [f"k{at}" for at in range(len(DAYS))],
        "part": ["p"] * len(DAYS),
        "ts": [1] * len(DAYS),
        "day": DAYS,
        "at": [datetime(day.year, day.month, day.day, 12, 30, tzinfo=timezone.utc) for day in DAYS],
    },
    SCHEMA,
)


@contextmanager
def session_settings(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def texts(frame: Any) -> list[tuple[str, ...]]:
    """The values as text: pyspark's own way to datetime has no year 1."""
    chosen = frame.selectExpr("id", "cast(day as string) day", "cast(unix_micros(at) as string) at")
    return sorted(tuple(row) for row in chosen.collect())


def expected() -> list[tuple[str, ...]]:
    micros = ROWS["at"].cast(pa.int64()).to_pylist()
    return [(f"k{at}", f"{day:%m-%d}", str(micros[at])) for at, day in enumerate(DAYS)]


def short(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(key, day[-5:], at) for key, day, at in rows]


@pytest.mark.parametrize("engine", ["arrow", "spark"])
@pytest.mark.parametrize("mode", ["EXCEPTION", "CORRECTED", "LEGACY"])
def test_spark_reads_ancient_values_that_skep_wrote(
    mode: str, engine: str, spark: Any, make_table: Callable[..., HudiTable]
) -> None:
    """Whatever the session takes for the calendar of files that do not say theirs."""
    table = make_table(SCHEMA)
    writer: Any = LocalWriter(table) if engine == "arrow" else SparkWriter(table, spark)
    writer.bulk_insert(ROWS)
    with session_settings(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": mode}):
        found = texts(spark.read.parquet(f"{table.storage.root}/p"))
    assert short(found) == expected()
