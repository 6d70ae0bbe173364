"""Dates before 1582 and times before 1900: Spark reads what skep wrote, skep what Spark wrote, by either calendar."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import UnsupportedError
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter, to_spark

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

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
    """Whatever the session takes for the calendar of files that do not record theirs."""
    table = make_table(SCHEMA)
    writer: Any = LocalWriter(table) if engine == "arrow" else SparkWriter(table, spark)
    writer.bulk_insert(ROWS)
    with session_settings(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": mode}):
        found = texts(spark.read.parquet(f"{table.storage.root}/p"))
    assert short(found) == expected()


REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"
REBASE_INT96 = "spark.sql.parquet.int96RebaseModeInWrite"
TYPE = "spark.sql.parquet.outputTimestampType"
# What somebody's session may have set: none of it is to change what is read or written here.
SESSIONS: dict[str, dict[str, str]] = {
    "legacy": {
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        REBASE: "LEGACY",
        "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
        REBASE_INT96: "LEGACY",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
    },
    "types": {
        "spark.sql.parquet.binaryAsString": "true",
        TYPE: "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
        "spark.sql.parquet.int96AsTimestamp": "false",
    },
    "int96 conversion": {"spark.sql.parquet.int96TimestampConversion": "true"},
}


def foreign(table: HudiTable, spark: Any, settings: dict[str, str]) -> Path:
    """The table's one base file, as Spark writes its rows with such settings."""
    (file,) = (Path(table.storage.root) / "p").glob("*.parquet")
    with session_settings(spark, settings):
        rows = spark.read.parquet(str(file))
        rows.coalesce(1).write.mode("overwrite").parquet(f"{table.storage.root}/../foreign")
    (written,) = (Path(table.storage.root) / "../foreign").glob("part-*.parquet")
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    shutil.copy(written, file)
    return file


def through_skep(table: HudiTable) -> list[tuple[str, ...]]:
    found = read(table.reload(), ReadRequest(columns=("id", "day", "at"))).to_arrow()
    days, times = found["day"].to_pylist(), found["at"].cast(pa.int64()).to_pylist()
    return sorted(
        (key, f"{day:%m-%d}", str(at)) for key, day, at in zip(found["id"].to_pylist(), days, times, strict=True)
    )


def through_spark(table: HudiTable, spark: Any) -> list[tuple[str, ...]]:
    return short(texts(to_spark(table.reload(), ReadRequest(), spark)))


@pytest.mark.parametrize("stored", ["INT96", "TIMESTAMP_MICROS"])
@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
def test_files_that_spark_wrote_read_alike(
    mode: str, stored: str, spark: Any, make_table: Callable[..., HudiTable]
) -> None:
    table = make_table(SCHEMA)
    LocalWriter(table).bulk_insert(ROWS)
    zone = {"spark.sql.session.timeZone": "UTC"}
    foreign(table, spark, {TYPE: stored, REBASE: mode, REBASE_INT96: mode, **zone})
    assert through_skep(table) == expected()
    assert through_spark(table, spark) == expected()


def test_ancient_times_of_a_legacy_zone_are_refused_not_shifted(
    spark: Any, make_table: Callable[..., HudiTable]
) -> None:
    """How Java's two calendars count the hours of zones before 1900 is Spark's to know: it reads them, skep refuses."""
    table = make_table(SCHEMA)
    LocalWriter(table).bulk_insert(ROWS)
    zone = {"spark.sql.session.timeZone": "Europe/Amsterdam"}
    file = foreign(table, spark, {TYPE: "TIMESTAMP_MICROS", REBASE: "LEGACY", **zone})
    with pytest.raises(UnsupportedError, match=rf"{file.name}, column at: .* time zone Europe/Amsterdam"):
        read(table.reload(), ReadRequest()).to_arrow()
    assert through_spark(table, spark) == expected()
    days = read(table.reload(), ReadRequest(columns=("id", "day"))).to_arrow().sort_by("id")
    assert days["day"].to_pylist() == list(DAYS)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_s_settings_change_no_value(name: str, spark: Any, make_table: Callable[..., HudiTable]) -> None:
    schema = SCHEMA.append(pa.field("raw", pa.binary()))
    rows = ROWS.append_column("raw", pa.array([bytes([255, at]) for at in range(len(DAYS))]))
    table, foreign_table = make_table(schema), make_table(schema)
    with session_settings(spark, SESSIONS[name]):
        LocalWriter(table).bulk_insert(rows.slice(0, 3))
        given = spark.createDataFrame(
            [(f"k{at}", "p", 1, bytes([255, at])) for at in range(3, len(DAYS))],
            "id string, part string, ts bigint, raw binary",
        ).join(_moments(spark), "id")
        SparkWriter(table, spark).upsert(given.select(*schema.names))
        assert through_skep(table) == through_spark(table, spark) == expected()
        frame = to_spark(table.reload(), ReadRequest(columns=("id", "raw")), spark)
        assert dict(frame.dtypes)["raw"] == "binary"
        found = {row["id"]: bytes(row["raw"]) for row in frame.collect()}
        assert found == {f"k{at}": bytes([255, at]) for at in range(len(DAYS))}
    LocalWriter(foreign_table).bulk_insert(rows)
    storage = Path(foreign_table.storage.root)
    (file,) = (storage / "p").glob("*.parquet")
    stored = pq.read_table(file)
    stored = stored.set_column(stored.schema.get_field_index("at"), "at", stored["at"].cast(pa.timestamp("us")))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(stored.replace_schema_metadata(None), file, use_deprecated_int96_timestamps=True)
    with session_settings(spark, SESSIONS[name]):
        assert through_skep(foreign_table) == through_spark(foreign_table, spark)


def _moments(spark: Any) -> Any:
    """Days and times by their numbers: what Python makes of them is out of the way."""
    days, micros = ROWS["day"].cast(pa.int32()).to_pylist(), ROWS["at"].cast(pa.int64()).to_pylist()
    found = spark.createDataFrame(
        [(f"k{at}", days[at], micros[at]) for at in range(len(DAYS))], "id string, day int, at bigint"
    )
    return found.selectExpr("id", "date_from_unix_date(day) day", "timestamp_micros(at) at")
