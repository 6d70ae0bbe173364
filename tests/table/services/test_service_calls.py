"""Storage calls of services: the partitions that changed are listed, each once, and not under the table's lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage

from skep_format.errors import CommitConflictError
from skep_format.names import META_FOLDER
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.heartbeat import delete_heartbeat
from skep_table.commit.transaction import Transaction
from skep_table.services.automatic import maintain
from skep_table.services.cleaning.clean import clean, execute_pending_cleans, schedule_clean
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction import compact as compact_module
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_log_compaction,
    execute_pending_compactions,
    execute_pending_log_compactions,
    schedule_compaction,
    schedule_log_compaction,
)
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
PARTITIONS = [f"p{number:03d}" for number in range(40)]
OPTIONS = {
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.cleaner.commits.retained": 1,
}
LOCKED, RELEASED = "locked", "released"


class CountedLock:
    """A lock of this process that leaves its two moments among the calls of a storage."""

    leased = False

    def __init__(self, storage: CountingStorage) -> None:
        self._calls = storage.calls

    def acquire(self, timeout_seconds: float) -> str:
        self._calls.add(LOCKED, "")
        return "1"

    def release(self) -> None:
        self._calls.add(RELEASED, "")

    def ensure_held(self) -> None: ...


def rows(partitions: list[str], ts: int, key: str = "k") -> pa.Table:
    return pa.table({"id": [key] * len(partitions), "part": partitions, "ts": [ts] * len(partitions)}, schema=SCHEMA)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[HudiTable, CountingStorage]]:
    def make(kind: TableType, **more: Any) -> tuple[HudiTable, CountingStorage]:
        storage = CountingStorage(LocalStorage(str(tmp_path / "t")))
        spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
        table = create_table(storage, spec, {**OPTIONS, **more}).with_context(lock=CountedLock(storage))
        LocalWriter(table).insert(rows(PARTITIONS, 0))
        LocalWriter(table).upsert(rows(PARTITIONS, 1))
        return table, storage

    return make


def under_the_lock(storage: CountingStorage) -> set[str]:
    """The partitions that were listed while the lock was held."""
    found, held = set(), False
    for call in storage.calls:
        held = call.method == LOCKED or (held and call.method != RELEASED)
        if held and call.method in ("list_prefix", "list_folder") and not call.path.startswith(".hoodie"):
            found.add(call.path)
    return found


def listed(storage: CountingStorage) -> list[str]:
    return sorted(storage.calls.partition_listings())


def test_a_clean_lists_the_partitions_that_were_written_to(make: Any) -> None:
    table, storage = make(TableType.COPY_ON_WRITE)
    LocalWriter(table).upsert(rows(["p001"], 2))
    assert len(clean(table)) == 1  # commits from here on: those of the next clean
    LocalWriter(table).upsert(rows(["p007"], 2))
    LocalWriter(table).upsert(rows(["p003"], 3))
    storage.calls.clear()
    assert schedule_clean(table) is not None
    assert listed(storage) == ["p001", "p007"]
    storage.calls.clear()
    (done,) = execute_pending_cleans(table)
    assert listed(storage) == []
    assert storage.calls.counts()["delete_many"] == 1
    assert {path.partition("/")[0] for path in done.deleted} == {"p001", "p007"}
    LocalWriter(table).upsert(rows(["p007"], 4))
    storage.calls.clear()
    assert len(clean(table)) == 1
    completes_under_lock = table.format.chooses_times_under_lock  # and lists the timeline there
    assert storage.calls.timeline_listings() <= 3 + completes_under_lock


def test_a_compaction_lists_no_partition_to_execute_a_plan(make: Any) -> None:
    table, storage = make(TableType.MERGE_ON_READ)
    assert len(compact(table)) == 1
    LocalWriter(table).upsert(rows(["p007"], 2))
    storage.calls.clear()
    assert schedule_compaction(table) is not None
    assert listed(storage) == ["p007"]
    storage.calls.clear()
    assert len(execute_pending_compactions(table)) == 1
    assert listed(storage) == []
    assert storage.calls.paths("exists") == []
    has_own_folder = table.layout.folder != META_FOLDER  # then `.hoodie`, which has the other folders, is listed once
    assert storage.calls.timeline_listings() <= 3 + has_own_folder


def test_a_log_compaction_lists_what_changed_and_its_slices_once(make: Any) -> None:
    table, storage = make(TableType.MERGE_ON_READ)
    LocalWriter(table).upsert(rows(PARTITIONS, 2))
    assert len(compact_logs(table)) == 1
    for ts in range(3, 6):
        LocalWriter(table).upsert(rows(["p003", "p007"], ts))
    storage.calls.clear()
    assert schedule_log_compaction(table) is not None
    assert listed(storage) == ["p003", "p007"]
    storage.calls.clear()
    (done,) = execute_pending_log_compactions(table)
    assert done.slices == 2
    assert listed(storage) == ["p003", "p007"]
    assert under_the_lock(storage) == set()
    storage.calls.clear()
    assert compact_logs(table) == []
    assert listed(storage) == []


def test_a_clustering_lists_its_slices_once(make: Any) -> None:
    table, storage = make(TableType.COPY_ON_WRITE)
    LocalWriter(table).insert(rows(PARTITIONS, 2, "l"))
    assert len(cluster(table.with_options({"hoodie.clustering.plan.strategy.max.num.groups": 100}))) == 1
    LocalWriter(table).insert(rows(["p003", "p007"], 3, "m"))
    table = table.with_options({"hoodie.clustering.plan.strategy.max.num.groups": 100})
    storage.calls.clear()
    assert schedule_clustering(table) is not None
    assert listed(storage) == ["p003", "p007"]
    storage.calls.clear()
    (done,) = execute_pending_clusterings(table)
    assert done.replaced == 4
    assert listed(storage) == ["p003", "p007"]
    assert under_the_lock(storage) == set()


def test_slices_are_listed_again_under_the_lock_where_something_ran_beside(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to another partition leaves the plan as it is; one to a slice of the plan makes it useless."""
    table, storage = make(TableType.MERGE_ON_READ)
    LocalWriter(table).upsert(rows(["p007"], 2))
    instant = schedule_log_compaction(table)
    assert instant is not None
    work = compact_module._compact_logs_of

    def beside_a_write(*task: Any) -> Any:
        LocalWriter(table).upsert(rows(["p009"], 20))
        storage.calls.clear()
        return work(*task)

    with monkeypatch.context() as patched:
        patched.setattr(compact_module, "_compact_logs_of", beside_a_write)
        assert execute_log_compaction(table.reload(), instant) is not None
    assert under_the_lock(storage) == {"p007"}
    LocalWriter(table).upsert(rows(["p007"], 30))
    instant = schedule_log_compaction(table)
    assert instant is not None
    LocalWriter(table).upsert(rows(["p007"], 31))
    storage.calls.clear()
    with pytest.raises(CommitConflictError, match=r"p007/.*was written to"):
        execute_log_compaction(table.reload(), instant)
    assert under_the_lock(storage) == {"p007", "p009"}, "the partitions of the plan"


