"""Writes beside which others commit: a batch is committed once, and a delete by predicate sees what came meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runs_first import RunsFirst

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.lock import InProcessLock
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.input.source import matching
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])


@pytest.fixture(params=list(TableType), ids=lambda kind: kind.value)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), type=request.param)
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


def rows(*ids: str, v: int = 1) -> pa.Table:
    return pa.table([pa.array(ids), pa.array(["p"] * len(ids)), pa.array([v] * len(ids), pa.int64())], SCHEMA)


def content(table: HudiTable) -> list[tuple[str, int]]:
    found = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().to_pylist()
    return sorted((row["id"], row["v"]) for row in found)


def writer(table: HudiTable, meanwhile: Callable[[], object] | None = None, **options: Any) -> LocalWriter:
    given = {key.replace("__", "."): value for key, value in options.items()}
    runner = RunsFirst(meanwhile) if meanwhile else ThreadRunner()
    return LocalWriter(table.with_context(lock=InProcessLock("t"), runner=runner, options=Options(given)))


@pytest.mark.parametrize(
    ("operation", "mode"),
    [
        ("insert", "single_writer"),
        ("upsert", "single_writer"),
        ("upsert", "optimistic_concurrency_control"),
        ("delete", "optimistic_concurrency_control"),
    ],
)
def test_a_batch_that_another_writer_commits_meanwhile_is_committed_once(
    table: HudiTable, operation: str, mode: str
) -> None:
    concurrency = {"hoodie__write__concurrency__mode": mode, "hoodie__write__num__retries__on__conflict__failures": 0}
    writer(table).insert(rows("a", "c"))
    done: list[Any] = []

    def other() -> None:
        done.append(getattr(writer(table, **concurrency), operation)(rows("a", "b", v=2), batch_id="monday"))

    mine = getattr(writer(table, other, **concurrency), operation)(rows("a", "b", v=2), batch_id="monday")
    assert mine.repeated
    assert mine.instant == done[0].instant
    after = {
        "insert": [("a", 1), ("a", 2), ("b", 2), ("c", 1)],
        "upsert": [("a", 2), ("b", 2), ("c", 1)],
        "delete": [("c", 1)],
    }
    assert content(table) == after[operation]
    timeline = table.reload().timeline
    assert len(timeline.data()) == 2  # no trace of the other try
    assert not timeline.pending()
    written = {stat.path for i in timeline.data() for stat in table.reload().commit_metadata(i).stats}
    on_storage = {file.path for file in table.storage.list_prefix("p") if not file.name.startswith(".hoodie_partition")}
    assert on_storage == written


def test_batches_of_other_names_do_not_stand_in_for_each_other(table: HudiTable) -> None:
    def other() -> None:
        writer(table).bulk_insert(rows("b"), batch_id="tuesday")

    assert not writer(table, other).insert(rows("a"), batch_id="monday").repeated
    assert content(table) == [("a", 1), ("b", 1)]


def test_partitions_are_dropped_once_for_a_batch(table: HudiTable) -> None:
    writer(table).insert(rows("a"))

    def other() -> None:
        writer(table).delete_partitions(["p"], batch_id="monday")
        writer(table).insert(rows("later"))

    assert writer(table, other).delete_partitions(["p"], batch_id="monday").repeated
    assert content(table) == [("later", 1)]


def test_a_delete_by_predicate_sees_rows_that_came_while_it_ran(table: HudiTable) -> None:
    writer(table).insert(rows("a", v=1))

    def other() -> None:
        writer(table).upsert(rows("a", "b", v=1))
        writer(table).upsert(rows("kept", v=2))

    retry = {"hoodie__write__num__retries__on__conflict__failures": 1}
    assert writer(table, other, **retry).delete_computed(matching("v = 1")).deleted == 2
    assert content(table) == [("kept", 2)]


def test_a_delete_by_predicate_leaves_rows_that_came_to_be_others(table: HudiTable) -> None:
    """What it decides by is the table as it is when the write commits, not as it was when it was called."""
    writer(table).insert(rows("a", "b", v=1))

    def other() -> None:
        writer(table).upsert(rows("a", v=2))

    retry = {"hoodie__write__num__retries__on__conflict__failures": 1}
    assert writer(table, other, **retry).delete_computed(matching("v = 1")).deleted == 1
    assert content(table) == [("a", 2)]
