"""Services as methods of a table, and those that follow commits by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
from skep.base.background import wait_for
from skep.handles.table import Table
from skep_format.errors import InputError, OptionError, UnsupportedError
from skep_format.timeline.instant import Action
from skep_table.hooks import Committed
from skep_table.services.service import CLUSTERING, COMPACTION, LOG_COMPACTION

PLAN = "hoodie.clustering.plan.strategy."
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("day", pa.string())])


def rows(*ids: int, at: int = 1, day: str = "a") -> pa.Table:
    return pa.table([list(ids), [at] * len(ids), [day] * len(ids)], schema=SCHEMA)


def make(path: Path, type: str = "COPY_ON_WRITE", **options: Any) -> Table:
    hoodie = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.table.type": type,
    }
    skep.write(rows(1)).options(**hoodie).save(path)
    return skep.open_table(path, **options)


def values(table: Table) -> list[tuple[int, int]]:
    found = table.read(columns=["id", "at"]).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["at"].to_pylist(), strict=True))


def of(table: Table, *actions: Action) -> list[str]:
    return [instant.requested_time for instant in table.hudi.timeline.of(*actions)]


def test_cluster_by_columns(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for number in range(3):
        table.bulk_insert(rows(30 - number, at=number))
    before = values(table)
    assert [done.state for done in table.cluster(sort_by=["at", "id"], curve="z-order", schedule=True)] == ["scheduled"]
    (done,) = table.cluster(execute=True)
    assert (done.service, done.what) == ("cluster", "4 file groups rewritten as 1")
    assert values(table) == before
    assert table.cluster(sort_by="at", partitions="other") == []
    assert table.history()[-1].operation == "cluster"
    with pytest.raises(InputError, match="schedule and execute exclude each other"):
        table.cluster(schedule=True, execute=True)
    with pytest.raises(UnsupportedError, match="not supported yet"):
        table.clean(**{"hoodie.cleaner.delete.bootstrap.base.file": True})


def test_compact_clean_archive_and_maintain(tmp_path: Path) -> None:
    by_hand = {f"hoodie.{service}": False for service in ("clean.automatic", "archive.automatic", "compact.inline")}
    table = make(tmp_path / "t", "MERGE_ON_READ", **by_hand)
    for at in range(2, 5):
        table.upsert(rows(1, at=at))
    assert [done.state for done in table.compact(schedule=True)] == ["scheduled"]
    assert [done.what for done in table.compact(execute=True)] == ["1 file slice compacted"]
    assert table.read(query="read_optimized", columns=["at"]).to_arrow()["at"].to_pylist() == [4]
    for at in range(5, 10):
        table.upsert(rows(1, at=at))
    short = {"hoodie.cleaner.commits.retained": 1, "hoodie.keep.max.commits": 4, "hoodie.keep.min.commits": 2}
    assert skep.maintain(tmp_path / "t", **short)[0].service == "compact"
    table.maintain(**short)
    assert table.maintain(**short) == []
    assert table.archive(**short).instants == ()
    assert values(table) == [(1, 9)]


def test_savepoint_restore_rollback_and_expiry(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    kept = table.history()[-1].instant
    table.savepoint(comments="kept")
    assert list(table.savepoints()) == [kept]
    table.upsert(rows(1, 2, at=2))
    table.rollback(table.history()[-1].instant)
    table.upsert(rows(1, 2, at=3))
    assert table.restore(kept) is not None
    assert values(table) == [(1, 1)]
    table.delete_savepoint(kept)
    assert table.savepoints() == {}
    assert table.expire(days=1) == []
    with pytest.raises(OptionError, match="no time to live of partitions"):
        table.expire()


def test_old_slices_are_cleaned_and_old_commits_archived_after_commits(tmp_path: Path) -> None:
    """The defaults: the 31st commit archives down to 20, and ten commits stay readable."""
    table = make(tmp_path / "t")
    for at in range(2, 31):
        table.upsert(rows(1, at=at))
    assert len(table.history()) == 30
    assert len(list((tmp_path / "t").glob("a/*.parquet"))) == 11
    table.upsert(rows(1, at=31))
    assert len(table.history()) == 20
    assert values(table) == [(1, 31)]


def test_inline_clustering_and_settings_that_contradict(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"hoodie.clustering.inline": True, f"{PLAN}sort.columns": "at"})
    for number in range(2, 4):
        table.bulk_insert(rows(number))
    assert of(table, Action.REPLACE_COMMIT) == []
    table.bulk_insert(rows(4))
    assert [commit.operation for commit in table.history()][-1] == "cluster"
    before = table.history()
    with pytest.raises(OptionError, match="exclude each other"):
        table.bulk_insert(rows(5), **{"hoodie.clustering.schedule.inline": True})
    assert table.history() == before, "refused before anything was written"


AFTER_TWO = "hoodie.compact.inline.max.delta.commits"
INLINE, BESIDE = "hoodie.compact.inline", "hoodie.datasource.compaction.async.enable"
ONLY_PLANNED = "hoodie.compact.schedule.inline"


@pytest.mark.parametrize(
    ("chosen", "completed", "planned"),
    [
        ({}, 1, 0),
        ({BESIDE: "false"}, 1, 0),
        ({INLINE: "false"}, 0, 0),
        ({INLINE: "false", BESIDE: "false"}, 0, 0),
        ({INLINE: "true", BESIDE: "true"}, 1, 0),
        ({ONLY_PLANNED: "true"}, 0, 1),
    ],
)
def test_compactions_of_batches_are_inline_unless_another_way_is_chosen(
    tmp_path: Path, chosen: dict[str, str], completed: int, planned: int
) -> None:
    table = make(tmp_path / "t", "MERGE_ON_READ", **chosen, **{AFTER_TWO: 2})
    table.upsert(rows(1, at=2))
    timeline = table.hudi.timeline
    assert len(timeline.completed().of(Action.COMMIT)) == completed
    assert len(timeline.pending().of(Action.COMPACTION)) == planned


def test_services_beside_the_writes_show_the_hooks(tmp_path: Path) -> None:
    beside = {"hoodie.datasource.compaction.async.enable": True, "hoodie.compact.inline.max.delta.commits": 2}
    table = make(tmp_path / "t", "MERGE_ON_READ", **beside)
    reported: list[str] = []
    hook = lambda committed: reported.append(committed.metadata.operation_type.value)  # noqa: E731
    table._services = replace(table._services, hooks=[hook])
    table.upsert(rows(1, at=2))
    assert wait_for(table.path, 60)
    assert table.read(query="read_optimized", columns=["at"]).to_arrow()["at"].to_pylist() == [2]
    assert sorted(reported) == ["COMPACT", "UPSERT"]


def test_hooks_receive_the_snapshot_that_each_commit_ended_with(tmp_path: Path, storage_calls: Any) -> None:
    """The timeline is not listed for them, and the last commit of the snapshot is theirs."""
    table = make(tmp_path / "t", "MERGE_ON_READ", **{"hoodie.log.compaction.blocks.threshold": 2})
    received: list[Committed] = []
    services = replace(table.services(), hooks=[received.append])
    for at in (2, 3):
        table.upsert(rows(1, at=at))
    hudi = services.on(table.hudi.reload())
    done = LOG_COMPACTION(hudi)
    done += COMPACTION(hudi)
    done += CLUSTERING(hudi.with_options({f"{PLAN}sort.columns": "at"}))
    storage_calls.clear()
    services.call_hooks(hudi, done)
    assert storage_calls.timeline_listings() == 0
    operations = [committed.metadata.operation_type.value for committed in received]
    assert operations == ["LOG_COMPACT", "COMPACT", "CLUSTER"]
    for committed in received:
        last = committed.table.timeline.data().completed().last()
        assert last == committed.instant
        assert committed.table.view().partitions() == ["a"]


def test_a_commit_remains_whatever_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_format.errors import StorageError
    from skep_table.services import automatic

    failures = iter([StorageError("the disk is full"), ValueError("the disk is full")])

    def broken(*_: object) -> None:
        raise next(failures)

    table = make(tmp_path / "t", **{"hoodie.cleaner.commits.retained": 1})
    monkeypatch.setattr(automatic, "CLEANING", replace(automatic.CLEANING, run=broken))
    for at in (2, 3):
        with pytest.warns(skep.ServiceWarning, match="is complete, but clean after it failed: the disk is full"):
            table.upsert(rows(1, at=at))
        assert values(table) == [(1, at)]


def test_a_service_that_fails_keeps_no_other_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_table.services import automatic

    def broken(*_: object) -> None:
        raise ValueError("no luck")

    table = make(tmp_path / "t", **{"hoodie.clean.automatic": False, "hoodie.archive.automatic": False})
    for at in range(2, 7):
        table.upsert(rows(1, at=at))
    monkeypatch.setattr(automatic, "CLEANING", replace(automatic.CLEANING, run=broken))
    short = {"hoodie.cleaner.commits.retained": 1, "hoodie.keep.max.commits": 3, "hoodie.keep.min.commits": 2}
    assert [done.service for done in table.maintain(plan=True, **short)] == ["clean", "archive"]
    with pytest.raises(ValueError, match="no luck"):
        table.maintain(**short)
    assert len(table.history()) == 2, "the archiver ran all the same"


def test_plans_are_reported_and_nothing_changes(tmp_path: Path) -> None:
    by_hand = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    table = make(tmp_path / "t", "MERGE_ON_READ", **by_hand)
    for at in range(2, 5):
        table.upsert(rows(1, at=at))
    table.bulk_insert(rows(2))
    before = table.history()
    reported = [
        *table.compact(plan=True),
        *table.compact(plan=True, logs=True, **{"hoodie.log.compaction.blocks.threshold": 2}),
        *table.cluster(plan=True, sort_by="at"),
        *table.clean(plan=True, **{"hoodie.cleaner.commits.retained": 1}),
        *table.expire(days=1, plan=True),
    ]
    assert [(done.service, done.state, done.what) for done in reported] == [
        ("compact", "planned", "1 file slice"),
        ("log-compact", "planned", "1 file slice"),
        ("cluster", "planned", "2 file groups"),
    ]
    assert table.archive(plan=True).instants == ()
    assert table.history() == before
    assert not table.hudi.reload().timeline.pending()
    (planned,) = table.compact(schedule=True)
    with pytest.raises(InputError, match="there is no plan 1"):
        table.compact(execute="1")
    assert [done.instant for done in table.compact(execute=planned.instant or "")] == [planned.instant]
