"""Spark frames whose columns have other types than the table's, types that no table has, or odd names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SchemaError
from skep_format.options import Options
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_writer import SparkWriter, collect_arrow, frame_schema

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

Make = Callable[..., HudiTable]
Files = Callable[[HudiTable], set[str]]
EDGE = 2**53 + 1
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("ts", pa.int64()), ("n", pa.int64()), ("i", pa.int32())])
DDL = "id double, part double, ts string, n double, i double"


def rows_of(table: HudiTable, *names: str) -> list[tuple[Any, ...]]:
    found = read(table.reload(), ReadRequest(columns=names)).to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in names), strict=True), key=str)


def seeded(make_table: Make, spark: Any) -> HudiTable:
    table = make_table(SCHEMA)
    SparkWriter(table, spark).insert(pa.table([[1, 2], [7, 7], [10, 10], [EDGE, 1], [1, 1]], schema=SCHEMA))
    return table


@pytest.mark.parametrize(
    "options", [{}, {"skep.spark.collect.max.bytes": "1000000"}], ids=["by Spark", "by the driver"]
)
def test_rows_are_cast_before_keys_are_made(spark: Any, make_table: Make, options: dict[str, str]) -> None:
    table = seeded(make_table, spark)
    nan = float("nan")
    later = spark.createDataFrame(
        [(1.0, 7.0, "9", 5.0, 5.0), (2.0, 7.0, "11", nan, 2.0), (3.0, 8.0, "1", None, nan)], DDL
    )
    writer = SparkWriter(table.with_context(options=Options(options)), spark)
    writer.upsert(later)
    assert table.reload().schema() == table.schema()
    meta = ("_hoodie_record_key", "_hoodie_partition_path", "n", "i")
    assert rows_of(table, *meta) == [("1", "7", EDGE, 1), ("2", "7", None, 2), ("3", "8", None, None)]
    writer.delete(spark.createDataFrame([("1", 7.0), ("3", 8.0)], "id string, part double"))
    assert rows_of(table, "id", "part") == [(2, 7)]


def test_nulls_without_a_type_are_collected_with_their_number(spark: Any) -> None:
    """Spark's own Arrow data has lists of them with fewer values than it states."""
    values = ["array(null, null)", "array()", "array(array(), array(null))", "map()", "map('k', null)"]
    values += [
        "named_struct('x', null)",
        "array(named_struct('x', null, 'y', 1), named_struct('x', null, 'y', 2))",
        "null",
    ]
    frame = spark.sql(f"select {', '.join(f'{value} as c{at}' for at, value in enumerate(values))} from range(3)")
    found = collect_arrow(frame)
    found.validate(full=True)
    assert found.schema.names == frame_schema(frame).names
    one = [[None, None], [], [[], [None]], [], [("k", None)], {"x": None}, [{"x": None, "y": n} for n in (1, 2)], None]
    assert [list(row.values()) for row in found.to_pylist()] == [one] * 3
    assert found.schema.field("c0").type.value_type == pa.null()


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert", "delete"])
def test_a_value_that_would_change_is_refused(spark: Any, make_table: Make, all_files: Files, operation: str) -> None:
    table = seeded(make_table, spark)
    before = all_files(table)
    misfits = {"id": (2.5, 7.0, "9", 5.0, 5.0), "part": (2.0, 7.5, "9", 5.0, 5.0), "n": (2.0, 7.0, "9", 0.5, 5.0)}
    for name in ("id", "part") if operation == "delete" else misfits:
        rows = [(1.0, 7.0, "9", 5.0, 5.0), misfits[name]]
        with pytest.raises(SchemaError, match=rf"column {name}: \d\.5 of type double does not fit") as refused:
            getattr(SparkWriter(table, spark), operation)(spark.createDataFrame(rows, DDL))
        assert refused.value.fields["column"] == name
    assert {each for each in all_files(table) if not each.startswith(".hoodie")} == {
        each for each in before if not each.startswith(".hoodie")
    }
    assert len(table.reload().timeline.data().instants) == 1


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_column_widens_when_a_value_needs_it(spark: Any, make_table: Make, operation: str) -> None:
    table = seeded(make_table, spark)
    getattr(SparkWriter(table, spark), operation)(spark.createDataFrame([(3.0, 7.0, "9", 5.0, 0.5)], DDL))
    schema = read(table.reload(), ReadRequest()).schema
    assert (schema.field("n").type, schema.field("i").type) == (pa.int64(), pa.float64())
    assert rows_of(table, "id", "n", "i") == [(1, EDGE, 1.0), (2, 1, 1.0), (3, 5, 0.5)]


