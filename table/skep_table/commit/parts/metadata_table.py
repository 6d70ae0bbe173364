"""The metadata table that a table keeps: what a write would not keep in step is dropped before it, and rebuilt; what an
action records there, and what a rollback takes out again.

All of this is for the holder of the table's lock, except `abort_in_metadata_table`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from skep_format.clock import Clock, LateClock
from skep_format.errors import FormatError, MetadataTableError, NotATableError, SkepError
from skep_format.instant_time import InstantTime
from skep_format.options import Options
from skep_format.table_config import update_table_config
from skep_format.table_config.keys import PROPERTIES_PATH
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import IndexCommitMetadata, RollbackMetadata
from skep_table.commit.concurrency.changes import groups_of
from skep_table.commit.concurrency.indexing_executors import reserved_partitions
from skep_table.commit.instants import timeline_clock
from skep_table.commit.options import METADATA_TABLE_POLICY, Concurrency, MetadataTablePolicy
from skep_table.metadata_table import FOLDER, MetadataTable
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.partitions import COLUMN_STATS, FILES, RECORD_INDEX, SINGLE, is_named, kind_of, with_led
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.files import files_of_rollback
from skep_table.metadata_table.records.secondary_index import keeps_texts
from skep_table.metadata_write.definitions import (
    definitions_of,
    expression_indexes,
    new_stats_columns,
    secondary_indexes,
    secondary_of_options,
)
from skep_table.metadata_write.delta_commit import write_delta_commit
from skep_table.metadata_write.drop import (
    Definitions,
    delete_metadata_table,
    drop_indexes,
    dropped_indexes,
    naming_dropped,
)
from skep_table.metadata_write.facts.keys import SAME_KEYS
from skep_table.metadata_write.facts.overtaken import indexes_that_hide
from skep_table.metadata_write.kinds.column_stats import updates_of_rollback
from skep_table.metadata_write.making.create import create_metadata_table, waits_for
from skep_table.metadata_write.options import INDEX_ASYNC, partitions_of_options, warn_of_ineffective
from skep_table.metadata_write.own import (
    building_partitions,
    has_metadata_table,
    open_own,
    own_of_locked,
    with_building,
)
from skep_table.metadata_write.unfinished import roll_back_delta_commit
from skep_table.preview import Preview
from skep_table.table import METADATA_ENABLE, HudiTable

_EARLIER_SECONDS: Final = 0.001

log = logging.getLogger("skep.commit")


def keeps_metadata_table(options: Options) -> bool:
    """Whether writes keep a metadata table that is there in step; otherwise they drop it."""
    return options.value(METADATA_ENABLE) or not options.is_set(METADATA_ENABLE)


def metadata_clock(table: HudiTable) -> Clock:
    """The clock by which actions on the metadata table complete: a millisecond before that of the table.

    A compaction there takes the time at which the table's last action completed, and has to lie after all of its own.
    """
    return LateClock(timeline_clock(table), _EARLIER_SECONDS)


def drop_unkept(table: HudiTable) -> HudiTable:
    """Drops what this write would not keep in step, and what does not agree with the table any more.

    That is the whole metadata table where it is not to be kept, or where some writer has not kept it; otherwise the
    indexes of which skep can't write the entries. Returns the snapshot after it. MetadataTableError where the options
    forbid that.
    """
    keeps = keeps_metadata_table(table.options)
    if not has_metadata_table(table.config):
        return table if keeps else name_dropped(table, {})
    if not keeps:
        return drop_metadata_table(table)
    if table.metadata_table() is None:
        return delete_and_warn(table, "it does not list all commits, and is rebuilt")
    unkept = sorted((built_or_building(table) - _maintained(table)) | _without_groups(table))
    if not unkept:
        return table
    _check_may_drop(table, f"the indexes {', '.join(unkept)} in its metadata table")
    return drop_and_warn(table, unkept, "skep does not keep them in step")


def to_make_again(table: HudiTable, partitions: Collection[str]) -> Definitions:
    """What the settings are to name when these partitions are dropped, to be rebuilt: what was dropped before, too.

    With them are the definitions that the options would not give them.
    """
    if not keeps_metadata_table(table.options):
        return {}
    kept = set(partitions) & _maintained(table)
    defined = definitions_of(table) if kept - {FILES} else {}
    usual = {name for name in kept if name not in defined or _is_usual(table, defined[name])}
    return {**dropped_indexes(table.config), **{name: None if name in usual else defined[name] for name in kept}}


def _is_usual(table: HudiTable, definition: IndexDefinition) -> bool:
    """Whether column statistics are of the columns that they would be made of. These may change their names."""
    return definition.name == COLUMN_STATS and set(definition.source_fields) == set(new_stats_columns(table))


def create_missing(table: HudiTable) -> HudiTable:
    """Makes what was dropped to be rebuilt, and what the options enable, unless pending actions must end first.

    Warns of options that switch off what is kept, or on what is not made.
    """
    table = _create_dropped(table)
    warn_of_ineffective(table)
    if not table.options.value(METADATA_ENABLE):
        return table
    secondary = secondary_of_options(table)
    return _create(table, {*partitions_of_options(table), *secondary}, secondary)


def create_again(table: HudiTable) -> HudiTable:
    """As `create_missing`, after an action that had to drop something, and that is complete whether it can be made or
    not."""
    try:
        return create_missing(table)
    except SkepError as error:
        log.warning("table %s: its metadata table is not rebuilt: %s", table.config.name, error.message)
        return table.reload()


def _create_dropped(table: HudiTable) -> HudiTable:
    """Makes what the settings name as dropped. What the table can't have is named no longer; a write goes on then."""
    dropped, name = dropped_indexes(table.config), table.config.name
    if not dropped or not keeps_metadata_table(table.options):
        return table
    definitions = {partition: definition for partition, definition in dropped.items() if definition is not None}
    can_wait = True
    try:
        table = _create(table, dropped.keys(), definitions)
    except SkepError as error:
        log.warning("table %s: its metadata table is not rebuilt: %s", name, error.message)
        table = table.reload()
        if not isinstance(error, MetadataTableError):
            return table
        can_wait = False
    missing = dropped.keys() - built_or_building(table)
    waiting = missing if waits_for(table) else reserved_partitions(table)
    later = {each for each in missing if can_wait and (each in waiting or _is_built_aside(table, each))}
    if lost := sorted(missing - later):
        log.warning("table %s: the indexes %s are not rebuilt", name, ", ".join(lost))
    return name_dropped(table, {each: dropped[each] for each in later})


