"""A delta commit of the metadata table: what one action on the data table changes (format guide 16.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skep_format.clock import Clock
from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey
from skep_format.logfile.writer import delete_content, format_block
from skep_format.names import LogFileName, join
from skep_format.runner import ThreadRunner
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat, stats_by_partition
from skep_format.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.metadata_table.keys import group_id, group_set
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_write.records import (
    FIRST_TOKEN,
    RecordSchema,
    check_keys,
    entries_of_each,
    hfile_of,
    record_schema,
)
from skep_table.metadata_write.unfinished import roll_back_delta_commit, without_unfinished
from skep_table.table import HudiTable
from skep_table.view import BaseFile, FileSlice, LogFile

_MANY_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class _Append:
    """A log file to write. `planned` is what the inflight file states of it, `stat` what the completed one does."""

    planned: WriteStat
    stat: WriteStat
    data: bytes


def write_delta_commit(own: HudiTable, time: InstantTime, updates: Sequence[PartitionUpdate], clock: Clock) -> None:
    """Writes and completes the delta commit `time` of the metadata table `own`; an earlier attempt at it is undone.

    Readers ignore it until the action of the same time on the data table completes. So its files need not be durable
    one after the other: they are synced together. But for its request, which has to be there where a log file is: the
    next executor of a plan, whose time is the same, finds by it what it has to undo after a power loss.
    """
    own = without_unfinished(own)
    if own.timeline.contains(time):
        roll_back_delta_commit(own, time)
        own = own.reload()
    schema = record_schema(own.format.metadata.release)
    entries = entries_of_each([update.puts for update in updates], schema)

    def appended(update: tuple[PartitionUpdate, pa.RecordBatch]) -> list[_Append]:
        return list(_appends(own, time, *update, schema))

    # compressing large ones takes most of the time: several are compressed at the same time
    large = sum(each.nbytes > _MANY_BYTES for each in entries)
    threads = own.context.threads if large > 1 else ThreadRunner(1)
    appends = [append for each in threads.map(appended, zip(updates, entries, strict=True)) for append in each]
    planned = _metadata([append.planned for append in appends])
    requested = create_requested(own, Instant(time, Action.DELTA_COMMIT, State.REQUESTED))
    inflight = transition_to_inflight(own, requested, planned, durable=False)
    for append in appends:
        own.storage.create_exclusive(append.stat.path, append.data, durable=False)
    metadata = replace(_metadata([append.stat for append in appends]), extra_metadata={"schema": schema.text})
    done = complete(own, inflight, metadata, clock, alone=True, durable=False)
    states = map(own.timeline.layout.path, (requested, inflight, done))
    own.storage.sync([*(append.stat.path for append in appends), *states])


def _metadata(stats: Iterable[WriteStat]) -> CommitMetadata:
    written = stats_by_partition(stats)
    return CommitMetadata(partition_to_write_stats=written, operation_type=WriteOperation.UPSERT_PREPPED)


def _appends(
    own: HudiTable, time: InstantTime, update: PartitionUpdate, puts: pa.RecordBatch, schema: RecordSchema
) -> Iterator[_Append]:
    """One log file for each file group that has one of the keys. `puts` are the entries of the update."""
    slices = sorted(own.view(metadata=False).slices(update.partition), key=lambda slice_: slice_.file_id)
    if not slices:
        raise FormatError(
            f"{own.storage.root}: no files in partition {update.partition}, which the table's settings name",
            path=join(own.storage.root, update.partition),
            expected="at least one file group",
        )
    if update.group_set is not None:
        slices = [slice_ for slice_ in slices if group_set(slice_.file_id) == update.group_set]
        if not slices and len(update.puts):
            slice_ = FileSlice(update.partition, group_id(update.group_set, 0), time)
            log = LogFileName(slice_.file_id, time, 1, FIRST_TOKEN)
            begin = _begin(time, slice_, log)
            yield begin
            slices = [replace(slice_, log_files=(LogFile(begin.stat.path, len(begin.data), log),))]
    if not slices:
        return  # deletes of keys that are not there
    check_keys(own, update.partition, update.puts["key"])
    put_to = update.groups_of(puts["key"], len(slices))
    deleted_from = update.groups_of(update.deletes, len(slices))
    for number in np.union1d(put_to, deleted_from).tolist():
        deletes = update.deletes.filter(pa.array(deleted_from == number))
        yield _append(own, time, slices[number], puts.filter(pa.array(put_to == number)), deletes, schema)


def _begin(time: InstantTime, slice_: FileSlice, name: LogFileName) -> _Append:
    """The log file with which a file group of Hudi begins: an empty list of deletes."""
    data = first_block(time, slice_.partition_path)
    stat = log_stat(slice_, name, data, None, (), prev_commit=time)
    return _Append(replace(stat, path="", log_version=None, log_files=None), stat, data)


def first_block(time: InstantTime, partition: str) -> bytes:
    """The content of the log file with which each file group begins."""
    none = delete_entries(pa.array([], pa.string()), partition)
    return format_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: str(time)}, delete_content(none))


def _append(
    own: HudiTable, time: InstantTime, slice_: FileSlice, puts: pa.RecordBatch, deletes: pa.Array, schema: RecordSchema
) -> _Append:
    headers = {HeaderKey.INSTANT_TIME: str(time), HeaderKey.SCHEMA: schema.file_text}
    data = log_content(headers, puts, deletes, slice_.partition_path, schema)
    logs = own.format.logs
    mine = [log.name for log in slice_.log_files if not logs.of_delta_commit or log.name.instant_time == time]
    last = max((name.version for name in mine), default=0)
    name = logs.new_file(slice_.file_id, slice_.base_instant, time, last, logs.write_token(0, 0, time))
    base = slice_.base_file if not logs.of_delta_commit else None
    planned = WriteStat(
        file_id=slice_.file_id,
        path="",
        partition_path=slice_.partition_path,
        prev_commit=slice_.base_instant,
        num_update_writes=puts.num_rows,
    )
    counts = {"num_update_writes": puts.num_rows, "num_writes": puts.num_rows, "num_deletes": len(deletes)}
    return _Append(planned, log_stat(slice_, name, data, base, mine, prev_commit=name.instant_time, **counts), data)


def log_content(
    headers: Mapping[HeaderKey, str],
    entries: pa.RecordBatch | None,
    deletes: pa.Array,
    partition: str,
    schema: RecordSchema,
) -> bytes:
    """The blocks of a log file: one of entries, if there are any, and one of deletes."""
    data = format_block(BlockType.HFILE_DATA, headers, hfile_of(entries, schema)) if entries else b""
    if len(deletes) or not data:
        data += format_block(BlockType.DELETE, headers, delete_content(delete_entries(deletes, partition)))
    return data


def log_stat(
    slice_: FileSlice,
    name: LogFileName,
    data: bytes,
    base: BaseFile | None,
    before: Iterable[LogFileName],
    **facts: Any,
) -> WriteStat:
    """The stat of a new log file, which lies over `base` and the log files `before` it."""
    return WriteStat(
        file_id=slice_.file_id,
        path=join(slice_.partition_path, str(name)),
        partition_path=slice_.partition_path,
        total_write_bytes=len(data),
        file_size_in_bytes=len(data),
        log_version=name.version,
        log_offset=0,
        base_file=str(base.name) if base is not None else "",
        log_files=(*map(str, before), str(name)),
        **facts,
    )


def delete_entries(keys: pa.Array, partition: str) -> pa.Table:
    """The entries of a delete block for keys of a partition of the metadata table."""
    partitions = pa.array([partition] * len(keys), pa.string())
    return pa.table({"record_key": keys, "partition_path": partitions, "ordering_value": pa.nulls(len(keys))})
