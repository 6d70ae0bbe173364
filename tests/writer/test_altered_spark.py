"""Spark reads and rewrites tables whose columns were changed by id, as skep's own reader has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.runner import ThreadRunner
from skep_format.schema.change import AddColumn, ChangeType, DropColumn, RenameColumn
from skep_format.schema.types import IntType, LongType, StringType
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter, to_spark

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("ts", pa.int64()),
    ]
)


def rows(ts: int, *keys: str) -> pa.Table:
    found = [{"id": key, "name": f"{key}{ts}", "n": ts, "x": 1.5, "s": {"a": ts, "b": "b"}, "ts": ts} for key in keys]
    return pa.Table.from_pylist(found, SCHEMA)


def answers(table: HudiTable, spark: Any, where: str | None = None) -> list[dict[str, Any]]:
    """The rows by Spark, which are those of the reader without it."""
    request = ReadRequest(where=where)
    names = table.schema().names()
    frame = to_spark(table, ReadRequest(), spark)
    found = (frame.where(where) if where else frame).select(*names).orderBy("id").collect()
    by_spark = [row.asDict(recursive=True) for row in found]
    assert by_spark == read(table, request).to_arrow().select(names).sort_by("id").to_pylist()
    return by_spark


@pytest.mark.parametrize("kind", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def test_spark_reads_and_writes_altered_tables(kind: TableType, tmp_path: Path, spark: Any) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", type=kind)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec).with_context(runner=ThreadRunner(1))
    LocalWriter(table).bulk_insert(rows(1, "a", "b", "c"))
    LocalWriter(table.reload()).upsert(rows(2, "b"))
    LocalWriter(table.reload()).alter([RenameColumn("name", "label"), ChangeType("n", LongType()), DropColumn("x")])
    assert [row["label"] for row in answers(table.reload(), spark)] == ["a1", "b2", "c1"]
    LocalWriter(table.reload()).alter([AddColumn("x", StringType()), AddColumn("name", IntType(), after="id")])
    assert [row["x"] for row in answers(table.reload(), spark)] == [None] * 3
    assert answers(table.reload(), spark, "x = '1.5'") == []
    assert [row["id"] for row in answers(table.reload(), spark, "label = 'b2' and name is null")] == ["b"]
    LocalWriter(table.reload()).alter([RenameColumn("s.a", "aa"), DropColumn("s.b"), ChangeType("n", StringType())])
    assert [row["s"] for row in answers(table.reload(), spark)] == [{"aa": 1}, {"aa": 2}, {"aa": 1}]
    changed = to_spark(table.reload(), ReadRequest(where="id = 'a'"), spark).select(*table.reload().schema().names())
    SparkWriter(table.reload(), spark).upsert(changed.selectExpr("id", "7 name", "label", "n", "s", "ts + 5 ts", "x"))
    found = answers(table.reload(), spark)
    assert [(row["id"], row["name"], row["label"], row["n"]) for row in found] == [
        ("a", 7, "a1", "1"),
        ("b", None, "b2", "2"),
        ("c", None, "c1", "1"),
    ]
