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

from skep.lake import Lake
from skep.spark import SparkHolder
from skep_catalog.client import Metastore
from skep_sql.protocols import TIME_ZONE
from skep_table.errors import InputError
from skep_writer import collect_arrow

pytestmark = [pytest.mark.metastore, pytest.mark.spark]

TABLES = {
    "staff": "(id INT, name STRING, dept STRING, salary DECIMAL(10,2), hired DATE, seen TIMESTAMP,"
    " x DOUBLE, ok BOOLEAN)",
    "orders": "(oid INT, eid INT, item STRUCT<sku: STRING, qty: INT>, tags ARRAY<STRING>, attrs MAP<STRING, INT>,"
    " d STRING)",
}
ROWS = (
    "INSERT INTO staff VALUES (1, 'Ann', 'eng', 1000.50, DATE'2020-01-31', TIMESTAMP'2024-03-10 02:30:00', 1.5, true),"
    " (2, 'bob', 'eng', 2000, DATE'2019-12-31', TIMESTAMP'2024-12-31 23:59:59.123456', 2.5, false),"
    " (3, 'Cy', 'ops', NULL, DATE'2024-02-29', NULL, NULL, NULL),"
    " (4, 'dÉe', 'ops', -15.25, NULL, TIMESTAMP'1969-12-31 23:59:59', -0.0, true),"
    " (5, NULL, NULL, 99999999.99, DATE'1900-01-01', TIMESTAMP'2024-07-01 12:00:00', 1e10, false)",
    "INSERT INTO orders VALUES"
    " (10, 1, named_struct('sku', 'a1', 'qty', 2), array('x', 'y'), map('k', 1, 'j', 2), '2024-01-01'),"
    " (11, 1, named_struct('sku', 'b2', 'qty', null), array(), map(), '2024-01-02'),"
    " (12, 2, NULL, NULL, NULL, '2024-01-02')",
)
QUERIES = """
select id, upper(name) a, initcap(name) b, lpad(name, 5, '*') c, substring(name, -2) d, instr(name, 'n') e from staff
select id, regexp_replace(name, '[aeiou]', '_') a, split(name, 'n') b, concat_ws('-', name, dept) c from staff
select id, dayofweek(hired) a, weekofyear(hired) b, last_day(hired) c, date_trunc('month', seen) d from staff
select id, date_add(hired, 30) a, date_sub(hired, 1) b, datediff(date'2024-03-01', hired) d from staff
select id, date_format(seen, 'yyyy/MM/dd HH:mm') a, unix_timestamp(seen) b, hired + interval 1 month c from staff
select id, cast(seen as string) a, cast(hired as timestamp) b, cast(seen as date) c, cast(seen as bigint) d from staff
select id, salary * 1.1 a, salary / 3 b, salary % 7 c, round(salary, 1) d, cast(salary as string) e from staff
select dept, count(*) n, sum(salary) s, avg(salary) a, stddev(id) d, collect_list(id) l from staff group by dept
select dept, ok, count(*) n, grouping(dept) g from staff group by cube (dept, ok)
select id, rank() over (order by dept) r, avg(id) over (order by id rows 1 preceding) a from staff
select oid, item.sku a, item.qty + 1 b, tags[0] c, size(tags) d, attrs['k'] e, map_keys(attrs) f from orders
select oid, pos, t from orders lateral view posexplode(tags) x as pos, t
select oid, t from orders lateral view outer explode(tags) x as t
select oid, transform(tags, x -> upper(x)) a, filter(tags, x -> x > 'x') b, to_json(item) c from orders
select s.id, o.oid from staff s full outer join orders o on s.id = o.eid and o.d > '2024-01-01'
select s.id from staff s left anti join orders o on s.id = o.eid
with a as (select dept, sum(salary) s from staff group by dept) select * from a where s = (select max(s) from a)
select * from (select dept, id from staff) pivot (sum(id) for dept in ('eng', 'ops'))
select /*+ BROADCAST(o) */ count(*) n from staff s join orders o on s.id = o.eid
select from_utc_timestamp(seen, 'Asia/Tokyo') a, seen >= '2024-07-01' b from staff
""".strip().splitlines()
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
    finally:
        spark.conf.set(TIME_ZONE, before)


def ids(lake: Lake, table: str, condition: str) -> list[int]:
    found: list[int] = lake.sql(f"select id from {table} where {condition} order by id").to_arrow()["id"].to_pylist()
    return found