def test_a_write_that_ends_before_its_tasks_start_has_no_files_to_look_for(make: Any) -> None:
    """Whether it fails itself or the next writer rolls it back."""
    table, storage = make(TableType.MERGE_ON_READ)
    failed = Transaction.begin(table, Action.DELTA_COMMIT)
    storage.calls.clear()
    failed.abort(ZeroDivisionError())
    assert listed(storage) == []
    died = Transaction.begin(table, Action.DELTA_COMMIT)
    died._release()
    delete_heartbeat(table.storage, died.instant.requested_time)
    storage.calls.clear()
    LocalWriter(table).upsert(rows(["p003"], 2))
    assert listed(storage) == ["p003"]
    timeline = table.reload().timeline
    assert not timeline.pending().instants
    assert len(timeline.of(Action.ROLLBACK)) == 1


def test_maintenance_lists_the_timeline_once_a_service_that_is_due(make: Any) -> None:
    """With nothing pending and nothing due these are the clean's two and the archiving's."""
    table, storage = make(TableType.MERGE_ON_READ, **{"hoodie.cleaner.commits.retained": 10})
    table = table.reload()
    storage.calls.clear()
    assert [done for step in maintain(table) for done in step.run()] == []
    assert storage.calls.timeline_listings() <= 3
    assert listed(storage) == []
