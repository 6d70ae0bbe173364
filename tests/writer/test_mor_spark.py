"""Merge-on-read tables written by Spark's tasks: log files, retried tasks, compaction with one task a slice."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_writer import SparkWriter, to_spark
from skep_writer.edge import SparkRunner

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
Make = Callable[..., HudiTable]


def found(table: HudiTable, **how: Any) -> dict[str, str]:
    rows = read(table.reload(), ReadRequest(**how)).to_arrow().to_pylist()
    assert len(rows) == len({row["id"] for row in rows}), "a key twice"
    return {row["id"]: row["v"] for row in rows}


def numbers(spark: Any, first: int, last: int, version: int) -> Any:
    columns = ("concat('k', id) id", "concat('p', id % 5) part", f"{version}L ts", f"'{version}' v")
    return spark.range(first, last).selectExpr(*columns)


def test_every_operation(spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA, type=TableType.MERGE_ON_READ)
    writer = SparkWriter(table, spark)
    first = writer.bulk_insert(numbers(spark, 0, 50, 1))
    assert first.instant.action is Action.DELTA_COMMIT
    second = writer.upsert(numbers(spark, 40, 60, 2))
    assert (second.inserted, second.updated) == (10, 10)
    assert sum(stat.is_log for stat in second.metadata.stats) >= 1
    third = writer.delete(numbers(spark, 0, 5, 1).select("id", "part"))
    assert third.deleted == 5
    assert all(stat.is_log for stat in third.metadata.stats)
    writer.insert(numbers(spark, 60, 65, 3))
    expected = {f"k{at}": "1" if at < 40 else "2" if at < 60 else "3" for at in range(5, 65)}
    assert found(table) == expected
    frame = to_spark(table.reload(), ReadRequest(), spark)
    assert {row.id: row.v for row in frame.select("id", "v").collect()} == expected
    setting = {"runner": SparkRunner(spark)}
    (done,) = compact(table.with_context(**setting))
    assert done.slices == len({stat.file_id for stat in done.metadata.stats})
    assert found(table) == found(table, query="read_optimized") == expected


def test_partial_updates_and_positions(spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA, type=TableType.MERGE_ON_READ, version=9)
    writer = SparkWriter(table, spark)
    writer.bulk_insert(numbers(spark, 0, 50, 1))
    writer.delete(numbers(spark, 0, 5, 1).select("id", "part"))
    result = writer.upsert(numbers(spark, 0, 60, 2).drop("v"), partial=True)
    assert sum(stat.is_log for stat in result.metadata.stats) == 5
    expected = {f"k{at}": "1" if 5 <= at < 50 else None for at in range(60)}
    assert found(table) == found(table, options={"hoodie.merge.use.record.positions": "true"}) == expected
    frame = to_spark(table.reload(), ReadRequest(), spark)
    assert {row.id: (row.ts, row.v) for row in frame.select("id", "ts", "v").collect()} == {
        key: (2, value) for key, value in expected.items()
    }


class DyingStorage(LocalStorage):
    """The first log file is opened and then its process dies; a flag on disk records that it did."""

    def __init__(self, root: str, flag: str) -> None:
        super().__init__(root)
        self.flag = Path(flag)

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        if ".log." in path and not self.flag.exists():
            self.flag.touch()
            self.local_path(path).write_bytes(b"#HUDI#half a block")
            os._exit(1)
        with super().open_write(path) as file:
            yield file


def test_a_task_that_dies_in_a_log_file_is_retried_and_leaves_nothing(
    spark: Any, make_table: Make, tmp_path: Path
) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    table = make_table(SCHEMA, type=TableType.MERGE_ON_READ)
    SparkWriter(table, spark).bulk_insert(numbers(spark, 0, 50, 1))
    flag = tmp_path / "died"
    dying = HudiTable.open(DyingStorage(table.storage.root, str(flag)))
    result = SparkWriter(dying, spark).upsert(numbers(spark, 0, 50, 2))
    assert flag.exists(), "no task died: the test shows nothing"
    assert result.updated == 50
    assert found(table) == {f"k{at}": "2" for at in range(50)}
    root = Path(table.storage.root)
    logs = {str(file.relative_to(root)) for file in root.rglob(".*.log.*")}
    assert logs == {stat.path for stat in result.metadata.stats}
    assert not [file for file in (root / ".hoodie/.temp").rglob("*") if file.is_file()]
