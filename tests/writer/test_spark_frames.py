"""Frames of odd tables, and what a query does with frames: joined with themselves, united, cached, written back."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import spark_answers

from skep_format.schema.types import quoted
from skep_format.table_config import TableType
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.flow import EmptyPartitionWarning
from skep_table.write.indexes.memory import InMemoryWarning
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter, to_spark

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
BOTH = (TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ)
Make = Callable[..., HudiTable]


def rows(ids: Sequence[str], parts: Sequence[Any], ts: int = 1, kind: pa.DataType | None = None) -> pa.Table:
    part = pa.array([parts[at % len(parts)] for at in range(len(ids))], kind or pa.string())
    return pa.table({"id": ids, "part": part, "ts": [ts] * len(ids), "v": list(range(len(ids)))})


def keys(count: int, first: int = 0) -> list[str]:
    return [f"k{at:02}" for at in range(first, first + count)]


def same(table: HudiTable, spark: Any, **request: Any) -> None:
    assert spark_answers.difference(table.reload(), ReadRequest(**request), spark) is None


TEXTS = ["a b", "a=b", "part=x", "100%", "a%2Fb", "é中🐝", "[x]{y}", "a*?b", "a#b", "a+b", "'q\"", "a:b", "__x", ".x"]
PARTITIONS: dict[str, tuple[list[Any], pa.DataType]] = {
    "text": ([*TEXTS, None], pa.string()),
    "folders in folders": (["a/b", "a/c/d", "a"], pa.string()),
    "int": ([1, -7, 2**31 - 1, None], pa.int32()),
    "bigint": ([0, 2**62, None], pa.int64()),
    "date": ([dt.date(1899, 12, 31), dt.date(2026, 3, 29), None], pa.date32()),
    "boolean": ([True, False, None], pa.bool_()),
    "decimal": ([Decimal("1.50"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
    "double": ([0.5, -1e20, None], pa.float64()),
    "timestamp": ([dt.datetime(2026, 3, 29, 2, 30, 1, 5, dt.timezone.utc), None], pa.timestamp("us", "UTC")),
}
STYLES = {"plain": {}, "hive": {"hive_style": True}, "encoded": {"url_encode": True, "hive_style": True}}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_of_any_value_and_path(name: str, style: str, make_table: Make, spark: Any) -> None:
    """All rows, and those of each partition by a filter of Spark's on its value, as skep finds them without Spark."""
    values, kind = PARTITIONS[name]
    if style == "plain":
        values = [value for value in values if value not in (".x", "__x")]  # folders that engines leave out
    of_type = TableType.MERGE_ON_READ if style == "plain" else TableType.COPY_ON_WRITE  # values of files, of folders
    table = make_table(SCHEMA.set(1, pa.field("part", kind)), type=of_type, **STYLES[style])
    writer = LocalWriter(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyPartitionWarning)
        writer.bulk_insert(rows(keys(2 * len(values)), values, kind=kind))
        writer.upsert(rows(keys(1), values, 2, kind=kind))
    table = table.reload()
    same(table, spark)
    same(table, spark, columns=("part",))
    frame, found = to_spark(table, ReadRequest(), spark), read(table).to_arrow()
    values = pc.unique(found["part"]).to_pylist()
    conditions = [frame["part"].isNull() if value is None else frame["part"] == value for value in values]
    by_value = reduce(lambda one, other: one.union(other), map(frame.where, conditions))
    rows_found = spark_answers.rows_of(by_value, found.schema)
    assert spark_answers.unlike(rows_found, spark_answers.lines(found.to_batches())) is None


def test_odd_column_names(make_table: Make, spark: Any) -> None:
    schema = SCHEMA.set(3, pa.field("Vé_1", pa.int64()))
    table = make_table(schema)
    LocalWriter(table).bulk_insert(rows(keys(4), "ab").rename_columns(["id", "part", "ts", "Vé_1"]))
    same(table, spark)
    frame = to_spark(table.reload(), ReadRequest(), spark)
    assert frame.select(quoted("Vé_1")).where("`Vé_1` > 2").count() == 1


@pytest.mark.parametrize("kind", BOTH)
def test_a_table_without_rows(kind: TableType, make_table: Make, spark: Any) -> None:
    table = make_table(SCHEMA, type=kind)
    writer = LocalWriter(table)
    same(table, spark)
    writer.bulk_insert(rows(keys(4), "ab"))
    writer.delete(rows(keys(4), "ab").select(["id", "part"]))
    same(table, spark)
    frame = to_spark(table.reload(), ReadRequest(), spark)
    assert frame.count() == frame.where("part = 'a'").count() == 0
    same(table, spark, query="incremental")


def test_slices_of_logs_alone(make_table: Make, spark: Any) -> None:
    """As writers leave them whose index finds keys in log files: no base file in the slice."""
    table = make_table(SCHEMA, type=TableType.MERGE_ON_READ)
    in_memory = LocalWriter(table.with_options({"hoodie.index.type": "INMEMORY"}))
    for ts in (1, 2):
        given = rows(keys(20), "ab", ts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InMemoryWarning)
            in_memory.upsert(given.filter(pc.field("part") == "a"))
        LocalWriter(table).upsert(given.filter(pc.field("part") == "b"))
    table = table.reload()
    bases = [found.base_file for name in table.view().partitions() for found in table.view().slices(name)]
    assert sorted(base is None for base in bases) == [False, True]
    assert read(table).to_arrow().num_rows == 20
    for query in ("snapshot", "read_optimized", "incremental"):
        same(table, spark, query=query)
    assert to_spark(table, ReadRequest(), spark).where("part = 'a' and v < 4").count() == 2