def _create(table: HudiTable, partitions: Collection[str], definitions: Mapping[str, IndexDefinition]) -> HudiTable:
    # Secondary indexes are maintained once the record index is there, which is made with them.
    wanted = (_maintained(table) & set(partitions)) | set(filter(is_named, definitions))
    wanted -= {name for name in wanted if _is_built_aside(table, name)}
    if wanted <= built_or_building(table):
        return table
    return create_metadata_table(table, metadata_clock(table), wanted, definitions, reserved_partitions(table))


def name_dropped(table: HudiTable, indexes: Definitions) -> HudiTable:
    """The snapshot whose settings name these, and no others, as dropped."""
    change = naming_dropped(indexes)
    if all(table.config.raw.get(key) == text for key, text in change.items()):
        return table
    update_table_config(table.storage, change)
    return table.reload()


def built_or_building(table: HudiTable) -> set[str]:
    """The partitions that the settings name: readers use those that are built, writes keep all of them."""
    return {*table.config.metadata_partitions, *building_partitions(table.config)}


def _is_built_aside(table: HudiTable, partition: str) -> bool:
    return table.options.value(INDEX_ASYNC) and can_be_built_aside(partition)


def can_be_built_aside(partition: str) -> bool:
    """Whether an indexing action can build a partition while writers go on."""
    return partition in SINGLE and partition != FILES


