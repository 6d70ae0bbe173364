"""Spark's own scan over given files: which of them it reads, and what it reads of them."""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import UnsupportedError
from skep_format.schema.types import META_FIELDS
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import collect_arrow, jvm, to_spark
from skep_writer.reading import native, relation
from skep_writer.reading.relation import Folder, ReadWarning, file_frame

pytestmark = pytest.mark.spark


def struct(**columns: str) -> Any:
    from pyspark.sql.types import StructType

    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


def frame_of(
    spark: Any, folders: list[Folder], data: Any, of_folders: Any, options: dict[str, str], *, in_files: bool = False
) -> Any:
    """All columns of the files, then those of the folders that files don't have."""
    result = [f"`{name}`" for name in dict.fromkeys([*data.names, *of_folders.names])]
    return file_frame(spark, folders, data, of_folders, result, options, in_files=in_files)


def planned(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_native(frame: Any) -> bool:
    """Whether no row of a frame passes through Python."""
    return not any(sign in planned(frame) for sign in ("Scan skep", "MapInArrow", "mapInArrow"))


def files_read(frame: Any) -> int:
    """The files that the scans of a frame open, by Spark's own count."""
    frame.collect()
    plan, found = frame._jdf.queryExecution().executedPlan(), 0
    nodes = [plan.finalPhysicalPlan() if hasattr(plan, "finalPhysicalPlan") and "Adaptive" in plan.nodeName() else plan]
    while nodes:
        node = nodes.pop()
        metrics = node.metrics()
        if metrics.contains("numFiles"):
            found += int(metrics.apply("numFiles").value())
        children = node.children()
        nodes += [children.apply(at) for at in range(children.size())]
    return found


@contextmanager
def warned(text: str) -> Iterator[None]:
    """Of a block that gives this ReadWarning; PySpark's own warnings don't count."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert any(each.category is ReadWarning and text in str(each.message) for each in caught)


ODD = ["plain", "a b", "50%", "p=1", "x[y", "{z}", "a%20b", "ü", "q?*", "back\\slash", "c#d", "e+f", "a:b"]


def test_folders_of_any_name_have_the_values_given(tmp_path: Path, spark: Any) -> None:
    folders = []
    for number, name in enumerate(ODD):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [number]}), tmp_path / name / "f.parquet")
        size = (tmp_path / name / "f.parquet").stat().st_size
        folders.append(Folder(f"file://{tmp_path}/{name}", (name,), (("f.parquet", size),)))
    frame = frame_of(spark, folders, struct(n="long"), struct(part="string"), {})
    assert {row.part: row.n for row in frame.collect()} == {name: number for number, name in enumerate(ODD)}
    assert files_read(frame.where("part = '50%'")) == 1


def test_partition_columns_have_any_type(tmp_path: Path, spark: Any) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "f.parquet")
    files = (("f.parquet", (tmp_path / "f.parquet").stat().st_size),)
    values: dict[str, tuple[str, object]] = {
        "text": ("string", "é"),
        "whole": ("integer", -3),
        "long": ("long", 1 << 40),
        "small": ("long", 7),
        "real": ("double", 0.5),
        "single": ("float", 0.25),
        "exact": ("decimal(20,3)", Decimal("-12345678901234567.891")),
        "flag": ("boolean", True),
        "day": ("date", dt.date(1400, 2, 28)),
        "at": ("timestamp", dt.datetime(2026, 3, 8, 7, 30, 0, 123456, dt.timezone.utc)),
        "local": ("timestamp_ntz", dt.datetime(2026, 3, 8, 2, 30)),
        "raw": ("binary", b"\x00\xff"),
        "nothing": ("date", None),
    }
    folder = Folder(f"file://{tmp_path}", tuple(value for _, value in values.values()), files)
    kinds = struct(**{name: kind for name, (kind, _) in values.items()})
    (found,) = collect_arrow(frame_of(spark, [folder], struct(n="long"), kinds, {})).to_pylist()
    assert found == {"n": 1, **{name: value for name, (_, value) in values.items()}}


def test_storage_is_not_asked_for_a_plan(spark: Any) -> None:
    """Neither folders nor files are there: only what is left by a filter is opened."""
    folders = [
        Folder(f"file:///nowhere/{at}", (at,), tuple((f"{file}.parquet", 1000) for file in range(10)))
        for at in range(50)
    ]
    frame = frame_of(spark, folders, struct(n="long"), struct(part="integer"), {})
    left = frame.where("part = 7").select("n")
    plan = planned(left)
    assert "PartitionFilters: [isnotnull(part" in plan
    assert "Join" not in plan
    assert planned(frame.where("part > 49")).count("FileScan") == 1
    assert frame.where("part > 49").collect() == []
    with pytest.raises(Exception, match=r"nowhere/7/"):
        left.collect()


def test_values_that_files_have_too_leave_out_folders(spark: Any) -> None:
    """No file is there: one that a filter leaves would be opened."""
    folders = [Folder(f"file:///nowhere/{at}", (at, f"p{at}"), (("f.parquet", 1000),)) for at in range(10)]
    data, in_files = struct(n="long", number="integer", part="string"), struct(number="integer", part="string")
    frame = frame_of(spark, folders, data, in_files, {}, in_files=True)
    assert frame.columns == ["n", "number", "part"]
    for condition in ("number > 9", "upper(part) = 'P77'", "part = 'p1' and number = 2", "part is null and n = 1"):
        assert frame.where(condition).collect() == []
    for condition in ("number = 7", "n = 7 and part like '%7'", "part = 'p7' and rand() > -1", "number * 2 = 14"):
        with pytest.raises(Exception, match=r"nowhere/7/"):
            frame.where(condition).collect()
    with pytest.raises(Exception, match=r"nowhere/\d/"):
        frame.where(f"number = (select max(id) + 10 from range({folders[0].files[0][1]}))").collect()


def test_frames_of_no_files_and_of_no_partition_columns(tmp_path: Path, spark: Any) -> None:
    assert frame_of(spark, [], struct(n="long"), struct(part="integer"), {}).columns == ["n", "part"]
    assert frame_of(spark, [], struct(n="long"), struct(), {}).count() == 0
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "f.parquet")
    size = (tmp_path / "f.parquet").stat().st_size
    whole = Folder(f"file://{tmp_path}", (), (("f.parquet", size),))
    assert frame_of(spark, [whole], struct(n="long"), struct(), {}).count() == 2


def test_a_refresh_lists_the_same_files(tmp_path: Path, spark: Any) -> None:
    """Spark lists again what a cached frame reads when its folder is refreshed: new files there are not the frame's."""
    pq.write_table(pa.table({"n": [1]}), tmp_path / "f.parquet")
    size = (tmp_path / "f.parquet").stat().st_size
    folder = Folder(f"file://{tmp_path}", (5,), (("f.parquet", size),))
    frame = frame_of(spark, [folder], struct(n="long"), struct(part="integer"), {}).cache()
    try:
        assert frame.count() == 1
        pq.write_table(pa.table({"n": [2]}), tmp_path / "g.parquet")
        spark.catalog.refreshByPath(str(tmp_path))
        assert [(row.n, row.part) for row in frame.collect()] == [(1, 5)]
    finally:
        frame.unpersist()


@pytest.fixture
def partitioned(make_table: Callable[..., HudiTable]) -> HudiTable:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
    table = make_table(schema)
    rows = [
        {"id": f"{at}", "part": f"p{at % 20}", "ts": at, "v": float("nan") if at % 7 == 0 else at} for at in range(60)
    ]
    LocalWriter(table).bulk_insert(pa.Table.from_pylist(rows, schema))
    return table.reload()


def test_a_filter_on_partitions_opens_their_files_only(partitioned: HudiTable, spark: Any) -> None:
    frame = to_spark(partitioned, ReadRequest(), spark)
    assert files_read(frame) == 20
    assert files_read(frame.where("part = 'p3'")) == 1
    assert files_read(frame.where("part in ('p3', 'p4') and ts > 0")) == 2
    assert "Join" not in planned(frame)


@pytest.mark.parametrize(
    ("where", "alone"),
    [
        ("part = 'p3'", True),
        ("ts >= 20 and not (part = 'p1' or id is null)", True),
        ("id in ('3', '4', '99') or ts between 7 and 9", True),
        ("v > 30", False),  # NaN
        ("v is not null", True),
        ("part like 'p1%'", True),
        ("part not like 'p1%' and id like '1%'", True),
        ("part like '%1'", False),
        ("ts + 1 > 20", False),
    ],
)
def test_a_filter_of_the_read_gives_the_same_rows(where: str, alone: bool, partitioned: HudiTable, spark: Any) -> None:
    request = ReadRequest(where=where, columns=("id", "ts"))
    frame = to_spark(partitioned, request, spark)
    expected = read(partitioned, request).to_arrow().sort_by("id")
    assert collect_arrow(frame).sort_by("id").cast(expected.schema) == expected
    assert is_native(frame) == alone


def test_without_sparks_internals_the_answer_is_the_same(
    partitioned: HudiTable, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_: object) -> None:
        raise TypeError("InMemoryFileIndex has another constructor")

    monkeypatch.setattr(jvm, "_made", WeakKeyDictionary())
    monkeypatch.setattr(jvm, "_compiled", changed)
    request = ReadRequest(columns=("id", "part", "ts"))
    with warned("InMemoryFileIndex has another constructor"):
        frame = to_spark(partitioned, request, spark)
    expected = read(partitioned, request).to_arrow().sort_by("id")
    assert collect_arrow(frame).sort_by("id").cast(expected.schema) == expected


def test_storage_that_the_session_does_not_reach_is_read_by_tasks(
    partitioned: HudiTable, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(*_: object) -> str:
        return relation.root_of_session(spark, "s3://bucket/table", "f.parquet", 1)

    with pytest.raises(UnsupportedError, match=r"s3://bucket/table: .*FileSystem"):
        unreached()
    monkeypatch.setattr(native, "_root", unreached)
    with warned("s3://bucket/table"):
        frame = to_spark(partitioned, ReadRequest(columns=("id",)), spark)
    assert frame.count() == 60


def test_sizes_are_checked_where_the_session_looks(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "f").write_bytes(os.urandom(10))
    assert relation.root_of_session(spark, f"file://{tmp_path}", "f", 10) == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("before", "after", "alone"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.decimal128(12, 2), pa.decimal128(20, 2), True),
        (pa.float32(), pa.float64(), False),  # by way of the text
    ],
    ids=str,
)
def test_files_of_narrower_columns(
    before: pa.DataType, after: pa.DataType, alone: bool, make_table: Callable[..., HudiTable], spark: Any
) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", before)])
    table = make_table(schema)
    values = pa.array([7, None, -3], pa.int32()).cast(before)
    rows = pa.table([pa.array(["a", "b", "c"]), pa.array(["x", "y", "y"]), pa.array([1, 1, 1]), values], schema=schema)
    LocalWriter(table).bulk_insert(rows)
    wider = schema.set(3, pa.field("v", after)).append(pa.field("added", pa.string()))
    LocalWriter(table.reload()).upsert(
        pa.table([["d"], ["z"], [2], pa.array([1], pa.int32()).cast(after), ["new"]], schema=wider),
    )
    table = table.reload()
    frame = to_spark(table, ReadRequest(), spark)
    expected = read(table).to_arrow().sort_by("id")
    assert expected.schema.field("v").type == after
    assert collect_arrow(frame).sort_by("id").cast(expected.schema).drop_columns(META_FIELDS) == expected.drop_columns(
        META_FIELDS
    )
    assert is_native(frame) == alone