@pytest.mark.parametrize("kind", BOTH)
def test_columns_that_were_added_and_widened(kind: TableType, make_table: Make, spark: Any) -> None:
    """Files of each generation, filters on the columns that changed among them."""
    table = make_table(SCHEMA.set(3, pa.field("v", pa.int32())), type=kind)
    evolving = LocalWriter(table.with_options({"hoodie.datasource.write.reconcile.schema": "true"}))
    narrow = rows(keys(6), "abc")
    evolving.bulk_insert(narrow.set_column(3, "v", narrow["v"].cast(pa.int32())))
    wide = rows(keys(2, 6), "ab", 2).append_column("note", pa.array(["x", "y"]))
    evolving.upsert(wide.set_column(3, "v", pa.array([2**40, 3], pa.int64())))
    evolving.upsert(rows(keys(1), "a", 3).append_column("note", pa.array(["z"])))
    table = table.reload()
    same(table, spark)
    for condition in ("v > 1", "note is null", "note = 'x'", "v = 1099511627776", "part = 'c' and note is null"):
        same(table, spark, where=condition)
        result = read(table, ReadRequest(where=condition))
        found = spark_answers.rows_of(to_spark(table, ReadRequest(), spark).where(condition), result.schema)
        assert spark_answers.unlike(found, spark_answers.lines(result.to_batches())) is None, condition
    first = str(next(iter(table.timeline.completed())).requested_time)
    same(table, spark, as_of=first)
    same(table, spark, query="incremental", since=first)


@pytest.mark.parametrize("kind", BOTH)
def test_partitions_that_were_deleted_and_replaced(kind: TableType, make_table: Make, spark: Any) -> None:
    table = make_table(SCHEMA, type=kind)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(keys(9), "abc"))
    before = str(table.reload().timeline.completed().last().requested_time)
    writer.upsert(rows(keys(3), "abc", 2))
    writer.delete_partitions(["b"])
    writer.insert_overwrite(rows(keys(2, 20), "a", 3))
    same(table, spark)
    same(table, spark, as_of=before)
    same(table, spark, query="incremental", since=before)
    frame = to_spark(table.reload(), ReadRequest(), spark)
    assert {row.part for row in frame.select("part").distinct().collect()} == {"a", "c"}


@pytest.mark.parametrize("kind", BOTH)
def test_frames_in_queries(kind: TableType, make_table: Make, spark: Any) -> None:
    """Joined with themselves, united with an earlier state, cached, in subqueries; each evaluation is of its moment."""
    table = make_table(SCHEMA, type=kind)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(keys(10), "ab"))
    early = to_spark(table.reload(), ReadRequest(), spark)
    before = str(table.reload().timeline.completed().last().requested_time)
    writer.upsert(rows(keys(5), "ab", 2))
    late = to_spark(table.reload(), ReadRequest(), spark)
    assert late.join(late, "id").count() == 10
    assert late.alias("x").join(late.alias("y"), on="part").where("x.v < y.v").count() == 20
    changed = early.alias("x").join(late.alias("y"), "id").where("x.ts < y.ts")
    assert sorted(row.id for row in changed.select("id").collect()) == keys(5)
    assert early.union(late).groupBy("ts").count().orderBy("ts").collect() == [(1, 15), (2, 5)]
    past = to_spark(table.reload(), ReadRequest(as_of=before), spark)
    assert past.exceptAll(early).count() == early.exceptAll(past).count() == 0
    assert late.select(*SCHEMA.names).subtract(early.select(*SCHEMA.names)).count() == 5
    kept = late.cache()
    try:
        assert kept.count() == 10
        writer.upsert(rows(keys(10), "ab", 3))
        assert kept.where("ts = 3").count() == 0
        now = to_spark(table.reload(), ReadRequest(), spark)
        assert now.where("ts = 3").count() == 10  # not the cached rows of the earlier state
    finally:
        kept.unpersist()
    now.createOrReplaceTempView("now_rows")
    assert spark.sql("select count(*) n from now_rows where v = (select max(v) from now_rows)").first().n == 1
    assert spark.sql("select id from now_rows order by id limit 3").collect() == [(key,) for key in keys(3)]
    spark.catalog.dropTempView("now_rows")


@pytest.mark.parametrize("kind", BOTH)
def test_a_frame_written_into_the_table_that_it_reads(kind: TableType, make_table: Make, spark: Any) -> None:
    table = make_table(SCHEMA, type=kind)
    LocalWriter(table).bulk_insert(rows(keys(10), "ab"))
    LocalWriter(table).upsert(rows(keys(4), "ab", 2))
    writer = SparkWriter(table, spark)
    for _ in range(2):
        frame = to_spark(table.reload(), ReadRequest(), spark).selectExpr("id", "part", "ts + 1 ts", "v * 2 v")
        writer.upsert(frame.where("part = 'a'"))
    found = {row["id"]: (row["ts"], row["v"]) for row in read(table.reload()).to_arrow().to_pylist()}
    doubled = {key: (4 if at < 4 else 3, 4 * at) for at, key in enumerate(keys(10)) if at % 2 == 0}
    untouched = {key: (2 if at < 4 else 1, at) for at, key in enumerate(keys(10)) if at % 2}
    assert found == doubled | untouched
    writer.insert_overwrite_table(to_spark(table.reload(), ReadRequest(), spark).select(*SCHEMA.names).where("v > 4"))
    same(table, spark)
    assert to_spark(table.reload(), ReadRequest(), spark).where("v <= 4").count() == 0
