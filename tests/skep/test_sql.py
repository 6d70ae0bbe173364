"""SQL over the tables of a lake."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from skep.lake import Lake
from skep_format.errors import CatalogError, InputError, StorageError, UnsupportedError
from skep_format.schema.types import META_FIELDS
from skep_sql.parsing.written import names_used

pytestmark = [pytest.mark.metastore, pytest.mark.spark]


@pytest.fixture
def tables(spark_lake: Lake, orders: Callable[..., pa.Table]) -> Lake:
    spark_lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day").upsert(
        pa.concat_tables([orders(1, 2), orders(3, day="2026-01-02")])
    )
    spark_lake.create_table("`names`", pa.schema([("id", pa.int64()), ("name", pa.string())]), key="id").upsert(
        pa.table({"id": [1, 3], "name": ["ann", "bob"]})
    )
    return spark_lake


def ask(lake: Lake, query: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = lake.sql(query).to_arrow().to_pylist()
    return answer


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select count(*) n from orders", [{"n": 3}]),
        ("select count(*) n from {db}.orders o where o.id > 1", [{"n": 2}]),
        ("select orders.id from orders where orders.day = '2026-01-02'", [{"id": 3}]),
        (
            "select o.id, n.name from orders o join {db}.names n on o.id = n.id order by 1",
            [{"id": 1, "name": "ann"}, {"id": 3, "name": "bob"}],
        ),
        ("with names as (select 7 as seven) select seven from names", [{"seven": 7}]),
        ("with t as (select id from orders) select max(id) m from t", [{"m": 3}]),
        ("select id from orders where id in (select id from names) order by id", [{"id": 1}, {"id": 3}]),
        ("select a.id from orders a, orders b where a.id = b.id and a.id = 2", [{"id": 2}]),
        ("select id from orders where id = 1 union all select id from names where id = 3", [{"id": 1}, {"id": 3}]),
        ("select `id` from `orders` where id = 1", [{"id": 1}]),
        ("select distinct _hoodie_partition_path p from orders order by p desc limit 1", [{"p": "2026-01-02"}]),
        ("select count(*) n from orders o join names using (id)", [{"n": 2}]),
        ("select ID from ORDERS where NOTE = 'first' and Day > '2026-01-01'", [{"ID": 3}]),
        ("select x from values (1), (2) as t(x) order by x", [{"x": 1}, {"x": 2}]),
    ],
)
def test_queries(tables: Lake, database: str, query: str, expected: list[dict[str, Any]]) -> None:
    assert ask(tables, query.format(db=database)) == expected


@pytest.mark.parametrize(
    ("query", "used"),
    [
        ("select Id, count(*) from t where `day` = 'x' group by 1", {"t", "id", "day"}),
        ("select a.place.city from t a", {"t", "a", "place", "city"}),
        ("select * from t", None),
        ("select t.* from t", None),
        ("select id from (select * from t)", None),
        ("select 1 from t natural join u", None),
        ("select * from t pivot (sum(a) for b in (1, 2))", None),
    ],
)
def test_only_columns_that_a_query_can_mean_are_read(query: str, used: set[str] | None) -> None:
    assert names_used(sqlglot.parse_one(query, read="spark")) == used


@pytest.mark.parametrize(
    ("query", "read", "rows"),
    [
        ("select id from orders", 2, 3),
        ("select id from orders where day = '2026-01-02'", 1, 1),
        ("select o.id from orders o join names n on o.id = n.id where o.day = '2026-01-02'", 1, 1),
        ("select id from orders where id = 3", 1, 1),  # the bloom filter of a base file
        ("select id from orders where day = '2026-01-02' or id = 1", 2, 2),
        ("select id from orders where day > '2027-01-01'", 0, 0),
    ],
)
def test_conditions_leave_out_files(tables: Lake, query: str, read: int, rows: int) -> None:
    answer = tables.sql(query)
    assert answer.to_arrow().num_rows == rows
    explained = answer.explain()
    assert f"orders: {read} of 2 file slices are read" in explained
    assert "== Physical Plan ==" in explained


def test_conditions_leave_out_files_of_an_earlier_time(tables: Lake) -> None:
    then = tables.table("orders").hudi.timeline.completed().instants[-1].requested_time
    answer = tables.sql(f"select id from orders timestamp as of '{then}' where day = '2026-01-02'")
    assert answer.to_arrow().num_rows == 1
    assert "orders: 1 of 2 file slices are read" in answer.explain()


def test_mentions_with_the_same_conditions_are_one_read(tables: Lake) -> None:
    answer = tables.sql("select a.id from orders a join orders b on a.id = b.id")
    assert answer.explain().count("file slices are read") == 1
    assert answer.to_arrow().num_rows == 3


def test_references_with_other_conditions_read_other_files(tables: Lake) -> None:
    query = (
        "select (select max(id) from orders where day = '2026-01-02') a, (select max(id) from orders where id < 3) b, "
        "(select count(*) from orders where day is null) c"
    )
    assert ask(tables, query) == [{"a": 3, "b": 2, "c": 0}]


def test_an_answer_comes_in_every_form(tables: Lake) -> None:
    answer = tables.sql("select id, name from names order by id")
    assert answer.to_pandas()["name"].tolist() == ["ann", "bob"]
    assert answer.to_polars()["id"].to_list() == [1, 3]
    assert [row.name for row in answer.to_spark().collect()] == ["ann", "bob"]


def test_an_empty_answer_keeps_its_columns(tables: Lake) -> None:
    answer = tables.sql("select id, name from names where id > 100").to_arrow()
    assert answer.num_rows == 0
    assert answer.schema.names == ["id", "name"]


def test_the_callers_views_are_left_alone(tables: Lake, spark: Any) -> None:
    spark.range(1).selectExpr("'mine' as name").createOrReplaceTempView("names")
    before = {view.name for view in spark.catalog.listTables()}
    try:
        assert len(ask(tables, "select * from names")) == 2
        assert spark.sql("select name from names").first()[0] == "mine"
        assert {view.name for view in spark.catalog.listTables()} == before
    finally:
        spark.catalog.dropTempView("names")


def test_a_query_sees_the_table_as_it_is_when_asked(tables: Lake) -> None:
    tables.table("names").upsert(pa.table({"id": [4], "name": ["eve"]}))
    assert ask(tables, "select count(*) n from names") == [{"n": 3}]


def test_an_answer_whose_files_were_cleaned_is_an_error(tables: Lake, orders: Callable[..., pa.Table]) -> None:
    table = tables.table("orders")
    native, merged = tables.sql("select id from orders"), tables.sql("select id from orders")
    merged._frame = table.read(where="id + 0 > 0").to_spark()
    for ts in (2, 3, 4):
        table.upsert(orders(1, ts=ts))
    assert table.clean(**{"hoodie.cleaner.commits.retained": 1}) is not None
    for answer in (native, merged):
        with pytest.raises(StorageError, match="clean"):
            answer.to_arrow()
    assert len(ask(tables, "select id from orders")) == 3


def test_each_name_of_a_merge_on_read_table_shows_its_view(
    spark_lake: Lake, database: str, orders: Callable[..., pa.Table]
) -> None:
    mor = spark_lake.create_table("m", orders(), key="id", ordering="ts", partition_by="day", type="mor")
    mor.bulk_insert(orders(1, 2))
    mor.upsert(pa.concat_tables([orders(2, ts=2), orders(1, ts=5)]))
    for name in ("m_ro", "`m_ro`", f"{database}.m_ro", f"`{database}`.`M_RO`"):
        assert ask(spark_lake, f"select sum(ts) n from {name}") == [{"n": 2}]
    for name in ("m", "m_rt", f"{database}.`m_rt`"):
        assert ask(spark_lake, f"select sum(ts) n from {name}") == [{"n": 7}]
    both = "select sum(m_rt.ts - m_ro.ts) n from m_ro join m_rt on m_ro.id = m_rt.id"
    assert ask(spark_lake, both) == [{"n": 5}]
    spark_lake.create_table("c", orders(), key="id").upsert(orders(1))
    with pytest.raises(CatalogError, match="c_ro"):
        spark_lake.sql("select * from c_ro")


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("select * from nix", CatalogError, "nix"),
        ("selec 1", InputError, "line 1, column 1: expected a statement, found 'selec'"),
        ("select nix from orders", InputError, "nix"),
        ("select 1; select 2", InputError, "one statement"),
        ("", InputError, "one statement"),
        ("select 1 from orders where", InputError, "can't be parsed"),
        ("create or replace table orders (id int)", UnsupportedError, "CREATE OR REPLACE TABLE"),
        ("select * from a.b.c", InputError, "database.table"),
    ],
)
def test_what_is_no_query_of_these_tables_is_refused(
    tables: Lake, query: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tables.sql(query)


def test_times_and_nested_values_come_back_as_they_were(spark_lake: Lake) -> None:
    moment = dt.datetime(2026, 3, 8, 7, 30, 0, 123456, dt.timezone.utc)  # in the night that New York lost an hour
    rows = pa.table(
        {
            "id": [1],
            "at": pa.array([moment], pa.timestamp("us", "UTC")),
            "local": pa.array([dt.datetime(2026, 3, 8, 2, 30)], pa.timestamp("us")),
            "day": [dt.date(2026, 3, 8)],
            "price": pa.array([Decimal("1.20")], pa.decimal128(10, 2)),
            "raw": [b"\x00\xff"],
            "tags": [["a", "b"]],
            "place": [{"city": "Delft", "seen": moment}],
        }
    )
    table = spark_lake.create_table("t", rows, key="id")
    table.upsert(rows)
    table.upsert(spark_lake.sql("select * from t").to_spark().drop(*META_FIELDS))
    names = ", ".join(rows.schema.names)
    assert ask(spark_lake, f"select {names} from t") == rows.to_pylist()
    assert table.read(columns=rows.schema.names).to_arrow().to_pylist() == rows.to_pylist()


def test_to_spark_reads_what_arrow_reads(tables: Lake) -> None:
    table = tables.table("orders")
    frame = table.read(where="id >= 2", columns=["id", "day"]).to_spark()
    assert sorted((row.id, row.day) for row in frame.collect()) == [(2, "2026-01-01"), (3, "2026-01-02")]
    assert table.read(limit=2).to_spark().count() == 2
