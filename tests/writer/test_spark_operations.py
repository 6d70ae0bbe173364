"""What Spark does with the operations, indexes and arrangements that the thread engine's tests describe."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import KeyFieldError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge.rows import DELETED
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.flow import EmptyPartitionWarning
from skep_writer import SparkWriter
from skep_writer.edge import frame_schema

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
Content = list[tuple[str, str, int]]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return new_table(tmp_path / "t")


def new_table(path: Path, kind: TableType = TableType.COPY_ON_WRITE) -> HudiTable:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    return create_table(LocalStorage(str(path)), spec)


def frame(spark: Any, *values: tuple[str, str, int, int], tasks: int = 3) -> Any:
    return spark.createDataFrame(list(values), "id string, part string, ts bigint, v bigint").repartition(tasks)


def many(spark: Any, ts: int, count: int = 60, shift: int = 0) -> Any:
    return frame(spark, *[(f"k{at:03d}", f"p{(at + shift) % 3}", ts, at) for at in range(count)])


def content(table: HudiTable) -> Content:
    found = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["_hoodie_partition_path"], row["v"]) for row in found)


def by_file(table: HudiTable, column: str) -> dict[str, list[Any]]:
    """The values in each file, in the order of its rows."""
    stored = read(table.reload(), ReadRequest()).to_arrow()
    found: dict[str, list[Any]] = {}
    for name, value in zip(stored["_hoodie_file_name"].to_pylist(), stored[column].to_pylist(), strict=True):
        found.setdefault(name, []).append(value)
    return found


def write(table: HudiTable, spark: Any, operation: str, rows: Any, *, how: Any = None, **options: Any) -> Any:
    return getattr(SparkWriter(table.with_context(options=Options(options)), spark), operation)(rows, **(how or {}))


def test_partitions_and_tables_are_overwritten(table: HudiTable, spark: Any) -> None:
    write(table, spark, "bulk_insert", many(spark, 1))
    write(table, spark, "insert_overwrite", frame(spark, ("x", "p0", 1, 1)))
    left = [(f"k{at:03d}", f"p{at % 3}", at) for at in range(60) if at % 3]
    assert content(table) == sorted([*left, ("x", "p0", 1)])
    write(table, spark, "insert_overwrite_table", frame(spark, ("y", "p1", 1, 2)))
    assert content(table) == [("y", "p1", 2)]


@pytest.mark.parametrize("kind", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ])
def test_rows_move_with_a_global_index(tmp_path: Path, spark: Any, kind: TableType) -> None:
    table, index = new_table(tmp_path / "moved", kind), {"hoodie.index.type": "GLOBAL_BLOOM"}
    write(table, spark, "upsert", many(spark, 2), **index)
    late = frame(spark, ("k001", "p9", 1, -1), ("k001", "p8", 0, -2))
    write(table, spark, "upsert", late, **index)
    assert len(content(table)) == 60
    write(table, spark, "upsert", many(spark, 3, shift=1), **index)
    assert content(table) == [(f"k{at:03d}", f"p{(at + 1) % 3}", at) for at in range(60)]
    stay = {**index, "hoodie.bloom.index.update.partition.path": False}
    write(table, spark, "upsert", many(spark, 4, count=80, shift=2), **stay)
    expected = [(f"k{at:03d}", f"p{(at + (1 if at < 60 else 2)) % 3}", at) for at in range(80)]
    assert content(table) == expected
    write(table, spark, "delete", many(spark, 5, count=70), **index)
    assert content(table) == expected[70:]


def test_buckets(table: HudiTable, spark: Any) -> None:
    index = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
    for operation, ts in (("bulk_insert", 1), ("upsert", 2)):
        write(table, spark, operation, many(spark, ts), **index)
        assert [len(table.reload().view().slices(f"p{at}")) for at in range(3)] == [2, 2, 2]
    assert len(content(table)) == 60


def test_prepped_rows(table: HudiTable, spark: Any) -> None:
    from skep_writer import to_spark

    write(table, spark, "bulk_insert", many(spark, 1))
    before = to_spark(table.reload(), ReadRequest(where="v < 10"), spark)
    result = write(table, spark, "delete", before, how={"prepped": True})
    assert result.deleted == 10
    assert len(content(table)) == 50


@pytest.mark.parametrize("index", ["BLOOM", "GLOBAL_BLOOM"])
def test_prepped_rows_that_name_no_file_are_looked_up(tmp_path: Path, spark: Any, index: str) -> None:
    """A log deleted their keys, which the base file holds still: they would be in two file groups."""
    from pyspark.sql import functions

    from skep_writer import to_spark

    table, options = new_table(tmp_path / "t", TableType.MERGE_ON_READ), {"hoodie.index.type": index}
    write(table, spark, "upsert", many(spark, 1, count=6), **options)
    stored = to_spark(table.reload(), ReadRequest(), spark).withColumn("v", functions.col("v") + 10)
    is_new = functions.col("v") < 13
    name = functions.when(~is_new, functions.col("_hoodie_file_name"))
    given = stored.withColumn("_hoodie_file_name", name)
    write(table, spark, "delete", stored.where(is_new), **options)
    write(table, spark, "upsert", given, how={"prepped": True}, **options)
    assert content(table) == [(f"k{at:03d}", f"p{at % 3}", at + 10) for at in range(6)]
    write(table, spark, "upsert", many(spark, 2, count=6), **options)
    assert content(table) == [(f"k{at:03d}", f"p{at % 3}", at) for at in range(6)]


@pytest.mark.parametrize("kind", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ])
def test_new_rows_of_a_change_are_looked_up(tmp_path: Path, spark: Any, kind: TableType) -> None:
    """As MERGE makes them, on the driver: in one of eight partitions at least an upsert would find the other group."""
    table = new_table(tmp_path / "t", kind)
    place = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")

    def each(ts: int) -> dict[str, list[Any]]:
        columns = [(f"k{at}", f"p{at}", ts, ts) for at in range(8)]
        return dict(zip(SCHEMA.names, map(list, zip(*columns, strict=True)), strict=True))

    write(table, spark, "upsert", pa.table(each(1)))
    write(table, spark, "delete", pa.table(each(1)))
    new = {**dict.fromkeys(place, [None] * 8), **each(2), DELETED: [False] * 8}
    write(table, spark, "change", lambda _: pa.table(new))
    write(table, spark, "upsert", pa.table(each(3)))
    assert content(table) == [(f"k{at}", f"p{at}", 3) for at in range(8)]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_duplicates_are_left_out(table: HudiTable, spark: Any, operation: str) -> None:
    write(table, spark, "insert", many(spark, 1))
    drop = {"hoodie.datasource.insert.dup.policy": "drop"}
    result = write(table, spark, operation, many(spark, 2, count=70), **drop)
    assert (result.inserted, len(content(table))) == (10, 70)


@pytest.mark.parametrize(
    "mode", ["GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"]
)
def test_bulk_insert_arranges_rows(table: HudiTable, spark: Any, mode: str) -> None:
    options = {"hoodie.bulkinsert.sort.mode": mode, "hoodie.bulkinsert.shuffle.parallelism": 4}
    result = write(table, spark, "bulk_insert", many(spark, 1, count=3_000), **options)
    assert result.inserted == 3_000
    files = by_file(table, "id")
    if mode.startswith("PARTITION_PATH"):
        assert len(files) == 3
    else:
        assert all(keys == sorted(keys) for keys in files.values())
    if mode == "GLOBAL_SORT":
        assert len(files) <= 3 + 4 - 1, "a range lies in one partition but for its ends"


@pytest.mark.parametrize("mode", ["PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"])
def test_each_partition_has_one_file_however_many_there_are(table: HudiTable, spark: Any, mode: str) -> None:
    rows = frame(spark, *[(f"k{at}", f"p{at % 700}", 1, at) for at in range(2_100)])
    options = {"hoodie.bulkinsert.sort.mode": mode, "hoodie.bulkinsert.shuffle.parallelism": 2}
    result = write(table, spark, "bulk_insert", rows, **options)
    assert (len(result.partitions), result.files) == (700, 700)


@pytest.mark.parametrize("mode", ["GLOBAL_SORT", "PARTITION_SORT"])
@pytest.mark.parametrize(
    ("spec", "properties"),
    [
        ({"record_key": ("n",)}, {}),
        ({"record_key": ("n", "id"), "partition_by": ("part", "flag")}, {}),
        ({"record_key": ("id",), "partition_by": ()}, {}),
        # what Spark can't express is sorted in Python
        (
            {"record_key": ("id",), "partition_by": ("n",), "key_generator": "TIMESTAMP"},
            {
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                "hoodie.keygen.timebased.output.dateformat": "ss",
            },
        ),
        ({"record_key": ("price",), "partition_by": ("part",)}, {}),
    ],
    ids=["number", "complex", "unpartitioned", "timestamp", "decimal"],
)
def test_sorted_files_are_in_the_order_of_their_keys(
    tmp_path: Path, spark: Any, mode: str, spec: dict[str, Any], properties: dict[str, str]
) -> None:
    columns = "id string, n int, price decimal(9,2), part string, flag boolean, ts bigint"
    values = [
        (
            None if at == 5 and len(spec["record_key"]) > 1 else f"k {at}+" if at % 2 else f"k {at}",
            at,
            Decimal(at),
            f"p{at % 3}",
            at % 2 == 0,
            at,
        )
        for at in range(0, 3_000, 7)
    ]
    rows = spark.createDataFrame(values, columns).repartition(3)
    wanted: dict[str, Any] = {"partition_by": ("part",), "ordering": "ts", "properties": properties, **spec}
    table = create_table(
        LocalStorage(str(tmp_path / "sorted")), TableSpec(name="t", schema=frame_schema(rows), **wanted)
    )
    options = {"hoodie.bulkinsert.sort.mode": mode, "hoodie.bulkinsert.shuffle.parallelism": 2, **properties}
    assert write(table, spark, "bulk_insert", rows, **options).inserted == len(values)
    files = by_file(table, "_hoodie_record_key")
    assert all(keys == sorted(keys) for keys in files.values())
    assert any(len(keys) > 10 for keys in files.values())


def test_bulk_insert_sorts_by_columns(table: HudiTable, spark: Any) -> None:
    options = {"hoodie.bulkinsert.user.defined.partitioner.sort.columns": "v"}
    write(table, spark, "bulk_insert", many(spark, 1, count=500), **options)
    files = by_file(table, "v")
    assert all(values == sorted(values) for values in files.values())


@pytest.mark.parametrize("kind", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ])
def test_tables_that_keep_neither_keys_nor_partition_columns(tmp_path: Path, spark: Any, kind: TableType) -> None:
    lean = {"hoodie.populate.meta.fields": "false", "hoodie.datasource.write.drop.partition.columns": "true"}
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind, properties=lean
    )
    table = create_table(LocalStorage(str(tmp_path / "lean")), spec)
    write(table, spark, "bulk_insert", many(spark, 1))
    write(table, spark, "upsert", many(spark, 2, count=80))
    write(table, spark, "delete", many(spark, 3, count=10).select("part", "id"))
    found = read(table.reload(), ReadRequest()).to_arrow()
    assert found.schema.names == ["id", "ts", "v", "part"]
    assert sorted(map(tuple, found.select(["id", "part", "ts", "v"]).to_pandas().itertuples(index=False))) == [
        (f"k{at:03d}", f"p{at % 3}", 2, at) for at in range(10, 80)
    ]


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_keys_that_can_not_be_distinguished_are_refused_in_tasks(operation: str, tmp_path: Path, spark: Any) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id", "part"), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    two = frame(spark, ("x,part:y", "z", 1, 1), ("x", "y,part:z", 1, 2))
    with pytest.raises(KeyFieldError, match=r"column id: 'x,part:y'"):
        write(table, spark, operation, two)
    assert not table.reload().timeline.completed().instants
    write(table, spark, operation, two, **{"skep.write.ambiguous.keys": "allow"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write(table, spark, operation, frame(spark, ("a", "", 1, 1)))
    (found,) = [each for each in caught if each.category is EmptyPartitionWarning]
    assert "partition column part" in str(found.message)
