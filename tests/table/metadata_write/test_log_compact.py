"""Log compaction of the metadata table: its result stands for the log files, alone or beside them."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest
from metadata_listings import KEPT, assert_alike, frame, new_table, reopened, rows, writer

from skep_format.clock import SYSTEM_CLOCK
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey, LogBlock, read_blocks, validity
from skep_format.names import LogFileName
from skep_format.storage import FileStatus
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import WriteOperation
from skep_format.timeline.plans import InstantInfo, RollbackPlan
from skep_format.timeline.write import create_requested, transition_to_inflight
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.metadata_write.own import files_by_partition, open_own
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.services.metadata.indexing import index_named
from skep_table.services.metadata.upkeep import is_metadata_table_due, maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable

INDEXED = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
}
MERGED = {
    "hoodie.metadata.log.compaction.enable": "true",
    "hoodie.metadata.log.compaction.blocks.threshold": "3",
    "hoodie.metadata.compact.max.delta.commits": "100",
}
NAMED = (
    index_named("secondary_index", "by_ts", ["ts"]),
    index_named("column_stats", "large", ["id"], {"expr": "upper"}),
    index_named("bloom_filters", "small", ["id"], {"expr": "lower"}),
)
VERSIONS = pytest.mark.parametrize("table_version", [6, pytest.param(8, marks=pytest.mark.slow), 9], indirect=True)


@pytest.fixture
def table(tmp_path: Path, table_version: int) -> HudiTable:
    """Updates, deletes, an overwrite, a drop of a partition and a clean, of a table with all indexes."""
    made = new_table(tmp_path / "t", TableType.MERGE_ON_READ)
    writer(made, **INDEXED).upsert(frame(("a", "p", 1), ("b", "q", 1), ("x", "r", 1)))
    if table_version > 6:
        defined = {each.name: each for each in NAMED}
        create_metadata_table(reopened(made, **INDEXED), SYSTEM_CLOCK, defined, defined)
    writes(made)
    return made


def writes(table: HudiTable) -> None:
    writer(table).upsert(frame(("a", "p", 2), ("c", "p", 2), ("d", "q", 2)))
    writer(table).delete(frame(("b", "q", 9)))
    compact(reopened(table))
    writer(table).insert_overwrite(frame(("e", "q", 3), ("f", "q", 3)))
    writer(table).delete_partitions(["r"])
    clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"}))
    writer(table).upsert(frame(("a", "p", 4), ("x", "r", 4)))


def merged_by(table: HudiTable, **options: str) -> Instant:
    """The log compaction that the services make now."""
    before = open_own(table.reload()).timeline.files.log_compactions
    assert is_metadata_table_due(reopened(table, **MERGED, **options))
    maintain_metadata_table(reopened(table, **MERGED, **options))
    own = open_own(table.reload())
    (new,) = own.timeline.files.log_compactions - before
    return next(each for each in own.timeline.completed().of(Action.DELTA_COMMIT) if each.requested_time == new)


def log_files(table: HudiTable) -> list[FileStatus]:
    files = chain.from_iterable(files_by_partition(open_own(table.reload())))
    return [file for file in files if LogFileName.parse(file.name)]


def blocks_of(table: HudiTable) -> list[LogBlock]:
    storage = open_own(table.reload()).storage
    return [b for f in log_files(table) for b in read_blocks(storage.open_input(f.path), f.path, f.size_bytes)]


def file_id(path: str) -> str:
    name = LogFileName.parse(path.rpartition("/")[2])
    assert name is not None
    return name.file_id


def assert_right(table: HudiTable) -> None:
    assert_alike(table)
    found = check_metadata_table(HudiTable.open(table.storage, KEPT))
    assert not found.differences


@VERSIONS
def test_its_result_stands_for_the_log_files_that_it_has_merged(table: HudiTable) -> None:
    before = rows(reopened(table), metadata=False)
    done = merged_by(table)
    assert_right(table)
    writer(table).upsert(frame(("y", "p", 5)))  # from now on its time is past
    assert_right(table)
    storage, merged = open_own(table.reload()).storage, defaultdict(set)
    for block in blocks_of(table):
        merged[file_id(block.path)].update(block.compacted_times)
    assert max(map(len, merged.values())) >= 6
    left_out = [b for b in blocks_of(table) if b.instant_time in merged[file_id(b.path)]]
    assert done.requested_time not in {block.instant_time for block in left_out}
    storage.delete_many(sorted({block.path for block in left_out}))
    assert_right(table)
    assert rows(reopened(table), metadata=True) == sorted([*before, ("y", "p", 5)])


@VERSIONS
def test_readers_that_apply_both_find_the_same(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    merged_by(table)
    writer(table).upsert(frame(("y", "p", 5)))
    monkeypatch.setattr(validity, "_with_log_compactions", lambda blocks: blocks)
    assert_right(table)


@VERSIONS
def test_writes_log_compactions_and_a_compaction_follow(table: HudiTable) -> None:
    first = merged_by(table)
    assert not is_metadata_table_due(reopened(table, **MERGED))
    for number in range(3):
        assert not is_metadata_table_due(reopened(table, **MERGED))
        writer(table).upsert(frame(("a", "p", 10 + number), (f"n{number}", "q", 1)))
        assert_right(table)
    second = merged_by(table)
    assert second.requested_time.is_after(first.requested_time)
    writer(table).upsert(frame(("a", "p", 20)))
    assert_right(table)
    again = {time for block in blocks_of(table) for time in block.compacted_times}
    assert first.requested_time in again
    compacted = maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "1"}))
    assert compacted is not None
    assert_right(table)
    writes(table)
    assert_right(table)


@VERSIONS
def test_it_is_off_by_default_and_waits_for_what_is_pending(table: HudiTable) -> None:
    maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "100"}))
    assert not open_own(table.reload()).timeline.files.log_compactions
    pending = InstantTime("20200101000000000")
    create_requested(table.reload(), Instant(pending, Action.DELTA_COMMIT, State.REQUESTED))
    maintain_metadata_table(reopened(table, **MERGED))
    assert not open_own(table.reload()).timeline.files.log_compactions


@VERSIONS
def test_a_write_that_it_has_merged_is_rolled_back(table: HudiTable) -> None:
    before = rows(reopened(table), metadata=False)
    writer(table).upsert(frame(("a", "p", 30), ("g", "p", 30)))
    last = table.reload().timeline.data().completed().last()
    assert last is not None
    merged_by(table)
    roll_back_instant(reopened(table, **INDEXED), last.requested_time)
    assert_right(table)
    assert rows(reopened(table), metadata=True) == before
    writer(table, **INDEXED).upsert(frame(("h", "q", 31)))
    assert_right(table)


@VERSIONS
def test_one_that_a_process_has_left_is_undone(table: HudiTable) -> None:
    """That of Hudi, too: others carry out its plan on top of what was written since."""
    merged = merged_by(table)
    own = open_own(table.reload())
    own.storage.delete(own.layout.path(merged))
    writer(table).upsert(frame(("z", "p", 5)))
    own = open_own(table.reload())
    assert not own.timeline.pending()
    assert not own.timeline.files.log_compactions
    assert not any(block.compacted_times for block in blocks_of(table))
    assert_right(table)


@VERSIONS
def test_a_rollback_that_a_process_has_left_is_carried_out(table: HudiTable) -> None:
    """Hudi's writers carry out any plan that they find, also where its target was written again since."""
    own = open_own(table.reload())
    plan = RollbackPlan(
        instant_to_rollback=InstantInfo(commit_time=InstantTime("20200101000000000"), action="deltacommit")
    )
    time = InstantTime("20200101000000001")
    transition_to_inflight(own, create_requested(own, Instant(time, Action.ROLLBACK, State.REQUESTED), plan))
    writer(table).upsert(frame(("z", "p", 5)))
    assert not open_own(table.reload()).timeline.pending()
    assert_right(table)


@VERSIONS
def test_what_was_written_again_is_not_the_target_of_a_rollback_any_more(table: HudiTable) -> None:
    planned = schedule_compaction(reopened(table))
    assert planned is not None
    time = planned.requested_time
    own = open_own(table.reload())
    plan = RollbackPlan(instant_to_rollback=InstantInfo(commit_time=time, action="deltacommit"))
    create_requested(own, Instant(InstantTime("20200101000000001"), Action.ROLLBACK, State.REQUESTED), plan)
    execute_pending_compactions(reopened(table))
    own = open_own(table.reload())
    assert not own.timeline.pending()
    assert own.timeline.completed().contains(time)
    assert_right(table)


@VERSIONS
def test_the_blocks_are_as_hudis(table: HudiTable) -> None:
    done = merged_by(table)
    mine = [block for block in blocks_of(table) if block.instant_time == done.requested_time]
    assert {block.type for block in mine} == {BlockType.HFILE_DATA, BlockType.DELETE}
    assert all(block.headers[HeaderKey.SCHEMA] for block in mine)
    metadata = open_own(table.reload()).commit_metadata(done)
    assert metadata.operation_type is WriteOperation.LOG_COMPACT
    assert {"files", "record_index", "column_stats"} <= set(metadata.partitions)
