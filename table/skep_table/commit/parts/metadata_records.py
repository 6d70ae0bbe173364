"""What an action records in the metadata table, what it drops there first, and what a rollback takes out again.

All of this is for the holder of the table's lock, except `abort_in_metadata_table`.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep_format.errors import FormatError, NotATableError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import IndexCommitMetadata, RollbackMetadata
from skep_table.commit.concurrency.changes import groups_of
from skep_table.commit.parts.metadata_table import built_or_building, delete_and_warn, drop_and_warn, metadata_clock
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import FILES, RECORD_INDEX, kind_of
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.files import files_of_rollback
from skep_table.metadata_table.records.secondary_index import keeps_texts
from skep_table.metadata_write.definitions import secondary_indexes
from skep_table.metadata_write.delta_commit import write_delta_commit
from skep_table.metadata_write.facts.keys import SAME_KEYS
from skep_table.metadata_write.facts.overtaken import indexes_that_hide
from skep_table.metadata_write.kinds.column_stats import updates_of_rollback
from skep_table.metadata_write.own import has_metadata_table, open_own, own_of_locked, with_building
from skep_table.metadata_write.unfinished import roll_back_delta_commit
from skep_table.preview import Preview
from skep_table.table import HudiTable


def drop_overtaken(table: HudiTable, instant: Instant, metadata: CommitMetadata) -> HudiTable:
    """Drops indexes in which the entries of this write would be hidden by those of writes that completed first.

    Readers of Hudi apply entries in the order in which writes were requested, where log files are named by these
    times. What a write with a later time has recorded of the same partitions or keys, without having seen this one,
    would count. That is right of one that brings no rows, and of statistics of partitions that only widen others.
    """
    if not table.format.logs.of_delta_commit or metadata.operation_type in SAME_KEYS:
        return table
    later = [i for i in table.timeline.completed().data() if i.requested_time.is_after(instant.requested_time)]
    if not later:
        return table
    theirs = [table.commit_metadata(each) for each in later]
    shared = set(metadata.partitions) & {path for each in theirs for path in each.partitions}
    dropped = indexes_that_hide(table, shared, {each.requested_time for each in later})
    mine = groups_of(metadata)
    if any(mine & groups_of(each) for each in theirs if each.operation_type not in SAME_KEYS):
        dropped.add(RECORD_INDEX)
    dropped &= built_or_building(table)
    return drop_and_warn(table, dropped, "a write that was requested later completed first", again=True)


def drop_retyped(table: HudiTable, instant: Instant, metadata: CommitMetadata) -> HudiTable:
    """Drops secondary indexes of columns whose type this write changes, where their values then have other texts.

    Entries of rows that the write leaves alone would not be found by the new ones.
    """
    indexes = secondary_indexes(table)
    if not indexes:
        return table
    before, after = table.stored_schema(), Preview(table, instant, metadata).stored_schema()
    dropped = {
        each.partition
        for each in indexes
        if each.column not in after or not keeps_texts(before[each.column].type, after[each.column].type)
    }
    return drop_and_warn(table, dropped, "their columns change their types", again=True)


def record_in_metadata_table(
    table: HudiTable, time: InstantTime, updates: Sequence[PartitionUpdate], *, locked: bool = False
) -> None:
    """Writes what the action `time` changes into the metadata table, before the action completes.

    A metadata table to which that can't be added is dropped: readers then list the storage. `locked`: the snapshot
    `table` was taken under the lock.
    """
    try:
        own = own_of_locked(table) if locked else open_own(table)
        write_delta_commit(own, time, updates, metadata_clock(table))
    except (FormatError, NotATableError) as error:
        delete_and_warn(table, error.message)


def drop_of_columns(table: HudiTable) -> HudiTable:
    """Drops what is of columns before these get other names: records and definitions state the names that they had."""
    kinds = {name: kind_of(name) for name in table.config.metadata_partitions}
    dropped = [name for name, kind in kinds.items() if kind is not None and kind.of_columns]
    return drop_and_warn(table, dropped, "columns change their names or types", again=True)


def drop_merged(table: HudiTable, time: InstantTime) -> HudiTable:
    """Drops the indexes that the entries of a write can't be taken out of any more, before it is rolled back.

    A compaction or log compaction has merged them, or the index was made after the write.
    """
    dropped = set(table.config.metadata_partitions) - {FILES}
    if not dropped:
        return table
    try:
        own = open_own(table)
    except NotATableError:
        return table
    if own.timeline.contains(time) and not _is_merged(own, time):
        built = dropped & (_built_of(table, time) | _made_after(own, time))
        return drop_and_warn(table, built, f"they were built of {time}, which is rolled back", again=True)
    if not own.timeline.contains(time) and table.timeline.pending_changes().contains(time):
        return table  # it has not come so far
    return drop_and_warn(table, dropped, f"they hold entries of {time}, which is rolled back", again=True)


def _is_merged(own: HudiTable, time: InstantTime) -> bool:
    """Whether a compaction or a log compaction has merged the entries of the write `time`.

    Each takes what has completed before it was requested. Where the timeline does not state when that was, any that is
    later than the write counts. Log compactions complete as delta commits.
    """
    entries = next(each for each in own.timeline if each.requested_time == time)
    if not entries.is_completed and own.format.logs.of_delta_commit:
        return False
    of_logs = own.timeline.files.log_compactions
    merging = (i for i in own.timeline.completed() if i.action is Action.COMMIT or i.requested_time in of_logs)
    return any(each.requested_time.is_at_or_after(entries.latest_time) for each in merging)


def _built_of(table: HudiTable, time: InstantTime) -> set[str]:
    """The indexes whose base files may hold what the write `time` brought, by the indexing that has built them."""
    built = set()
    for instant in table.timeline.completed().of(Action.INDEXING):
        metadata = table.plan(instant)
        for info in (metadata.index_partition_infos or ()) if isinstance(metadata, IndexCommitMetadata) else ():
            if info.index_upto_instant is None or time.is_at_or_before(info.index_upto_instant):
                built.add(info.metadata_partition_path or "")
    return built


def _made_after(own: HudiTable, time: InstantTime) -> set[str]:
    """The partitions that were made of the files when the write `time` had completed."""
    done = own.timeline.completed()
    added = max((each.latest_time for each in done if each.requested_time == time), default=time)
    first = [each for each in done if own.format.metadata.is_first(each.requested_time)]
    return {name for each in first if each.latest_time.is_after(added) for name in own.commit_metadata(each).partitions}


def record_rollback(table: HudiTable, rollback: Instant, metadata: RollbackMetadata) -> None:
    """Records what a rollback leaves behind its target's own entries, which `abort_in_metadata_table` has undone.

    These are log files with command blocks, and deleted files of a target that a compaction has merged already.
    """
    if not has_metadata_table(table.config):
        return
    try:
        known = MetadataTable.open(table)
    except NotATableError:
        return
    if known is None:
        return
    listed = {path: {file.name for file in known.files(path)} for path in metadata.partition_metadata}
    update = files_of_rollback(metadata, listed)
    if update is not None:
        record_in_metadata_table(
            table, rollback.requested_time, [update, *updates_of_rollback(with_building(table), metadata)]
        )


def abort_in_metadata_table(table: HudiTable, time: InstantTime) -> None:
    """Undoes what the action `time` has written into the metadata table, if anything."""
    if not has_metadata_table(table.config):
        return
    try:
        own = open_own(table)
        if own.timeline.contains(time):
            roll_back_delta_commit(own, time)
    except NotATableError:
        return
    except FormatError as error:
        delete_and_warn(table, error.message)
