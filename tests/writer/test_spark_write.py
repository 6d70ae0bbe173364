"""Spark frames into tables: every operation, every trap of the edge."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skep_format.errors import KeyFieldError, OptionError, RowErrors, SchemaError, UnsupportedError
from skep_format.options import Options
from skep_format.table_config import TableType
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.flow import NullInListWarning
from skep_table.write.planning.options import COLLECTED_BYTES
from skep_writer import SparkWriter, make_spark
from skep_writer.edge import arrow_schema, frame_schema, small_batches
from skep_writer.settings import session_settings
from skep_writer.writing.estimate import fitting_batches, is_small

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
DDL = "id string, part string, ts long, v string"
Make = Callable[..., HudiTable]
Snapshot = Callable[[HudiTable], dict[str, dict[str, Any]]]


HELD_BY_DRIVER = Options({"skep.spark.collect.max.bytes": "1000000"})
MOST_HELD = COLLECTED_BYTES.default


def frame(spark: Any, rows: list[tuple[Any, ...]], ddl: str = DDL) -> Any:
    return spark.createDataFrame(rows, ddl)


def values(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {key: row["v"] for key, row in found.items()}


@pytest.mark.parametrize("options", [None, HELD_BY_DRIVER], ids=["held by Spark", "held by the driver"])
def test_row_groups_without_a_changed_row_are_copied(
    options: Options | None, spark: Any, make_table: Make, snapshot: Snapshot
) -> None:
    """The first file has no dictionaries, as row groups that are encoded by later options have."""
    small = {**(options or {}), "hoodie.parquet.block.size": "4000"}
    table = make_table(SCHEMA)
    rows = [(f"k{at:03d}", "x", 1, f"v{at % 3}") for at in range(300)]
    plain = Options({**small, "hoodie.parquet.dictionary.enabled": "false"})
    SparkWriter(table.with_context(options=plain), spark).bulk_insert(frame(spark, rows).coalesce(1))
    changed = [(f"k{at:03d}", "x", 2, "new") for at in range(130, 134)]
    SparkWriter(table.with_context(options=Options(small)), spark).upsert(frame(spark, changed))
    (slice_,) = table.reload().view().slices("x")
    assert slice_.base_file is not None
    metadata = pq.read_metadata(f"{table.storage.root}/{slice_.base_file.path}")
    chunks = [metadata.row_group(at).column(metadata.num_columns - 1) for at in range(metadata.num_row_groups)]
    assert [chunk.path_in_schema for chunk in chunks] == ["v"] * len(chunks)
    assert [chunk.has_dictionary_page for chunk in chunks].count(True) == 1 < len(chunks)
    expected = {key: value for key, _, _, value in rows} | {key: value for key, _, _, value in changed}
    assert values(snapshot(table)) == expected


@pytest.mark.parametrize("options", [None, HELD_BY_DRIVER], ids=["held by Spark", "held by the driver"])
def test_insert_update_delete_and_keep(
    options: Options | None, spark: Any, make_table: Make, snapshot: Snapshot
) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table.with_context(options=options), spark)
    first = writer.bulk_insert(frame(spark, [("a", "x", 1, "a1"), ("b", "x", 1, "b1"), ("c", "y", 1, "c1")]))
    assert (first.inserted, first.updated, first.deleted) == (3, 0, 0)
    before = snapshot(table)
    changes = [
        ("a", "x", 2, "a2"),
        ("b", "x", 0, "late"),
        ("d", "x", 2, "d2"),
        ("d", "x", 3, "d3"),
        ("e", "z", 2, "e2"),
    ]
    second = writer.upsert(frame(spark, changes))
    assert (second.inserted, second.deleted, second.errors) == (2, 0, 0)
    found = snapshot(table)
    assert values(found) == {"a": "a2", "b": "b1", "c": "c1", "d": "d3", "e": "e2"}
    # a row that stays keeps its meta columns, but for the name of the file
    kept = {**before["b"], "_hoodie_file_name": found["b"]["_hoodie_file_name"]}
    assert found["b"] == kept
    assert found["a"]["_hoodie_commit_time"] == second.instant.requested_time
    third = writer.delete(frame(spark, [("a", "x"), ("c", "y"), ("nowhere", "x")], "id string, part string"))
    assert third.deleted == 2
    assert values(snapshot(table)) == {"b": "b1", "d": "d3", "e": "e2"}
    times = [instant.requested_time for instant in table.reload().timeline.instants]
    assert times == sorted(set(times))


def test_columns_go_by_name_and_a_new_one_is_added(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    writer.upsert(frame(spark, [("v1", 1, "a", "x")], "v string, ts long, id string, part string"))
    writer.upsert(frame(spark, [("v2", "x", "n", 2, "b")], "v string, part string, new string, ts long, id string"))
    found = snapshot(table)
    assert (found["a"]["v"], found["a"]["ts"], found["a"].get("new")) == ("v1", 1, None)
    assert (found["b"]["v"], found["b"]["ts"], found["b"]["new"]) == ("v2", 2, "n")
    assert table.reload().schema().names() == ("id", "part", "ts", "v", "new")


def test_every_type_survives(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    ddl = (
        "id string, part string, ts long, i int, sh short, d decimal(20,4), f float, dt date, at timestamp,"
        " nz timestamp_ntz, b binary, s struct<a:int,b:array<string>>, m map<string,double>, ok boolean"
    )
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
    row = (
        "a",
        "x",
        1,
        2,
        3,
        Decimal("12.3400"),
        1.5,
        dt.date(2024, 1, 2),
        at,
        at,
        b"\x00\xff",
        (1, ["p"]),
        {"k": 2.0},
        True,
    )
    nulls = ("b", "x", 1, *[None] * 11)
    given = spark.createDataFrame([row, nulls], ddl)
    table = make_table(frame_schema(given))
    writer = SparkWriter(table, spark)
    writer.bulk_insert(given)
    writer.upsert(given)
    found = snapshot(table)
    expected = at.astimezone(dt.timezone.utc).replace(tzinfo=dt.timezone.utc)
    assert found["a"]["d"] == Decimal("12.3400")
    assert found["a"]["nz"] == at
    assert found["a"]["at"].tzinfo is not None
    assert {type(found["a"]["at"]), type(expected)} == {dt.datetime}
    assert (found["a"]["s"], found["a"]["m"]) == ({"a": 1, "b": ["p"]}, [("k", 2.0)])
    assert (found["a"]["b"], found["a"]["dt"], found["a"]["sh"]) == (b"\x00\xff", dt.date(2024, 1, 2), 3)
    assert all(found["b"][name] is None for name in ("i", "d", "f", "dt", "at", "nz", "b", "s", "m", "ok"))


def test_many_groups_in_one_task_and_many_batches(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    """Several buckets a task, interleaved over batches and input tasks; each row lands in its own partition once."""
    table = make_table(SCHEMA)
    writer = SparkWriter(table.with_context(options=Options({"skep.spark.rows.per.batch": 50})), spark)
    rows = spark.range(2000).selectExpr("concat('k', id) id", "concat('p', id % 37) part", "1L ts", "concat('v', id) v")
    writer.upsert(rows.repartition(7))
    again = rows.selectExpr("id", "part", "2L ts", "concat('w', substr(id, 2)) v").repartition(5)
    result = writer.upsert(again)
    assert (result.updated, result.inserted) == (2000, 0)
    found = snapshot(table)
    assert values(found) == {f"k{at}": f"w{at}" for at in range(2000)}
    assert all(row["part"] == row["_hoodie_partition_path"] for row in found.values())
    seqnos = [row["_hoodie_commit_seqno"] for row in found.values()]
    assert len(set(seqnos)) == len(seqnos)


@pytest.mark.engine("spark")
def test_rows_of_megabytes(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    """Spark's cap counts rows: batches get as few rows as fit, and the session's setting is back afterwards."""
    table = make_table(SCHEMA)
    wide = spark.range(90, numPartitions=1).selectExpr(
        "concat('k', id) id", "'x' part", "1L ts", "repeat(cast(id % 10 as string), 3000000) v"
    )
    result = SparkWriter(table, spark).upsert(wide)
    assert result.inserted == 90
    assert {len(row["v"]) for row in snapshot(table).values()} == {3_000_000}
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


def test_a_few_files_come_to_the_driver_as_they_are(
    spark: Any, make_table: Make, snapshot: Snapshot, tmp_path: Path
) -> None:
    """What Spark's workers would have made of them is what is written."""
    spark.range(300, numPartitions=3).selectExpr(
        "concat('k', id) id", "if(id % 7 = 0, 'x', 'y') part", "id ts", "if(id % 5 = 0, null, repeat('v', id)) v",
        "timestamp_seconds(id * 100000) at", "timestamp_ntz'2024-03-10 02:30:00' local", "date'1969-12-31' day",
        "cast(id / 7 as decimal(12,3)) amount", "array(id, 1) list", "map('a', id) map",
        "named_struct('a', id, 'b', array('x')) struct", "cast('bytes' as binary) raw",
    ).write.parquet(str(tmp_path / "files"))  # fmt: skip
    files = spark.read.parquet(str(tmp_path / "files"))
    assert is_small(files, MOST_HELD)
    assert is_small(files.where("ts > 5").select("id", "v"), MOST_HELD)
    assert not is_small(files, 10_000)
    assert not is_small(files.selectExpr("id", "repeat(v, 1000000) v"), MOST_HELD)
    assert not is_small(files.repartition(3), MOST_HELD)
    assert not is_small(files.groupBy("part").count(), MOST_HELD)
    rows = []
    for options in (Options({COLLECTED_BYTES.key: MOST_HELD}), Options({COLLECTED_BYTES.key: 0})):
        table = make_table(arrow_schema(files.schema))
        assert SparkWriter(table.with_context(options=options), spark).upsert(files).inserted == 300
        assert SparkWriter(table.with_context(options=options), spark).upsert(files.where("ts < 90")).updated == 90
        found = snapshot(table).values()
        rows.append(sorted(str([row[name] for name in files.columns]) for row in found))
    assert rows[0] == rows[1]


