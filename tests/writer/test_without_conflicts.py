"""Writes of Spark that do not block each other: under way on one file group at once, completed in the other order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from skep_format.names import LogFileName
from skep_format.options import Options
from skep_format.table_config import TableType
from skep_table.commit.transaction import Transaction
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_writer import SparkWriter
from skep_writer.edge import SparkRunner

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("by", pa.string())])
DDL = "id string, part string, ts bigint, by string"
OPTIONS = Options(
    {
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
    }
)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(
    ("ordering", "planned", "shared_by"),
    [
        pytest.param("ts", True, "earlier", id="event_time"),
        pytest.param(None, False, "later", id="commit_time"),
        pytest.param(None, True, "earlier", id="commit_time_over_a_compaction"),
    ],
)
def test_two_writes_under_way(
    ordering: str | None,
    planned: bool,
    shared_by: str,
    version: int,
    spark: Any,
    make_table: Callable[..., HudiTable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A compaction planned between the two completions takes the rows of the first, and hides none of the second.

    What completes after the plan lies above its result. So readers have it above before that is there, too; Hudi's sort
    all logs by the requested times until then, and give another row of commit-time order than after the compaction.
    """
    table = make_table(SCHEMA, ordering=ordering, type=TableType.MERGE_ON_READ, version=version)
    shared = table.with_context(options=OPTIONS, lock=StorageLock(table.storage), runner=SparkRunner(spark))
    written, go, complete = threading.Event(), threading.Event(), Transaction.complete
    errors: list[BaseException] = []

    def upsert(by: str, ts: int) -> None:
        rows = [("shared", "p", ts, by), (by, "p", ts, by)]
        SparkWriter(shared.reload(), spark).upsert(spark.createDataFrame(rows, DDL).repartition(2))

    def waits(write: Transaction, *given: Any, **more: Any) -> Any:
        if threading.current_thread() is early:
            written.set()
            assert go.wait(60)
        return complete(write, *given, **more)

    def earlier() -> None:
        try:
            upsert("earlier", 2)
        except BaseException as error:
            errors.append(error)
            written.set()

    monkeypatch.setattr(Transaction, "complete", waits)
    early = threading.Thread(target=earlier)
    early.start()
    assert written.wait(60)
    upsert("later", 1)
    try:
        assert not planned or schedule_compaction(shared.reload()) is not None
    finally:
        go.set()
        early.join()
    assert not errors

    first, second = table.reload().timeline.data().completed()
    assert first.completion_time > second.completion_time
    assert pulled(table, until=second.completion_time) == {"shared": "later", "later": "later"}
    assert pulled(table, since=second.completion_time).keys() - {"shared"} == {"earlier"}
    expected = {"shared": shared_by, "earlier": "earlier", "later": "later"}
    assert found(table) == expected
    names = [LogFileName.parse(file.name) for file in table.storage.list_prefix("p")]
    logs = [name for name in names if name is not None]
    assert {log.file_id for log in logs} == {"00000000-0000-0000-0000-000000000000-0"}

    assert len(execute_pending_compactions(shared.reload())) == planned
    if planned:
        assert found(table, query="read_optimized") == {"shared": "later", "later": "later"}
        assert found(table) == expected
    compact(shared.reload())
    assert found(table, query="read_optimized") == expected


def found(table: HudiTable, **request: Any) -> dict[str, str]:
    rows = read(table.reload(), ReadRequest(**request)).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a key twice"
    return {row["id"]: row["by"] for row in rows}


def pulled(table: HudiTable, **span: Any) -> dict[str, str]:
    return found(table, query="incremental", **span)
