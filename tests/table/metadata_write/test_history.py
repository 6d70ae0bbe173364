"""After each step of a history of all actions, the metadata table lists what is in storage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from metadata_listings import assert_alike, by_metadata, by_storage, frame, new_table, reopened, rows, writer
from sleepy_clock import SleepyClock

from skep_format.errors import MetadataTableError
from skep_format.table_config import TableType, update_table_config
from skep_format.timeline.instant import Action
from skep_table.commit.parts.metadata_table import drop_metadata_table
from skep_table.metadata_write.compaction.compact import last_compaction
from skep_table.metadata_write.own import open_own
from skep_table.services.automatic import maintain
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.cleaning.ttl import expire_partitions
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_pending_compactions,
    schedule_compaction,
)
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

pytestmark = [
    pytest.mark.parametrize("table_version", [6, pytest.param(8, marks=pytest.mark.slow), 9], indirect=True),
]
FILE_VERSIONS = "hoodie.cleaner.fileversions.retained"
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    return new_table(tmp_path / "t", request.param)


def last_write(table: HudiTable) -> str:
    last = reopened(table).timeline.data().completed().last()
    assert last is not None
    return last.requested_time


def test_writes_of_all_kinds(table: HudiTable) -> None:
    write: list[Callable[[], object]] = [
        lambda: writer(table).bulk_insert(frame(("a", "p", 1), ("b", "q", 1))),
        lambda: writer(table).insert(frame(("c", "p", 1), ("d", "ü/é", 1))),
        lambda: writer(table).upsert(frame(("a", "p", 2), ("e", "r", 1))),
        lambda: writer(table).delete(frame(("b", "q", 2))),
        lambda: writer(table).insert_overwrite(frame(("f", "p", 3))),
        lambda: writer(table).delete_partitions(["r"]),
        lambda: clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"})),
        lambda: writer(table).insert_overwrite_table(frame(("g", "p", 4))),
        lambda: clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"})),
        lambda: writer(table).upsert(frame(("g", "p", 5), ("h", "q", 5))),
    ]
    for each in write:
        each()
        assert_alike(table)
    assert len(open_own(reopened(table)).timeline) == 1 + len(write)


def test_services(table: HudiTable) -> None:
    options = {"hoodie.cleaner.commits.retained": "1", "hoodie.log.compaction.blocks.threshold": "2"}
    for number in range(3):
        writer(table).upsert(frame(*((key, "pq"[at % 2], number) for at, key in enumerate("abcd"))))
    if table.config.is_mor:
        assert compact_logs(reopened(table, **options))
        assert_alike(table)
        assert compact(reopened(table))
        assert_alike(table)
    assert cluster(reopened(table, **{"hoodie.clustering.plan.strategy.sort.columns": "id"}))
    assert_alike(table)
    writer(table).upsert(frame(("a", "p", 9)))
    assert clean(reopened(table, **options))
    assert_alike(table)
    if table.config.is_mor:
        schedule_compaction(reopened(table))
        writer(table).upsert(frame(("a", "p", 10)))
        assert_alike(table)
        execute_pending_compactions(reopened(table))
        assert_alike(table)


def test_rollbacks_and_restores(table: HudiTable) -> None:
    writer(table).insert(frame(("a", "p", 1), ("b", "q", 1)))
    kept = last_write(table)
    create_savepoint(reopened(table), kept)
    assert_alike(table)
    for number in (2, 3):
        writer(table).upsert(frame(("a", "p", number), ("c", f"new{number}", number)))
    roll_back_instant(reopened(table), last_write(table))
    assert_alike(table)
    writer(table).upsert(frame(("a", "p", 4)))
    assert_alike(table)
    restore(reopened(table), kept)
    assert_alike(table)
    assert rows(reopened(table), metadata=True) == [("a", "p", 1), ("b", "q", 1)]
    writer(table).upsert(frame(("a", "p", 5)))
    assert_alike(table)
    delete_savepoint(reopened(table), kept)
    assert_alike(table)


def test_a_rollback_of_what_is_compacted_or_was_there_before(table: HudiTable) -> None:
    every = {"hoodie.metadata.compact.max.delta.commits": "1"}
    LocalWriter(HudiTable.open(table.storage)).insert(frame(("a", "p", 1)))
    LocalWriter(HudiTable.open(table.storage)).upsert(frame(("a", "p", 2), ("b", "q", 2)))
    writer(table).upsert(frame(("a", "p", 3), ("c", "r", 3)))
    assert_alike(table)
    assert maintain_metadata_table(reopened(table, **every)) is not None
    assert_alike(table)
    for left in (2, 1):
        roll_back_instant(reopened(table), last_write(table))
        assert len(reopened(table).timeline.data()) == left
        assert_listed_and_there(table)
    writer(table).upsert(frame(("a", "p", 4)))
    assert_alike(table)


def assert_listed_and_there(table: HudiTable) -> None:
    assert reopened(table).metadata_table() is not None
    assert rows(reopened(table), metadata=True) == rows(reopened(table), metadata=False)
    listed = by_metadata(reopened(table))
    missing = [n for p, names in listed.items() for n in names if not Path(table.storage.root, p, n).exists()]
    assert not missing


def test_compactions_cleans_and_archives_of_its_own(table: HudiTable) -> None:
    options = {
        "hoodie.keep.max.commits": "6",
        "hoodie.keep.min.commits": "3",
        "hoodie.cleaner.commits.retained": "2",
        "hoodie.metadata.compact.max.delta.commits": "4",
        "hoodie.compact.inline.max.delta.commits": "2",
    }
    for number in range(40):
        writer(table).upsert(frame(("a", "p", number), (f"b{number % 5}", "q", number)))
        for step in maintain(reopened(table, **options)):
            step.run()
        if number % 8 == 7:
            assert_alike(table)
    now = reopened(table)
    own = open_own(now)
    assert last_compaction(own) is not None
    assert len(now.timeline) < 30
    assert own.timeline.completed().of(Action.CLEAN).instants
    assert own.timeline.archived()
    assert len(own.timeline) < 90
    assert len(own.storage.list_prefix("files")) < 60


def test_the_table_archives_only_what_is_compacted(table: HudiTable) -> None:
    options = {
        "hoodie.keep.max.commits": "3", "hoodie.keep.min.commits": "2", "hoodie.cleaner.commits.retained": "1",
        "hoodie.compact.inline.max.delta.commits": "1",
    }  # fmt: skip
    for number in range(6):
        writer(table).upsert(frame(("a", "p", number)))
    plan = archive(reopened(table, **options))
    assert not plan.instants
    assert plan.held_back is not None
    assert "metadata table" in plan.held_back
    if table.config.is_mor:
        compact(reopened(table))
    maintain_metadata_table(reopened(table, **options, **{"hoodie.metadata.compact.max.delta.commits": "5"}))
    assert archive(reopened(table, **options)).instants
    assert_alike(table)


def test_a_table_that_was_written_without(table: HudiTable) -> None:
    for number in (1, 2):
        LocalWriter(HudiTable.open(table.storage)).upsert(frame(("a", "p", number), ("b", f"q{number}", number)))
    assert HudiTable.open(table.storage).metadata_table() is None
    writer(table).upsert(frame(("c", "p", 1)))
    assert_alike(table)
    LocalWriter(HudiTable.open(table.storage)).upsert(frame(("d", "p", 1)))
    assert_alike(table)
    writer(table, **{"hoodie.metadata.enable": "false"}).upsert(frame(("d", "p", 2)))
    assert HudiTable.open(table.storage).metadata_table() is None
    writer(table).upsert(frame(("e", "p", 1)))
    assert_alike(table)


def test_one_that_was_not_kept_is_made_again(table: HudiTable) -> None:
    writer(table).insert(frame(("a", "p", 1)))
    own = open_own(reopened(table))
    writer(table).insert(frame(("b", "p", 1)))
    time = last_write(table)
    for file in own.storage.list_prefix(own.layout.folder):
        if file.name.startswith(time):
            own.storage.delete(file.path)
    assert reopened(table).metadata_table() is None
    writer(table).insert(frame(("c", "p", 1)))
    assert_alike(table)


def test_a_table_without_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path / "flat", COW, partition_by=())
    for number in range(3):
        writer(table).upsert(frame((f"a{number}", "p", number)))
        assert_alike(table)
    assert list(by_metadata(reopened(table))) == [""]


def test_partitions_that_expire(table: HudiTable) -> None:
    clock = SleepyClock()
    writer(table).insert(frame(("a", "p", 1), ("b", "q", 1)))
    clock.slept += 3 * 24 * 3600
    late = reopened(table, **{"hoodie.partition.ttl.strategy.days.retain": "2"}).with_context(clock=clock)
    LocalWriter(late).insert(frame(("c", "q", 2)))
    assert expire_partitions(late.reload())
    assert_alike(table)
    clean(late.reload().with_options({"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS"}))
    assert_alike(table)


def test_a_change_of_version(table: HudiTable, table_version: int) -> None:
    writer(table).insert(frame(("a", "p", 1), ("b", "q", 1)))
    change_version(reopened(table), 9 if table_version == 6 else 6)
    assert_alike(table)
    writer(table).upsert(frame(("a", "p", 2)))
    assert_alike(table)


def test_shared_tables_keep_it(table: HudiTable) -> None:
    shared = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    writer(table, **shared).insert(frame(("a", "p", 1)))
    writer(table, **shared).upsert(frame(("a", "p", 2)))
    assert_alike(table)
    LocalWriter(HudiTable.open(table.storage, shared)).upsert(frame(("a", "p", 3)))
    assert_alike(table)
    with pytest.raises(MetadataTableError, match="other writers"):
        writer(table, **shared, **{"hoodie.metadata.enable": "false"}).upsert(frame(("a", "p", 4)))
    assert_alike(table)


def test_dropping_it(table: HudiTable) -> None:
    writer(table).insert(frame(("a", "p", 1)))
    drop_metadata_table(reopened(table))
    assert not table.storage.exists(".hoodie/metadata")
    assert reopened(table).metadata_table() is None


@pytest.mark.parametrize("case", ["cow_column_stats", "cow_record_index"])
def test_indexes_of_hudi_are_kept(
    case: str, golden: Path, table_version: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release = {6: "0.15.0", 8: "1.0.2", 9: "1.1.1"}[table_version]
    shutil.copytree(golden / release / case / "table", tmp_path / "t")
    theirs = HudiTable.open(str(tmp_path / "t"))
    partitions, listed = theirs.config.metadata_partitions, by_metadata(theirs)
    assert len(partitions) > 1
    with caplog.at_level("WARNING"):
        archive(theirs)
    assert not caplog.records
    now = theirs.reload()
    assert by_metadata(now) == listed
    clean(now.with_options({"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", FILE_VERSIONS: "1"}))
    now = now.reload()
    assert by_metadata(now) == by_storage(now)
    assert now.config.metadata_partitions == partitions


def test_indexes_that_are_not_kept_are_dropped(
    golden: Path, table_version: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release = {6: "0.15.0", 8: "1.0.2", 9: "1.1.1"}[table_version]
    shutil.copytree(golden / release / "cow_record_index" / "table", tmp_path / "t")
    theirs = HudiTable.open(str(tmp_path / "t"))
    before = by_metadata(theirs)
    of_keys = {"hoodie.table.metadata.partitions": ",".join([*theirs.config.metadata_partitions, "secondary_index_x"])}
    update_table_config(theirs.storage, of_keys)
    with caplog.at_level("WARNING"):
        archive(theirs.reload())
    assert "secondary_index_x" in caplog.text
    now = theirs.reload()
    assert now.config.metadata_partitions == theirs.config.metadata_partitions
    assert by_metadata(now) == before