def test_columns_of_nulls_take_the_type_of_the_table(spark: Any, make_table: Make) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    table = make_table(
        pa.schema([("id", pa.string()), ("x", pa.int64()), ("s", inner)]), partition_by=(), ordering=None
    )
    frame = spark.sql("select 'k' id, null x, named_struct('a', 1, 'b', null) s, null extra")
    with pytest.raises(SchemaError, match="column extra has no type"):
        SparkWriter(table, spark).upsert(frame)
    SparkWriter(table.with_context(options=Options({"skep.write.drop.untyped.columns": "true"})), spark).upsert(frame)
    SparkWriter(table, spark).bulk_insert(frame.drop("extra"))
    assert rows_of(table, "id", "x", "s") == [("k", None, {"a": 1, "b": None})] * 2
    assert table.reload().schema() == table.schema()


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("interval '1' month", "interval month"),
        ("array(interval '1' month)", "array<interval month>"),
        ("make_interval(1, 2, 3)", "interval"),
        ("named_struct('x', make_interval(1, 2, 3))", "struct<x:interval>"),
        ("interval '1' day", "duration"),
        ("map(1, 2)", "map<int32"),
    ],
)
def test_a_type_that_no_table_has_is_refused_by_column(spark: Any, make_table: Make, column: str, found: str) -> None:
    from skep.base.schemas import schema_of

    frame = spark.sql(f"select 'k' id, {column} `an odd.one`")
    with pytest.raises(SchemaError, match=r"column an odd\.one") as refused:
        schema_of(frame, "t")
    assert str(refused.value.fields["found"]).startswith(found)
    table = make_table(pa.schema([("id", pa.string())]), partition_by=(), ordering=None)
    with pytest.raises(SchemaError, match=r"column an odd\.one"):
        SparkWriter(table, spark).upsert(frame)


def test_vectors_are_written_as_what_they_are_stored_in(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    schema = frame_schema(spark.createDataFrame([("k", Vectors.dense([1.0]))], ["id", "v"]))
    assert pa.types.is_struct(schema.field("v").type)


@pytest.mark.parametrize("name", ["a.b", "p`q"])
def test_names_that_avro_forbids_are_refused(name: str, spark: Any, make_table: Make) -> None:
    table = make_table(pa.schema([("id", pa.string())]), partition_by=(), ordering=None)
    with pytest.raises(SchemaError, match="has no name"):
        SparkWriter(table, spark).upsert(spark.createDataFrame([("k", "v")], ["id", name]))
    assert not table.reload().timeline.instants


def test_rows_are_sorted_as_the_table_has_them(spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA, partition_by=())
    options = Options(
        {"hoodie.bulkinsert.user.defined.partitioner.sort.columns": "ts", "hoodie.bulkinsert.shuffle.parallelism": "1"}
    )
    rows = [(1.0, 7.0, "9", 5.0, 5.0), (2.0, 7.0, "11", 5.0, 5.0), (3.0, 7.0, "10", 5.0, 5.0)]
    SparkWriter(table.with_context(options=options), spark).bulk_insert(spark.createDataFrame(rows, DDL))
    assert read(table.reload(), ReadRequest(columns=("ts",))).to_arrow()["ts"].to_pylist() == [9, 10, 11]
