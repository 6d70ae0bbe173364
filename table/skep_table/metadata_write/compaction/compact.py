"""Compaction of the metadata table: the changes since its last base file are merged into a new one (format guide 16.4),
or, by a log compaction, those in log files into one of these.

It is planned, carried out and completed under one hold of the lock. What a crash leaves of it has changed nothing that
readers see, and is deleted before the next delta commit (`unfinished.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from skep_format.clock import Clock
from skep_format.instant_time import DIGITS, InstantTime
from skep_format.logfile import HeaderKey
from skep_format.names import LogFileName
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat, stats_by_partition
from skep_format.timeline.plans import CompactionOperation, CompactionPlan, CompactionStrategy
from skep_format.timeline.timeline import format_instant_time
from skep_format.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import GroupReader
from skep_table.metadata_table.partitions import member_of
from skep_table.metadata_write.compaction.merge import merged_changes, merged_puts
from skep_table.metadata_write.definitions import index_types
from skep_table.metadata_write.delta_commit import log_content, log_stat
from skep_table.metadata_write.options import (
    COMPACT_DELTA_COMMITS,
    COMPACT_DELTA_SECONDS,
    COMPACT_TRIGGER,
    LOG_COMPACT_BLOCKS,
    LOG_COMPACT_ENABLE,
)
from skep_table.metadata_write.own import building_partitions, open_own
from skep_table.metadata_write.records import entries_of, record_schema, write_base
from skep_table.metadata_write.unfinished import without_unfinished
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_SUFFIX: Final = "001"
_NO_TIME: Final = "0" * 14

log = logging.getLogger("skep.services")


def compact_metadata_table(table: HudiTable, clock: Clock) -> Instant | None:
    """Compacts the metadata table of `table`, a snapshot under the lock, where it is due and may be.

    Actions of the data table that are pending and have completed here may still be rolled back: they go first.
    """
    own = without_unfinished(open_own(table))
    time = _due_at(table, own)
    if time is None:
        return None
    slices, types = list(changed_slices(table, own)), index_types(table)
    instant = Instant(time, Action.COMPACTION, State.REQUESTED)
    create_requested(own, instant, CompactionPlan(operations=tuple(map(operation_of, slices))))
    instant = transition_to_inflight(own, instant)
    metadata_table = MetadataTable(table, own)
    stats = [_compacted(own, each, metadata_table.group(each), time, types.get(each.partition_path)) for each in slices]
    done = complete_merge(own, instant, WriteOperation.COMPACT, stats, clock)
    log.info("table %s: its metadata table is compacted at %s", table.config.name, time)
    table.context.events.emit("metadata_table.compacted", table=table.config.name, instant=time)
    return done


def complete_merge(
    own: HudiTable, instant: Instant, operation: WriteOperation, stats: Iterable[WriteStat | None], clock: Clock
) -> Instant:
    """Completes a compaction or log compaction whose files `stats` are of, once they are on the disk."""
    written = list(filter(None, stats))
    own.storage.sync([stat.path for stat in written])
    metadata = CommitMetadata(
        partition_to_write_stats=stats_by_partition(written),
        operation_type=operation,
        compacted=True,
        extra_metadata={"schema": record_schema(own.format.metadata.release).text},
    )
    return complete(own, instant, metadata, clock, alone=True)


def changed_slices(table: HudiTable, own: HudiTable) -> Iterator[FileSlice]:
    """The latest slices with log files besides the empty one that a file group begins with."""
    view, types = own.view(metadata=False), index_types(table)
    for partition in table.config.metadata_partitions:
        if member_of(partition, types.get(partition)) is None:
            continue
        for slice_ in view.slices(partition):
            if not all(_begins_group(own, slice_, log.name) for log in slice_.log_files):
                yield slice_


def _begins_group(own: HudiTable, slice_: FileSlice, name: LogFileName) -> bool:
    """Whether it is the empty log file with which a file group begins."""
    is_first = own.format.metadata.is_first
    if own.format.logs.of_delta_commit:
        return is_first(name.instant_time)
    return name.version == 1 and is_first(slice_.base_instant)


def operation_of(slice_: FileSlice) -> CompactionOperation:
    """What a plan states of a slice."""
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(str(each.name) for each in slice_.log_files),
        data_file_path=str(slice_.base_file.name) if slice_.base_file else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition_path,
        metrics={},
    )


def _compacted(
    own: HudiTable, slice_: FileSlice, group: GroupReader, time: InstantTime, index_type: str | None
) -> WriteStat | None:
    """The stat of the new base file; None where no record is left: the slice then stays as it is."""
    partition, release = slice_.partition_path, own.format.metadata.release
    member = member_of(partition, index_type)
    assert member is not None, partition
    puts = merged_puts(partition, group.entries(column=member), release, index_type)
    stat = write_base(own, partition, slice_.file_id, time, puts, record_schema(release))
    return stat and replace(
        stat,
        prev_commit=slice_.base_instant,
        total_log_files_compacted=len(slice_.log_files),
        total_log_size_compacted=sum(each.size_bytes for each in slice_.log_files),
    )


def last_compaction(own: HudiTable) -> Instant | None:
    """The last completed compaction of a metadata table: there, all other writes are delta commits."""
    return own.timeline.completed().of(Action.COMMIT).last()


def delta_commits_to_compact(own: HudiTable) -> list[InstantTime]:
    """The completed delta commits since the last compaction, without what merges others."""
    last, merged = last_compaction(own), own.timeline.files.log_compactions
    completed = own.timeline.completed().of(Action.DELTA_COMMIT)
    since = (i for i in completed if last is None or i.latest_time.is_after(last.requested_time))
    return [i.requested_time for i in since if i.requested_time not in merged]


def is_compaction_due(table: HudiTable, own: HudiTable) -> bool:
    """Whether the trigger of the metadata table fires. It never does without a delta commit since the last compaction.

    Before the first one, time counts from the first delta commit with a time; some that make partitions have none.
    """
    count, last = len(delta_commits_to_compact(own)), last_compaction(own)
    if last is None:
        written = own.timeline.completed().of(Action.DELTA_COMMIT)
        last = next((each for each in written if not each.requested_time.startswith(_NO_TIME)), None)
    now, options = table.context.clock.now(), table.options
    since = format_instant_time(now - timedelta(seconds=options.value(COMPACT_DELTA_SECONDS)), own.config.timezone)
    return count > 0 and options.value(COMPACT_TRIGGER).fires(
        enough=count >= options.value(COMPACT_DELTA_COMMITS),
        long_ago=last is not None and InstantTime(last.requested_time[:DIGITS]).is_at_or_before(since),
    )


def unused_time(table: HudiTable, own: HudiTable, suffix: str) -> InstantTime | None:
    """A time for what the metadata table does on its own; no action of the data table has it, or ever will.

    That is the time of the last delta commit with a suffix, or one at which, or right before which, an action of the
    data table has completed: no other is ever requested there. None where there is none yet.
    """
    if table.format.metadata.appends_suffixes:
        times = [each.requested_time for each in own.timeline.completed().of(Action.DELTA_COMMIT)]
        last = max((time for time in times if len(time) == DIGITS), default=None)
        return None if last is None else InstantTime(last + suffix)
    latest = [each.latest_time for each in table.timeline.completed()]
    if not latest:
        return None
    time = max(latest)
    while own.timeline.contains(time) or table.timeline.contains(time):
        time = time.plus_milliseconds(-1)
    return time


def _due_at(table: HudiTable, own: HudiTable) -> InstantTime | None:
    """The time of a compaction now; None while its trigger, or what is pending, rules it out.

    Partitions that are being built have no base to be merged with yet, and their log files must stay readable: the
    data table archives what a compaction has merged.
    """
    return None if building_partitions(table.config) else _free_at(table, own)


def is_held_up_by_building(table: HudiTable) -> bool:
    """Whether the metadata table would be compacted now if none of its partitions was being built."""
    return bool(building_partitions(table.config)) and _free_at(table, open_own(table)) is not None


def _free_at(table: HudiTable, own: HudiTable) -> InstantTime | None:
    if not is_compaction_due(table, own):
        return None
    time = unused_time(table, own, _SUFFIX)
    if time is None or own.timeline.contains(time):
        return None
    for pending in table.timeline.pending_changes():
        if own.timeline.contains(pending.requested_time):
            return None
        if table.format.metadata.appends_suffixes and pending.requested_time.is_before(time):
            return None
    # A delta commit that completes at this time or later would belong on top of the compaction.
    return time if all(each.latest_time.is_before(time) for each in own.timeline.data()) else None


_LOG_SUFFIX: Final = "005"
_COMPACTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
_MOST_LOG_BYTES: Final = 128 << 20  # of the log files of a group; what is more awaits the compaction


def is_log_compaction_due(table: HudiTable, own: HudiTable) -> bool:
    """Whether the options enable it, and so many delta commits were written since the last one, or a compaction."""
    options = table.options
    return options.value(LOG_COMPACT_ENABLE) and len(_since_last(own)) >= options.value(LOG_COMPACT_BLOCKS)


def compact_metadata_logs(table: HudiTable, clock: Clock) -> Instant | None:
    """Merges the log files of `table`'s metadata table, a snapshot under the lock, where it is due and may be.

    Those of a file group become one, on the way to a compaction. It has one entry for each key, marks of what was
    deleted too, and names the delta commits that it stands for. Hudi before 1.2 reads both, one after the other:
    applied twice, such entries come to the same. Nothing is pending meanwhile that could still be ordered or rolled
    back below it.
    """
    own = without_unfinished(open_own(table))
    time = _logs_due_at(table, own)
    if time is None:
        return None
    reader, least = MetadataTable(table, own), table.options.value(LOG_COMPACT_BLOCKS)
    groups = [reader.group(slice_) for slice_ in changed_slices(table, own) if _log_bytes(slice_) <= _MOST_LOG_BYTES]
    chosen = [(each, times) for each in groups if len(times := each.times()) >= least]
    if not chosen:
        return None
    plan = CompactionPlan(
        operations=tuple(operation_of(each.slice) for each, _ in chosen),
        strategy=CompactionStrategy(compactor_class_name=_COMPACTOR, strategy_params={}),
        preserve_hoodie_metadata=True,
    )
    instant = create_requested(own, Instant(time, Action.LOG_COMPACTION, State.REQUESTED), plan)
    instant = transition_to_inflight(own, instant)
    types = index_types(table)
    stats = [_merged(own, each, times, time, types.get(each.slice.partition_path)) for each, times in chosen]
    done = complete_merge(own, instant, WriteOperation.LOG_COMPACT, stats, clock)
    log.info("table %s: the log files of its metadata table are merged at %s", table.config.name, time)
    table.context.events.emit("metadata_table.logs_compacted", table=table.config.name, instant=time)
    return done


def _since_last(own: HudiTable) -> list[InstantTime]:
    """The delta commits that neither a compaction nor a log compaction has merged."""
    merged = own.timeline.files.log_compactions
    done = [each for each in own.timeline.completed().of(Action.DELTA_COMMIT) if each.requested_time in merged]
    last = max((each.requested_time for each in done), default=None)
    return [time for time in delta_commits_to_compact(own) if last is None or time.is_after(last)]


def _logs_due_at(table: HudiTable, own: HudiTable) -> InstantTime | None:
    """The time of a log compaction now. None while too few delta commits, or what is pending, rule it out.

    Entries of an action that is pending would count as older than the merged ones, and those that completed may be
    rolled back.
    """
    if not is_log_compaction_due(table, own) or table.timeline.pending_changes():
        return None
    time = unused_time(table, own, _LOG_SUFFIX)
    if time is None or not all(each.requested_time.is_before(time) for each in own.timeline):
        return None
    compaction = last_compaction(own)
    return time if compaction is None or compaction.latest_time.is_before(time) else None


def _log_bytes(slice_: FileSlice) -> int:
    return sum(each.size_bytes for each in slice_.log_files)


def _merged(
    own: HudiTable, group: GroupReader, times: frozenset[InstantTime], time: InstantTime, index_type: str | None
) -> WriteStat | None:
    """The stat of the new log file, which stands for the blocks of `times`; None where it would state less."""
    slice_ = group.slice
    partition, schema = slice_.partition_path, record_schema(own.format.metadata.release)
    member = member_of(partition, index_type)
    assert member is not None, partition
    changes = merged_changes(partition, list(group.entries(column=member)), own.format.metadata.release, index_type)
    if changes is None:
        return None
    puts, deletes = changes
    headers = {
        HeaderKey.INSTANT_TIME: str(time),
        HeaderKey.SCHEMA: schema.file_text,
        HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(sorted(times, reverse=True)),
    }
    entries = entries_of(puts, schema) if len(puts) else None
    data = log_content(headers, entries, deletes, partition, schema)
    logs = own.format.logs
    last = 0 if logs.of_delta_commit else max(each.name.version for each in slice_.log_files)
    name = logs.new_file(slice_.file_id, slice_.base_instant, time, last, logs.write_token(0, 0, time))
    stat = log_stat(
        slice_,
        name,
        data,
        slice_.base_file,
        [each.name for each in slice_.log_files],
        prev_commit=slice_.base_instant,
        num_writes=len(puts),
        num_deletes=len(deletes),
        total_log_files_compacted=len(slice_.log_files),
        total_log_size_compacted=_log_bytes(slice_),
    )
    own.storage.create_exclusive(stat.path, data, durable=False)
    return stat
