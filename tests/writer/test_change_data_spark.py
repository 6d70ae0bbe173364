"""Change data that Spark's tasks write is what tasks of this process write, and Spark's scans return it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from captured_tables import COW, MOR, Captured, replayed, rows

from skep_format.table_config import TableType
from skep_table.query import ReadRequest
from skep_table.services.compaction.compact import compact
from skep_writer import SparkWriter, to_spark
from skep_writer.edge import SparkRunner

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("kind", "mode"), [(COW, "DATA_BEFORE_AFTER"), (MOR, "OP_KEY_ONLY")], ids=["cow", "mor"])
def test_spark_writes_and_reads_changes(spark: Any, tmp_path: Path, kind: TableType, mode: str) -> None:
    table = Captured.make(tmp_path / "t", mode, kind)

    def writer() -> SparkWriter:
        return SparkWriter(table.table, spark)

    def frame(*values: tuple[Any, ...]) -> Any:
        return spark.createDataFrame(rows(*values).to_pylist(), "id string, part string, ts bigint, tags array<string>")

    writer().upsert(frame(("a", "p", 1, ["x"]), ("b", "p", 1, None), ("c", "q", 1, [])))
    writer().upsert(frame(("a", "p", 2, []), ("b", "p", 0, ["late"]), ("d", "q", 1, None)))
    writer().delete(frame(("c", "q", 0, None)).select("id", "part"))
    if kind is MOR:
        compact(table.table.with_context(runner=SparkRunner(spark)))
    assert table.files()
    changes = table.changes()
    assert replayed(changes) == table.snapshot()
    found = to_spark(table.table, ReadRequest(query="cdc"), spark).collect()  # type: ignore[arg-type]
    assert sorted(tuple(row) for row in found) == sorted(tuple(change.values()) for change in changes)
