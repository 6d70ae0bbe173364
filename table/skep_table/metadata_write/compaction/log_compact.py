"""Log compaction of the metadata table: the log files of a file group become one, on the way to a compaction.

It has one entry for each key, marks of what was deleted too, and names the delta commits that it stands for. Hudi
before 1.2 reads both, one after the other: applied twice, such entries come to the same. It is planned, carried out and
completed under one hold of the lock, while nothing is pending that could still be ordered or rolled back below it.
"""

from __future__ import annotations

import logging
from typing import Final

from skep_format.clock import Clock
from skep_format.instant_time import InstantTime
from skep_format.logfile import HeaderKey
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import WriteOperation, WriteStat
from skep_format.timeline.plans import CompactionPlan, CompactionStrategy
from skep_format.timeline.write import create_requested, transition_to_inflight
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import GroupReader
from skep_table.metadata_table.partitions import member_of
from skep_table.metadata_write.compaction.compact import (
    changed_slices,
    complete_merge,
    delta_commits_to_compact,
    last_compaction,
    operation_of,
    unused_time,
)
from skep_table.metadata_write.compaction.merge import merged_changes
from skep_table.metadata_write.definitions import index_types
from skep_table.metadata_write.delta_commit import log_content, log_stat
from skep_table.metadata_write.options import LOG_COMPACT_BLOCKS, LOG_COMPACT_ENABLE
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import entries_of, record_schema
from skep_table.metadata_write.unfinished import without_unfinished
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_SUFFIX: Final = "005"
_COMPACTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
_MOST_BYTES: Final = 128 << 20  # of the log files of a group; what is more awaits the compaction

log = logging.getLogger("skep.services")


def is_log_compaction_due(table: HudiTable, own: HudiTable) -> bool:
    """Whether the options enable it, and so many delta commits were written since the last one, or a compaction."""
    options = table.options
    return options.value(LOG_COMPACT_ENABLE) and len(_since_last(own)) >= options.value(LOG_COMPACT_BLOCKS)


def compact_metadata_logs(table: HudiTable, clock: Clock) -> Instant | None:
    """Merges the log files of `table`'s metadata table, a snapshot under the lock, where it is due and may be."""
    own = without_unfinished(open_own(table))
    time = _due_at(table, own)
    if time is None:
        return None
    reader, least = MetadataTable(table, own), table.options.value(LOG_COMPACT_BLOCKS)
    groups = [reader.group(slice_) for slice_ in changed_slices(table, own) if _size(slice_) <= _MOST_BYTES]
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


def _due_at(table: HudiTable, own: HudiTable) -> InstantTime | None:
    """The time of a log compaction now. None while too few delta commits, or what is pending, rule it out.

    Entries of an action that is pending would count as older than the merged ones, and those that completed may be
    rolled back.
    """
    if not is_log_compaction_due(table, own) or table.timeline.pending_changes():
        return None
    time = unused_time(table, own, _SUFFIX)
    if time is None or not all(each.requested_time.is_before(time) for each in own.timeline):
        return None
    compaction = last_compaction(own)
    return time if compaction is None or compaction.latest_time.is_before(time) else None


def _size(slice_: FileSlice) -> int:
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
        total_log_size_compacted=_size(slice_),
    )
    own.storage.create_exclusive(stat.path, data, durable=False)
    return stat
