"""What commits and services of real tables come to in Hudi's metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.timeline import milliseconds_of
from skep_table.commit.create import TableSpec, create_table
from skep_table.lock import InProcessLock
from skep_table.metrics.channels import end_metrics, metrics
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact
from skep_table.services.metadata.indexing import show_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ON = {"hoodie.metrics.on": True, "hoodie.metrics.reporter.type": "INMEMORY"}
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    end_metrics()
    yield
    end_metrics()


def made(tmp_path: Path, kind: TableType = TableType.COPY_ON_WRITE, **options: Any) -> HudiTable:
    keys = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts"}
    spec = TableSpec(name="shop.visits", schema=SCHEMA, type=kind, **keys)  # type: ignore[arg-type] # each its own
    return create_table(LocalStorage(str(tmp_path / "t")), spec).with_options({**ON, **options})


def rows(*keys: str, ts: int = 1) -> pa.Table:
    return pa.table({"id": keys, "part": [key[0] for key in keys], "ts": [ts] * len(keys)}, schema=SCHEMA)


def of(prefix: str) -> dict[str, int]:
    """The metrics that begin so, without it."""
    return {name[len(prefix) :]: value for name, value in metrics().items() if name.startswith(prefix)}


def test_a_write_has_the_sums_of_its_commit_under_hudis_names(tmp_path: Path) -> None:
    table = made(tmp_path)
    LocalWriter(table).upsert(rows("a1", "a2", "b1"))
    assert of("shop_visits.commit.total")["FilesInsert"] == 2  # the dot of the table's name would divide
    done = LocalWriter(table.reload()).upsert(rows("a1", "a3", ts=2))
    found = of("shop_visits.commit.")
    (stat,) = done.metadata.stats
    assert found["commitTime"] == milliseconds_of(done.instant.requested_time, table.config.timezone)
    assert 0 <= found["duration"] < 600_000
    assert {name: value for name, value in found.items() if name.startswith("total") and "Time" not in name} == {
        "totalPartitionsWritten": 1,
        "totalFilesInsert": 0,
        "totalFilesUpdate": 1,
        "totalRecordsWritten": 3,
        "totalUpdateRecordsWritten": 1,
        "totalInsertRecordsWritten": 1,
        "totalRecordsDeleted": 0,
        "totalBytesWritten": stat.total_write_bytes,
        "totalCompactedRecordsUpdated": 0,
        "totalLogFilesCompacted": 0,
        "totalLogFilesSize": 0,
    }
    assert stat.runtime_stats is not None
    for name in ("totalScanTime", "totalCreateTime", "totalUpsertTime"):
        assert found[name] == stat.runtime_stats[name]
    assert metrics()["shop_visits.finalize.numFilesFinalized"] == 1
    assert "shop_visits.index.lookup.duration" in metrics()
    end_metrics()
    LocalWriter(table.reload()).bulk_insert(rows("a9"))
    assert "shop_visits.commit.duration" in metrics()
    assert "shop_visits.index.lookup.duration" not in metrics()


def test_services_have_actions_of_their_own(tmp_path: Path) -> None:
    kept = {
        "hoodie.cleaner.commits.retained": 1,
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.metricscompaction.log.blocks.on": True,
        "hoodie.metrics.reporter.metricsname.prefix": "lake",
    }
    table = made(tmp_path, TableType.MERGE_ON_READ, **kept)
    for ts in range(1, 4):
        LocalWriter(table.reload()).upsert(rows("a1", "b1", ts=ts))
        compact(table.reload())
    assert of("lake.deltacommit.total")["RecordsWritten"] == 2
    found = of("lake.compaction.")
    assert (found["totalCompactedRecordsUpdated"], found["totalLogFilesCompacted"]) == (2, 2)
    assert found["totalCorruptedLogBlocks"] == found["totalRollbackLogBlocks"] == 0
    assert found["compaction.requested.counter"] == found["compaction.completed.counter"] == 2
    last = table.reload().timeline.completed().last()
    assert last is not None
    assert of("lake.commit.") == {"latestCompletedCompactionInstant": int(last.requested_time)}
    (cleaned,) = clean(table.reload())
    assert of("lake.clean.numFilesDeleted") == {"": cleaned.metadata.total_files_deleted}
    assert cleaned.metadata.total_files_deleted > 0
    archived = archive(table.reload())
    assert of("lake.archive.numInstantsArchived") == {"": len(archived.instants)}
    assert archived.instants
    assert {"lake.clean.duration", "lake.archive.duration"} <= metrics().keys()


def test_locks_and_conflicts_are_counted_unless_that_is_off(tmp_path: Path) -> None:
    def lost(_: Any) -> None:
        raise CommitConflictError("another write came first")

    table = made(tmp_path).with_context(lock=InProcessLock(str(tmp_path)))
    LocalWriter(table).upsert(rows("a1"))
    with pytest.raises(CommitConflictError):
        LocalWriter(table.reload().with_context(conflict_check=lost)).upsert(rows("a1"))
    found = of("shop_visits.lock.")
    assert found["acquire.attempts"] == found["acquire.success"] == found["release.success"] > 1
    assert {"acquire.duration", "request.latency"} <= found.keys()
    conflicts = of("shop_visits.conflict_resolution.")
    assert conflicts == {"success.counter": 1, "failure.counter": 1}
    assert of("shop_visits.rollback.duration")
    end_metrics()
    off = table.reload().with_options({"hoodie.metrics.lock.enable": False})
    LocalWriter(off).upsert(rows("a2"))
    assert not of("shop_visits.lock.")
    assert not of("shop_visits.conflict_resolution.")
    assert of("shop_visits.commit.")


def test_a_table_without_the_option_has_none(tmp_path: Path) -> None:
    table = made(tmp_path).with_options({"hoodie.metrics.on": False})
    LocalWriter(table).upsert(rows("a1"))
    assert not metrics()
    assert table.context.events is table.with_context(options={}).context.events


def test_partitions_of_the_metadata_table_have_sizes_where_that_is_on(tmp_path: Path) -> None:
    kept = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
    table = made(tmp_path, **kept)
    LocalWriter(table).upsert(rows("a1", "b1"))
    assert not of("shop_visits.files.")
    measured = table.with_options({"hoodie.metadata.metrics.enable": True}).reload()
    LocalWriter(measured).upsert(rows("a1", ts=2))
    shown = {each.name: each for each in show_metadata_table(table.reload()).partitions}
    assert {"files", "column_stats"} <= shown.keys()
    for name, each in shown.items():
        assert of(f"shop_visits.{name}.") == {
            "totalBaseFileSizeInBytes": each.base_bytes,
            "totalLogFileSizeInBytes": each.log_bytes,
            "baseFileCount": each.base_files,
            "logFileCount": each.log_files,
        }
        assert each.log_files > 0