def _without_groups(table: HudiTable) -> frozenset[str]:
    """The partitions that the settings name as being built, and in which no write finds a file group for its entries.

    An indexer that died leaves them, or one of Hudi that makes its file groups later: what is written until then would
    be missing there.
    """
    building = building_partitions(table.config)
    if not building:
        return frozenset()
    view = open_own(table).view(metadata=False)
    return frozenset(name for name in building if not view.slices(name))


def _maintained(table: HudiTable) -> frozenset[str]:
    """The partitions that writes can keep in step.

    Keys of the record index are read from the column that has them, and secondary indexes lead to it.
    """
    kept = frozenset(name for name, kind in SINGLE.items() if kind.fits(table.config, table.format.metadata))
    kept |= {index.partition for index in expression_indexes(table)}
    if RECORD_INDEX not in kept & set(table.config.metadata_partitions):
        return kept
    return kept | {index.partition for index in secondary_indexes(table)}


def drop_and_warn(table: HudiTable, dropped: Collection[str], why: str, *, again: bool = False) -> HudiTable:
    """Drops these indexes, if any, and secondary ones with the record index; the next writer makes them `again`."""
    if not dropped:
        return table
    there = built_or_building(table)
    going = set(with_led(dropped, there))
    drop_indexes(table, there - going, to_make_again(table, going) if again else None)
    left = table.reload()
    name, names = table.config.name, sorted(built_or_building(table) - built_or_building(left))
    log.warning("table %s: the indexes %s of its metadata table are dropped; %s", name, ", ".join(names), why)
    table.context.events.emit("write.indexes_dropped", table=name, indexes=names)
    return left


def drop_metadata_table(table: HudiTable, *, again: bool = False) -> HudiTable:
    """Drops the metadata table as Hudi does before a write that does not maintain it: its listing would be outdated.

    Returns the snapshot after it; the next writer makes it `again`. MetadataTableError when the options forbid it.
    """
    if not has_metadata_table(table.config):
        return table
    _check_may_drop(table, "a metadata table")
    return delete_and_warn(table, "a Hudi writer with metadata enabled rebuilds it", again=again)


def older_metadata(table: HudiTable) -> tuple[str, ...]:
    """The partitions of the metadata table of a table of an older version; before version 4 no setting names them."""
    there = table.config.metadata_partitions or not table.storage.exists(f"{FOLDER}/{PROPERTIES_PATH}")
    return table.config.metadata_partitions if there else (FILES,)


def drop_older(table: HudiTable) -> HudiTable:
    """As `drop_metadata_table`, of a table of an older version, whose settings need not name it."""
    partitions = older_metadata(table)
    if not partitions and not has_metadata_table(table.config):
        return table
    _check_may_drop(table, "a metadata table")
    why = f"version {table.config.version} keeps it by other rules"
    return delete_and_warn(table.with_config(replace(table.config, metadata_partitions=partitions)), why)


def delete_and_warn(table: HudiTable, why: str, *, again: bool = True) -> HudiTable:
    """Drops all of it, whatever the options are, and returns the snapshot after that."""
    name, partitions = table.config.name, table.config.metadata_partitions
    delete_metadata_table(table.storage, to_make_again(table, partitions) if again else {})
    log.warning("table %s: its metadata table is dropped; %s", name, why)
    table.context.events.emit("write.metadata_table_dropped", table=name, partitions=partitions)
    return table.reload()


def _check_may_drop(table: HudiTable, what: str) -> None:
    name, options = table.config.name, table.options
    if Concurrency.of(options).is_shared:
        raise MetadataTableError(
            f"table {name} has {what}, and other writers may be keeping it",
            hint="run all writers with the same hoodie.metadata options, and without indexes in the metadata table",
            table=name,
            found=table.config.metadata_partitions,
        )
    if options.value(METADATA_TABLE_POLICY) is MetadataTablePolicy.REFUSE:
        raise MetadataTableError(
            f"table {name} has {what}, which this write would have to drop",
            hint=f"{METADATA_TABLE_POLICY.key}={MetadataTablePolicy.DROP.value} allows it",
            table=name,
            found=table.config.metadata_partitions,
        )


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
