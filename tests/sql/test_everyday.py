"""Everyday scripts of Spark's SQL: tables of skep give the rows that Spark's own tables give."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.spark_answers.everyday import QUERIES, ROWS, TABLES
from skep.lake import Lake
from skep.query.spark import SparkHolder
from skep_catalog.client import Metastore
from skep_format.errors import InputError
from skep_sql.protocols import TIME_ZONE
from skep_writer import collect_arrow

pytestmark = [pytest.mark.metastore, pytest.mark.spark]

INSERTS = {  # columns of a table, and what is put into it
    "(a INT, b STRING)": "VALUES (1.9, 5), (-1.9, 0.00000001)",
    "(a DECIMAL(4,1))": "VALUES (12.345), (99.95)",
    "(a DECIMAL(6,2), b DOUBLE)": "VALUES (1.005D, 0.00049), (0.285D, 12.3456)",
    "(a STRING, b STRING)": "VALUES (true, date'2024-01-01'), (false, null)",
    "(a FLOAT, b DOUBLE)": "VALUES (0.1, 0.1), (1, 2), (1.5D, 1.5)",
    "(a INT, s STRUCT<x: INT, y: STRING>)": "VALUES (1, named_struct('x', 1, 'y', 'a')), (3, null)",
    "(a BIGINT, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, STRUCT<x: INT>>)": (
        "VALUES (1, named_struct('p', 7, 'q', 'w'), array(named_struct('p', 8.5, 'q', 1)),"
        " map('k', named_struct('p', 9))), (2, null, null, null)"
    ),
    "(a INT, l ARRAY<BIGINT>)": "VALUES (1, array(1, 2)), (2, array())",
    "(l ARRAY<INT>, t ARRAY<STRUCT<x: INT, y: DATE>>, m MAP<STRING, INT>, n MAP<STRING, DATE>)": (
        "VALUES (array(), array(named_struct('p', null, 'q', null)), map(), map('k', null))"
    ),
    "(s STRUCT<x: STRUCT<z: DATE>, y: STRING>, t STRUCT<x: STRUCT<z: DATE>>)": (
        "VALUES (named_struct('x', null, 'y', 'a'), named_struct('x', named_struct('z', null)))"
    ),
}


@pytest.fixture(scope="module")
def plain(spark: Any) -> Iterator[Any]:
    """A session with tables of Spark's own."""
    session = spark.newSession()
    for name, columns in TABLES.items():
        session.sql(f"CREATE TABLE {name} {columns} USING parquet")
    for text in ROWS:
        session.sql(text)
    yield session
    for name in TABLES:
        session.sql(f"DROP TABLE {name}")


