"""Slices with logs read through Spark: Python tasks read the columns and rows that Spark's plan needs, not all."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest

from skep_format.table_config import TableType
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import collect_arrow, jvm, to_spark
from skep_writer.reading.relation import ReadWarning

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("v", pa.string()),
        ("ok", pa.bool_()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
    ]
)
DAY, TIME = dt.date(2026, 3, 1), dt.datetime(2026, 3, 29, 0, 59, 59, 999_990, dt.timezone.utc)
TEXTS = ["", "a", "a, b", "[a]", "'", "é", None]


def rows(first: int, last: int, version: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{at}" for at in numbers],
            "part": [f"p{at % 4}" for at in numbers],
            "ts": [version] * len(numbers),
            "n": [None if at % 7 == 0 else at * version for at in numbers],
            "v": [TEXTS[at % len(TEXTS)] for at in numbers],
            "ok": [None if at % 5 == 0 else at % 2 == 0 for at in numbers],
            "x": [float("nan") if at % 3 == 0 else at / 2 for at in numbers],
            "day": [None if at % 11 == 0 else DAY + dt.timedelta(days=at) for at in numbers],
            "at": [TIME + dt.timedelta(microseconds=at) for at in numbers],
            "local": [TIME.replace(tzinfo=None) + dt.timedelta(hours=at) for at in numbers],
            "price": [None if at % 9 == 0 else Decimal(at) / 4 for at in numbers],
        },
        SCHEMA,
    )


@pytest.fixture
def table(make_table: Callable[..., HudiTable]) -> HudiTable:
    """60 rows in 4 partitions, of each some updated, deleted and inserted in logs."""
    made = make_table(SCHEMA, type=TableType.MERGE_ON_READ)
    LocalWriter(made).bulk_insert(rows(0, 60, 5))
    LocalWriter(made.reload()).upsert(rows(20, 40, 6))
    LocalWriter(made.reload()).upsert(rows(30, 35, 2))  # older than what is there
    LocalWriter(made.reload()).delete(rows(0, 8, 7).select(["id", "part"]))
    return made.reload()


def plan_text(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def rows_of_scans(plan: Any) -> int:
    """The rows that the tasks of a plan that ran handed to Spark."""
    nodes, found = [plan], 0
    while nodes:
        node = nodes.pop()
        metrics, children = node.metrics(), node.children()
        if children.size() == 0 and metrics.contains("numOutputRows"):
            found += int(metrics.apply("numOutputRows").value())
        nodes += [children.apply(at) for at in range(children.size())]
    return found


def in_order(rows: pa.Table) -> list[str]:
    """Spelled out, so that NaN equals NaN."""
    return sorted(map(str, rows.to_pylist()))


FILTERS = [
    "n = 25",
    "n <=> 25",
    "n is null",
    "n is not null and v <> 'a'",
    "n > 20 and n <= 100 or v = 'a, b'",
    "v in ('', '[a]', '''')",
    "v in ('a', null)",
    "v like 'a%'",
    "v like '%a'",
    "v like '%,%' or v not like '[%'",
    "id like 'k_'",
    "day > date '2026-03-20' and day <> date '2026-04-01'",
    "day in (date '2026-03-05', date '1500-01-01') or day < date '1500-01-01'",
    "at >= timestamp '2026-03-29 01:00:00Z' and at < timestamp '2026-03-29 01:00:00.000020Z'",
    "at in (timestamp '2026-03-29 01:00:00.000007Z', timestamp '0001-01-01 00:00:00Z')",
    "local = timestamp_ntz '2026-03-29 02:59:59.99999' or local > timestamp_ntz '2026-03-31 10:00:00'",
    "price >= 7.25 and price in (7.25, 10.5, 11)",
    "price > 12.125",
    "not (n > 100)",
    "ok",
    "ok = false or x > 3",
    "part = 'p1'",
    "part >= 'p2' and ts = 6L",
    "id = 'k5'",
    "_hoodie_record_key = 'k21'",
    "x = 'NaN'",
    "n in (" + ", ".join(map(str, range(0, 300, 5))) + ")",
]


@pytest.mark.parametrize("where", FILTERS)
def test_filters_and_columns_give_what_spark_makes_of_all_rows(where: str, table: HudiTable, spark: Any) -> None:
    every = read(table).to_arrow()
    spark_rows = spark.createDataFrame(
        [tuple(row.values()) for row in every.to_pylist()], to_frame(table, spark).schema
    )
    expected = spark_rows.where(where)
    found = to_frame(table, spark).where(where)
    for columns in (["id"], ["x", "n"], found.columns):
        assert in_order(collect_arrow(found.select(columns))) == in_order(collect_arrow(expected.select(columns)))
    assert found.count() == expected.count()


def to_frame(table: HudiTable, spark: Any, **request: Any) -> Any:
    return to_spark(table, ReadRequest(**request), spark)


def test_the_plan_shows_columns_and_filters_that_reach_the_tasks(table: HudiTable, spark: Any) -> None:
    text = plan_text(to_frame(table, spark).where("n > 3").select("v"))
    assert "Scan skep(4 file slices)" in text
    (columns,) = re.findall(r"ReadSchema: struct<(.*)>", text)
    assert sorted(columns.split(",")) == ["n:int", "v:string"]
    assert "GreaterThan(n,3)" in text


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("day = date '2026-03-20'", 1),
        ("at = timestamp '2026-03-29 01:00:00Z'", 1),
        ("local >= timestamp_ntz '2026-03-31 00:00:00'", 12),
        ("price in (2.5, 10.25)", 2),
        ("v like '%, b'", 8),
    ],
)
def test_tasks_leave_out_the_rows_that_filters_do(where: str, left: int, table: HudiTable, spark: Any) -> None:
    """Of 60 rows 52 are there; the tasks hand over those that match."""
    frame = to_frame(table, spark).where(where).select("id")
    assert frame.count() == left
    plan = frame._jdf.queryExecution().executedPlan()
    frame.collect()
    assert rows_of_scans(plan) == left


def test_slices_of_other_partitions_are_not_opened(table: HudiTable, spark: Any) -> None:
    frame = to_frame(table, spark)
    expected = [row["id"] for row in read(table, ReadRequest(where="part = 'p1'")).to_arrow().to_pylist()]
    for other in ("p0", "p2", "p3"):
        shutil.rmtree(Path(table.storage.root) / other)
    assert sorted(row.id for row in frame.where("part = 'p1'").select("id").collect()) == sorted(expected)
    with pytest.raises(Exception, match="p0"):
        frame.where("part = 'p0'").select("id").collect()


def test_a_filter_of_the_read_and_one_of_spark_both_hold(table: HudiTable, spark: Any) -> None:
    frame = to_frame(table, spark, where="n > 50", columns=("id", "v")).where("v = 'a'")
    expected = read(table, ReadRequest(where="n > 50 and v = 'a'", columns=("id", "v"))).to_arrow()
    assert expected.num_rows
    assert in_order(collect_arrow(frame)) == in_order(expected)


def test_one_frame_in_many_places_of_a_query(table: HudiTable, spark: Any) -> None:
    """Each place asks for other columns and rows; adaptive execution plans some of them again."""
    frame = to_frame(table, spark)
    left = frame.where("n > 100").select("id", "n")
    right = frame.where("v = 'a'").select("id", "v", "x")
    expected = read(table, ReadRequest(where="n > 100 and v = 'a'")).to_arrow()
    joined = left.hint("merge").join(right, "id")
    assert expected.num_rows
    assert sorted(row.id for row in joined.collect()) == sorted(expected["id"].to_pylist())
    count = read(table).count()
    assert frame.select("v").union(frame.select("part")).count() == 2 * count
    cached = frame.select("id", "part").cache()
    try:
        assert cached.count() == len({row.id for row in cached.collect()}) == count
        assert frame.select("id").count() == count
    finally:
        cached.unpersist()


def test_queries_of_several_threads(table: HudiTable, spark: Any) -> None:
    frame = to_frame(table, spark)
    found: dict[str, int] = {}

    def ask(part: str) -> None:
        found[part] = frame.where(f"part = '{part}'").count()

    threads = [threading.Thread(target=ask, args=(f"p{at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {f"p{at}": read(table, ReadRequest(where=f"part = 'p{at}'")).count() for at in range(4)}


def test_queries_leave_no_threads(table: HudiTable, spark: Any) -> None:
    frame = to_frame(table, spark)
    before = threading.active_count()
    counts = [collect_arrow(frame.where(f"n > {least}").select("id")).num_rows for least in range(0, 240, 20)]
    assert counts == sorted(counts, reverse=True)
    assert threading.active_count() - before <= 6  # four that plan; Py4J may add one that collects garbage


@pytest.mark.filterwarnings("ignore:distutils:DeprecationWarning")  # PySpark's, which `pytest.warns` gives again
def test_a_session_that_can_not_prune_reads_all_columns(
    table: HudiTable, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise RuntimeError("no compiler here")

    expected = in_order(read(table).to_arrow())
    assert "MapInArrow" not in plan_text(to_frame(table, spark))
    monkeypatch.setattr(jvm, "_made", WeakKeyDictionary())
    monkeypatch.setattr(jvm, "_compiled", refused)
    with pytest.warns(ReadWarning, match="no compiler here"):
        frame = to_frame(table, spark)
    assert "MapInArrow" in plan_text(frame)
    assert in_order(collect_arrow(frame)) == expected


def test_changes_of_commits(make_table: Callable[..., HudiTable], spark: Any) -> None:
    """CDC has tasks of its own, to which Spark's filters are not put."""
    made = make_table(SCHEMA, type=TableType.MERGE_ON_READ, properties={"hoodie.table.cdc.enabled": "true"})
    LocalWriter(made).bulk_insert(rows(0, 10, 1))
    LocalWriter(made.reload()).upsert(rows(5, 15, 2))
    made = made.reload()
    request = ReadRequest(query="cdc")  # type: ignore[arg-type]
    expected = [row["op"] for row in read(made, request).to_arrow().to_pylist()]
    frame = to_spark(made, request, spark)
    assert sorted(row.op for row in frame.select("op").collect()) == sorted(expected)
    assert frame.where("op = 'u'").count() == expected.count("u") > 0
    assert frame.count() == len(expected)