def test_writes_of_several_threads_leave_the_session_as_it_was(spark: Any) -> None:
    """Their blocks overlap: none puts back what another has set, and nobody gets larger batches than it wants."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    numbers = spark.range(10)
    first, second = small_batches(spark), fitting_batches(numbers, 0)
    with ExitStack() as later:
        with first:
            assert spark.conf.get(key) == "8"
            later.enter_context(second)
            assert spark.conf.get(key) == "8"
        assert spark.conf.get(key) == "10000"
        with small_batches(SparkSession(spark.sparkContext, spark._jsparkSession)):
            assert spark.conf.get(key) == "8"
            with fitting_batches(numbers, 5):
                assert spark.conf.get(key) == "5"
            assert spark.conf.get(key) == "8"
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get(key) == "10000"


def test_batches_follow_the_width_of_the_rows(spark: Any) -> None:
    def rows(frame: Any, wanted: int = 0) -> int:
        with fitting_batches(frame, wanted):
            return int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))

    numbers = spark.range(10)
    assert rows(numbers) == 10_000
    assert rows(numbers.selectExpr("repeat('x', 10000000) v")) == 6
    assert rows(numbers.selectExpr("array(repeat('x', 100000)) v")) == 671
    assert rows(numbers.selectExpr("cast(id as string) v")) == 10_000
    shuffled = numbers.selectExpr("cast(id as string) v").repartition(2)
    assert rows(shuffled) == 256, "not measured: it would shuffle twice"
    assert rows(numbers, 7) == 7


def test_a_frame_that_reads_the_table_it_writes_to(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    writer.bulk_insert(frame(spark, [("a", "x", 1, "1"), ("b", "y", 1, "2")]))
    own = spark.read.option("basePath", table.storage.root).parquet(
        f"{table.storage.root}/x", f"{table.storage.root}/y"
    )
    writer.upsert(own.selectExpr("*").withColumn("ts", own.ts + 1).withColumn("v", own.v * 10))
    assert {key: float(value) for key, value in values(snapshot(table)).items()} == {"a": 10.0, "b": 20.0}


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "reader"])
def test_frames_of_the_driver(kind: str, spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    arrow = pa.table({"id": ["a", "b"], "part": ["x", "y"], "ts": [1, 1], "v": ["1", None]})
    given: Any = arrow
    if kind == "pandas":
        given = arrow.to_pandas()
    elif kind == "polars":
        given = pytest.importorskip("polars").from_arrow(arrow)
    elif kind == "reader":
        given = arrow.to_reader()
    table = make_table(SCHEMA)
    SparkWriter(table, spark).upsert(given)
    assert values(snapshot(table)) == {"a": "1", "b": None}


@pytest.mark.parametrize("kind", ["spark", "arrow"])
def test_names_match_as_in_the_sql_of_the_session(kind: str, spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    table = make_table(SCHEMA)
    given: Any = frame(spark, [("a", "x", 1, "1")], "ID string, part string, Ts long, v string")
    if kind == "arrow":
        given = pa.table({"ID": ["a"], "part": ["x"], "Ts": [1], "v": ["1"]})
    SparkWriter(table, spark).upsert(given)
    assert values(snapshot(table)) == {"a": "1"}
    with pytest.raises(KeyFieldError, match="ID differs from it in case only"):
        SparkWriter(table.with_context(options=Options({"skep.write.case.sensitive": True})), spark).upsert(given)
    with session_settings(spark, {"spark.sql.caseSensitive": "true"}), pytest.raises(KeyFieldError, match="ID differs"):
        SparkWriter(table, spark).upsert(given)


def test_members_match_as_in_the_sql_of_the_session(spark: Any, make_table: Make) -> None:
    member = pa.struct([("a", pa.int64()), ("B", pa.list_(pa.struct([("C", pa.string())])))])
    table = make_table(pa.schema([*SCHEMA, ("s", member)]))
    given = frame(spark, [("a", "x", 1, "1", (5, [("y",)]))], f"{DDL}, S struct<A: long, b: array<struct<c: string>>>")
    SparkWriter(table, spark).upsert(given)
    assert read(table.reload()).to_arrow()["s"].to_pylist() == [{"a": 5, "B": [{"C": "y"}]}]
    strict = table.reload().with_context(options=Options({"skep.write.case.sensitive": True}))
    with pytest.raises(SchemaError, match="case only"):
        SparkWriter(strict, spark).upsert(given.withColumnRenamed("S", "s"))


def test_a_null_in_a_list_is_written_with_one_warning(spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        writer.upsert(frame(spark, [("a", "x", 1, "1", [1, None])], DDL + ", l array<int>"))
    (found,) = [warning.message for warning in caught if warning.category is NullInListWarning]
    assert "lists of l" in str(found)
    assert "parquet.avro.write-old-list-structure=false" in str(found)


BAD = {
    "null key": (
        KeyFieldError,
        [("a", "x", 1, "1"), (None, "x", 1, "2"), ("", "y", 1, "3")],
        DDL,
        "null or empty in 2 rows",
    ),
    "no key column": (KeyFieldError, [("x", 1, "1")], "part string, ts long, v string", "key column id"),
    "no partition column": (KeyFieldError, [("a", 1, "1")], "id string, ts long, v string", "key column part"),
    "no ordering column": (KeyFieldError, [("a", "x", "1")], "id string, part string, v string", "ordering column ts"),
    "other type": (SchemaError, [("a", "x", [1], "1")], "id string, part string, ts array<int>, v string", "ts"),
    "outside": (KeyFieldError, [("a", "../x", 1, "1")], DDL, "can't be a folder"),
}


@pytest.mark.parametrize(
    ("case", "operation"),
    [
        (case, operation)
        for case in BAD
        for operation in ("bulk_insert", "insert", "upsert")
        if operation == "upsert" or case != "no ordering column"  # only an upsert compares
    ],
)
def test_bad_input_is_named_and_leaves_no_trace(
    case: str, operation: str, spark: Any, make_table: Make, all_files: Callable[[HudiTable], set[str]]
) -> None:
    kind, rows, ddl, message = BAD[case]
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    writer.bulk_insert(frame(spark, [("z", "x", 1, "z")]))
    before = all_files(table)
    with pytest.raises(kind, match=message):
        getattr(writer, operation)(frame(spark, rows, ddl))
    assert all_files(table) == before


def test_rows_that_fail_abort_the_write_or_are_left_out(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    table = make_table(SCHEMA)
    rows = frame(spark, [("a", "x", 1, "1"), ("b", "x", None, "2"), ("c", "y", 1, "3")])
    with pytest.raises(RowErrors) as caught:
        SparkWriter(table, spark).upsert(rows)
    assert caught.value.fields["errors"] == 1
    assert snapshot(table) == {}
    assert [instant.action.value for instant in table.reload().timeline.instants] == ["rollback"]
    result = SparkWriter(table.with_context(options=Options({"skep.write.commit.on.errors": True})), spark).upsert(rows)
    assert result.errors == 1
    assert sorted(snapshot(table)) == ["a", "c"]


def test_a_repeated_batch_is_a_no_op(spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    first = writer.insert(frame(spark, [("a", "x", 1, "1")]), batch_id="one")
    again = writer.insert(frame(spark, [("a", "x", 1, "1")]), batch_id="one")
    assert again.repeated
    assert again.instant == first.instant
    assert len(table.reload().timeline) == 1


def test_an_empty_frame_is_an_empty_commit(spark: Any, make_table: Make, snapshot: Snapshot) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    for operation in (writer.upsert, writer.insert, writer.bulk_insert):
        assert operation(frame(spark, [])).files == 0
    assert snapshot(table) == {}
    assert len(table.reload().timeline) == 3


def test_a_session_that_is_there_is_used_and_left_as_it_is(spark: Any, make_table: Make) -> None:
    assert make_spark(master="local[1]") is spark
    before = {row.key: row.value for row in spark.sql("SET").collect()}
    SparkWriter(make_table(SCHEMA), spark).upsert(frame(spark, [("a", "x", 1, "1")]))
    assert {row.key: row.value for row in spark.sql("SET").collect()} == before
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_spark_connect_is_refused_by_name(make_table: Make) -> None:
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(UnsupportedError, match="Spark Connect"):
        SparkWriter(make_table(SCHEMA), kind())


def test_unknown_values_of_options_are_refused(spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA)
    with pytest.raises(OptionError, match=r"hoodie\.parquet\.max\.file\.size"):
        SparkWriter(table.with_context(options=Options({"hoodie.parquet.max.file.size": "much"})), spark).upsert(
            frame(spark, [])
        )


@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize("options", [{}, HELD_BY_DRIVER], ids=["held by Spark", "held by the driver"])
def test_event_times_are_recorded(kind: TableType, options: Options, spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA, type=kind)
    writer = SparkWriter(
        table.with_context(options=Options({**options, "hoodie.payload.event.time.field": "ts"})), spark
    )
    start = 1_700_000_000_000

    def recorded(*rows: tuple[Any, ...]) -> dict[str, tuple[int | None, int | None]]:
        done = writer.upsert(frame(spark, list(rows)))
        stats = table.reload().commit_metadata(done.instant).partition_to_write_stats
        return {path: (stat.min_event_time, stat.max_event_time) for path, (stat,) in stats.items()}

    first = recorded(("a", "x", start + 5, "a"), ("b", "x", start + 2, "b"), ("c", "y", start + 9, "c"))
    assert first == {"x": (start + 2, start + 5), "y": (start + 9, start + 9)}
    assert recorded(("a", "x", start + 7, "a")) == {"x": (start + 7, start + 7)}