def rows(table: pa.Table) -> list[str]:
    return sorted(repr([_plain(value) for value in row.values()]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@pytest.fixture
def own(metastore: Metastore, database: str, tmp_path: Any, spark: Any) -> Lake:
    lake = Lake(metastore, str(tmp_path / "lake"), SparkHolder(spark), database)
    for name, columns in TABLES.items():
        lake.sql(f"CREATE TABLE {name} {columns} USING hudi")
    for text in ROWS:
        lake.sql(text)
    return lake


def test_queries(own: Lake, plain: Any) -> None:
    for query in QUERIES:
        expected = collect_arrow(plain.sql(query))
        found = own.sql(query).to_arrow()
        assert rows(found) == rows(expected), query
        assert (found.schema.names, found.schema.types) == (expected.schema.names, expected.schema.types), query


def test_values_that_are_inserted(own: Lake, plain: Any) -> None:
    for at, (columns, values) in enumerate(INSERTS.items()):
        own.sql(f"CREATE TABLE given_{at} {columns} USING hudi")
        plain.sql(f"CREATE TABLE given_{at} {columns} USING parquet")
        try:
            for lake in (own, plain):
                lake.sql(f"INSERT INTO given_{at} {values}")
            expected = collect_arrow(plain.table(f"given_{at}"))
            found = own.table(f"given_{at}").read(columns=expected.schema.names).to_arrow()
            assert rows(found) == rows(expected), values
        finally:
            plain.sql(f"DROP TABLE given_{at}")


def test_members_of_structs_in_updates_and_merges(spark_lake: Lake) -> None:
    """By position, as Hudi 0.15 does it; by name where `*` takes columns by name."""
    spark_lake.sql("CREATE TABLE t (id INT, s STRUCT<a: INT, b: STRING>) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    spark_lake.sql("INSERT INTO t VALUES (1, named_struct('x', 7, 'y', 'w')), (2, null), (3, null)")
    spark_lake.sql("UPDATE t SET s = named_struct('x', 8, 'y', 'u') WHERE id = 1")
    source = "(SELECT {} AS id, named_struct('b', 1, 'a', 2) AS s) u ON t.id = u.id WHEN MATCHED THEN UPDATE SET "
    spark_lake.sql(f"MERGE INTO t USING {source.format(2)} s = u.s")
    spark_lake.sql(f"MERGE INTO t USING {source.format(3)} *")
    found = spark_lake.table("t").read(columns=["id", "s"]).to_arrow().sort_by("id")["s"].to_pylist()
    assert found == [{"a": 8, "b": "u"}, {"a": 1, "b": "2"}, {"a": 2, "b": "1"}]
    with pytest.raises(InputError, match="other members"):
        spark_lake.sql("UPDATE t SET s = named_struct('a', 1) WHERE id = 1")


def test_bounds_of_other_writers_hide_no_nan(lake: Lake) -> None:
    """Arrow leaves NaN out of a footer's bounds."""
    rows = pa.table({"id": [1, 2, 3], "x": [math.nan, 1.0, 7.0], "y": [1, 1, 3]})
    table = lake.create_table("t", rows, key="id")
    table.upsert(rows, **{"hoodie.metadata.enable": "false"})  # which has the size of each file
    (file,) = Path(table.hudi.storage.root.removeprefix("file://")).glob("*.parquet")
    stored = pq.ParquetFile(file)
    pq.write_table(stored.read().replace_schema_metadata(stored.metadata.metadata), file)
    bounds = pq.read_metadata(file).row_group(0).column(stored.schema_arrow.get_field_index("x")).statistics
    assert (bounds.min, bounds.max) == (1.0, 7.0)
    for condition in ("x > 5", "not x <= 5", "x <> 1", "x > 7 or y = 3", "x >= 7 and y < 4"):
        found = lake.sql(f"select id from t where {condition} order by id").to_arrow()["id"].to_pylist()
        assert found == [1, 3], condition


@pytest.mark.parametrize("statement", ["delete from t where x > 5", "update t set y = 9 where x > 5"])
def test_statements_change_the_rows_that_a_query_shows(lake: Lake, statement: str) -> None:
    """NaN is the largest number for SQL, and none for filters of reads."""
    rows = pa.table({"id": [1, 2, 3], "x": [math.nan, 1.0, 7.0], "y": [1, 1, 1]})
    lake.create_table("t", rows, key="id").upsert(rows)
    shown = lake.sql("select id from t where x > 5 order by id").to_arrow()["id"].to_pylist()
    assert shown == [1, 3]
    lake.sql(statement)
    left = lake.sql("select id from t where y = 1 order by id").to_arrow()["id"].to_pylist()
    assert left == [2]


def test_texts_become_times(lake: Lake) -> None:
    """Written out, for which no Spark is started; numbers count in other units there and are refused."""
    noon, day = dt.datetime(2024, 6, 30, 12, tzinfo=dt.timezone.utc), dt.date(2024, 6, 30)
    rows = pa.table({"id": [1, 2], "at": pa.array([noon] * 2, pa.timestamp("us", "UTC")), "d": [day] * 2, "n": [0, 0]})
    lake.create_table("t", rows, key="id").upsert(rows)
    lake.sql(f"SET {TIME_ZONE} = UTC")  # a session that runs in this process may have another one
    lake.sql("UPDATE t SET at = '2024-02-01 10:00:00.5', d = '2024-02-01' WHERE id = 1")
    source = "(SELECT 2 AS id, '2024-03-01' AS at, '2024-03-01 10:00:00' AS d)"
    lake.sql(f"MERGE INTO t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at, d = s.d")
    assert lake.sql("SELECT at, d FROM t ORDER BY id").to_arrow().to_pylist() == [
        {"at": dt.datetime(2024, 2, 1, 10, 0, 0, 500_000, dt.timezone.utc), "d": dt.date(2024, 2, 1)},
        {"at": dt.datetime(2024, 3, 1, tzinfo=dt.timezone.utc), "d": dt.date(2024, 3, 1)},
    ]
    for column, value in (("d", "'2024-13-01'"), ("at", "5"), ("d", "5"), ("n", "at"), ("n", "d")):
        with pytest.raises(InputError, match=f"column {column} is .*, which does not hold every value given"):
            lake.sql(f"UPDATE t SET {column} = {value}")


ZONED = [
    "seen >= '2024-07-01'",
    "seen < timestamp '2024-07-01 00:00:00'",
    "to_date(seen) = date '2024-07-01'",
    "hour(seen) < 12 and id > 1",
    "seen > '2024-07-01T00:00:00Z'",
]


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_statements_take_times_as_queries_do(spark_lake: Lake, spark: Any, zone: str) -> None:
    """The session has a zone, in which both read times without one."""
    noon = dt.datetime(2024, 6, 30, 12, tzinfo=dt.timezone.utc)
    seen = [noon + dt.timedelta(hours=hour) for hour in range(24)]
    rows = pa.table({"id": list(range(24)), "seen": pa.array(seen, pa.timestamp("us", "UTC")), "n": [0] * 24})
    before = spark.conf.get(TIME_ZONE)
    spark.conf.set(TIME_ZONE, zone)
    try:
        for at, condition in enumerate(ZONED, 1):
            spark_lake.create_table(f"t{at}", rows, key="id").upsert(rows)
            shown = ids(spark_lake, f"t{at}", condition)
            assert 0 < len(shown) < 24, condition
            spark_lake.sql(f"update t{at} set n = 1 where {condition}")
            assert ids(spark_lake, f"t{at}", "n = 1") == shown, condition
            spark_lake.sql(f"delete from t{at} where {condition}")
            assert ids(spark_lake, f"t{at}", "true") == [id for id in range(24) if id not in shown], condition
        for text in ("2024-02-01 10:00:00", "2024-2-3 4:5:6", "2024-02-01T10:00:00Z"):
            spark_lake.sql(f"update t1 set seen = '{text}'")
            assert ids(spark_lake, "t1", f"seen <> timestamp '{text}'") == [], text
        with pytest.raises(InputError, match="'noon' is no timestamp"):
            spark_lake.sql("update t1 set seen = 'noon'")
    finally:
        spark.conf.set(TIME_ZONE, before)


def ids(lake: Lake, table: str, condition: str) -> list[int]:
    found: list[int] = lake.sql(f"select id from {table} where {condition} order by id").to_arrow()["id"].to_pylist()
    return found
