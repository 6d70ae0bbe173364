"""Appending rows to a file group of a merge-on-read table: new log files over its newest slice.

Rows become data blocks, keys to delete a delete block behind them. Each write creates log files of its own, under names
that no other writer chooses: undoing one write leaves the blocks of the others alone. By an option it begins in the
newest log file of the slice, where that ends with a whole block: undoing it takes a command block then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import parquet_bytes, without_meta_values
from skep_format.errors import CommitConflictError, LeaseLostError, StorageError
from skep_format.logfile import BlockType, HeaderKey, avro_block, delete_block, format_block
from skep_format.logfile.options import DataBlockFormat
from skep_format.logfile.reader import ends_whole
from skep_format.metafile import ensure_partition
from skep_format.names import LogFileName, Marker, join
from skep_format.schema.avro import avro_text
from skep_format.schema.types import ALL_META_FIELDS, IS_DELETED, OPERATION, PARTITION_PATH, RECORD_KEY
from skep_format.storage import AppendingStorage
from skep_format.timeline.metadata import WriteOperation, WriteStat, runtime_stats
from skep_table.commit.parts.markers import create_marker, ensure_open
from skep_table.merge import last_of_each
from skep_table.merge.rows import Mask, as_mask, deleted, in_delete_block, ordering_columns
from skep_table.write.context import WriteContext
from skep_table.write.output.attempt import attempt_of, may_repeat
from skep_table.write.output.event_times import EventTimes
from skep_table.write.output.files import MetaColumns
from skep_table.write.output.positions import BasePlaces
from skep_table.write.planning.candidates import LogTail
from skep_table.write.planning.profile import Bucket

if TYPE_CHECKING:  # imported where there are statistics to be kept
    from skep_table.metadata_table.records.summaries import ColumnSummary
    from skep_table.metadata_write.facts.files import FileFacts

log = logging.getLogger("skep.write")
Headers = Mapping[HeaderKey, str]
_NO_HEADERS: Headers = {}


def append_rows(
    context: WriteContext, bucket: Bucket, tables: Iterable[pa.Table]
) -> tuple[list[WriteStat], list[FileFacts]]:
    """One stat for each log file; at least one. Each table gets blocks of its own, in the copies of the bucket, too.

    Raises what storage raises.

    Beside them, what column statistics record of those files that need not be read for it.
    """
    every: dict[int, LogFiles] = {}
    with ExitStack() as stack:
        for rows in tables:
            copies = () if bucket.copies is None else bucket.copies.parts(rows)
            for target, part in ((bucket, rows), *copies):
                if target.number not in every:
                    every[target.number] = stack.enter_context(LogFiles(context, target))
                for block in _blocks(context, target, part):
                    every[target.number].write(block)
        stats = [stat for files in every.values() for stat in files.close()]
    return stats, [facts for files in every.values() for facts in files.facts]


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a log file. `rows` does not count those marked as deletes; `records` are rows with event times.

    `columns` are the summaries of its columns, none of a block of deletes; None where they are not known.
    """

    data: bytes
    rows: int = 0
    deletes: int = 0
    records: pa.Table | None = None
    columns: Sequence[ColumnSummary] | None = None


def _blocks(context: WriteContext, bucket: Bucket, rows: pa.Table) -> Iterator[Block]:
    """Data blocks, those of partial updates first, then one of deletes; when there are no rows, one of no deletes."""
    places = BasePlaces.of(context, bucket)
    rows = places.added(rows)
    entries = _delete_entries(context, rows)
    kept = rows if entries is None else rows.filter(pa.array(~entries))
    meta = MetaColumns(context, bucket.number)
    for part, names in _by_columns(context, bucket, kept):
        for piece in pieces(places.ordered(part), context.logs.block_bytes):
            table = meta.added(piece, bucket.file_id)
            deletes = int(deleted(table, context.rule).sum())
            records = table if context.event_time else None
            stored = stored_rows(context, bucket.partition_path, table)
            columns = None if context.facts is None or names is not None else context.facts.of_log_rows(stored)
            block = data_block(context, stored, places.headers(piece), names)
            yield Block(block, table.num_rows - deletes, deletes, records, columns)
    if entries is not None or not kept.num_rows:
        taken = rows.slice(0, 0) if entries is None else last_of_each(rows.filter(pa.array(entries)))
        taken = places.ordered(taken)
        yield Block(deletes_block(context, taken, places.headers(taken)), deletes=taken.num_rows, columns=())


def _by_columns(
    context: WriteContext, bucket: Bucket, rows: pa.Table
) -> Iterator[tuple[pa.Table, tuple[str, ...] | None]]:
    """Rows with the names of the columns that count, None for all."""
    partial = context.partial
    if partial is None or not rows.num_rows:
        yield rows, None
        return
    some = partial.in_slice(rows, bucket.partition_path, bucket.file_id)
    for flags, names in ((some, partial.names), (~some, None)):
        if flags.any():
            if names is None:
                partial.check_new(int(flags.sum()))
            yield rows.filter(pa.array(flags)), names


def _delete_entries(context: WriteContext, rows: pa.Table) -> Mask | None:
    """Which rows are entries of the delete block; None for none.

    Not those whose `_hoodie_is_deleted` competes by ordering value where an entry of a delete block would remove the
    stored row whatever its ordering value: every reader knows that column.
    """
    if context.deletes:
        return np.ones(rows.num_rows, np.bool_)
    deletes = deleted(rows, context.rule)
    base = context.rule.base
    if base.by_ordering and (base.block_wins or base.delete_wins) and IS_DELETED in rows.schema.names:
        deletes &= in_delete_block(rows) | ~as_mask(rows.column(IS_DELETED))
    return deletes if deletes.any() else None


def pieces(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Rows in their order, in pieces below the limit; a row that is larger has one of its own."""
    if not rows.num_rows:
        return
    count = min(rows.num_rows, -(-rows.nbytes // max(1, most_bytes)))
    if count <= 1:
        yield rows
        return
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield from pieces(rows.slice(start, step), most_bytes)


def stored_rows(context: WriteContext, partition_path: str, rows: pa.Table) -> pa.Table:
    """Rows of one partition with all meta columns, as a log file gets them."""
    rows = context.dropped.filled(rows, partition_path)
    rows = rows if context.files.meta else without_meta_values(rows)
    if (at := rows.schema.get_field_index(OPERATION)) >= 0:
        # Hudi 1.2 fails at a row of a log without operation; U deletes nothing
        rows = rows.set_column(at, rows.schema.field(at), pc.fill_null(rows.column(at), "U"))
    return rows


def data_block(
    context: WriteContext, rows: pa.Table, more: Headers = _NO_HEADERS, names: tuple[str, ...] | None = None
) -> bytes:
    """Rows as `stored_rows` returns them. `more` are further headers; `names` the columns of partial rows."""
    schema = context.schema.with_meta().with_texts(context.dropped.names)
    if names is not None:
        schema = schema.select(tuple(name for name in schema.names() if name in names or name in ALL_META_FIELDS))
        rows = rows.select(schema.names())
        more = {**more, HeaderKey.IS_PARTIAL: "true"}
    if context.logs.block_format is DataBlockFormat.AVRO:
        return avro_block(context.instant_time, schema, rows, more=more)
    headers = {HeaderKey.INSTANT_TIME: context.instant_time, HeaderKey.SCHEMA: avro_text(schema), **more}
    return format_block(BlockType.PARQUET_DATA, headers, parquet_bytes(schema, rows, context.files))


def deletes_block(context: WriteContext, rows: pa.Table, more: Headers = _NO_HEADERS) -> bytes:
    """One entry a row. Deletes by key apply whatever the order, the others have their ordering value."""
    ordering: Any = pa.nulls(rows.num_rows)
    if context.rule.ordering_fields and not context.deletes:
        columns = ordering_columns(rows, context.rule)
        ordering = columns[0]
        if len(columns) > 1:
            ordering = pa.StructArray.from_arrays(columns, [str(number) for number in range(len(columns))])
        by_key = pa.array(in_delete_block(rows))
        ordering = pc.if_else(by_key, pa.scalar(None, ordering.type), ordering)
    entries = {
        "record_key": rows.column(RECORD_KEY),
        "partition_path": rows.column(PARTITION_PATH),
        "ordering_value": ordering,
    }
    return delete_block(context.instant_time, pa.table(entries), schema=context.schema.with_meta(), more=more)


@dataclass(slots=True)
class _OpenLog:
    name: LogFileName
    path: str
    sink: IO[bytes]
    times: EventTimes
    start: int = 0  # the bytes of other commits before its own
    size: int = 0
    rows: int = 0
    deletes: int = 0
    columns: list[Sequence[ColumnSummary] | None] = field(default_factory=list)


class LogFiles:
    """The log files that one task adds to a slice, one open at a time. Leaving the block without `close` deletes it."""

    def __init__(self, context: WriteContext, bucket: Bucket) -> None:
        self._context = context
        self._bucket = bucket
        self.facts: list[FileFacts] = []
        """What column statistics record of the files that have ended, as far as their blocks show it."""
        base = bucket.base
        self._is_new = base is None
        self._inserts = bucket.inserts  # those that no stat counts yet
        self._tail = (base.tail if base else None) or LogTail(context.instant_time)
        attempt = attempt_of(bucket.number)
        self._token = context.format.logs.write_token(
            attempt.task, attempt.number, context.instant_time, of_slice=self._tail.awaited
        )
        self._names: list[str] = []
        self._stats: list[WriteStat] = []
        self._stack = ExitStack()
        self._open: _OpenLog | None = None
        self._start = time.monotonic()  # the open file, or what comes before it

    def __enter__(self) -> LogFiles:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def write(self, block: Block) -> None:
        """Appends a block to the open log file, which ends when it has reached the size for log files in bytes."""
        file = self._open or (None if self._names else self._continued()) or self._next()
        file.sink.write(block.data)
        file.size += len(block.data)
        file.rows += block.rows
        file.deletes += block.deletes
        file.columns.append(block.columns)
        if block.records is not None:
            file.times.add(block.records)
        if file.start + file.size >= self._context.logs.file_bytes:
            self._close(file)

    def close(self) -> list[WriteStat]:
        """Ends the open file, and returns the stats of all files of the task."""
        if self._open is not None:
            self._close(self._open)
        return self._stats

    def _continued(self) -> _OpenLog | None:
        """The newest log file of the slice, where its blocks may be followed by others; None: a new file begins."""
        context, storage, found = self._context, self._context.storage, self._tail.last
        if not context.logs.appends or found is None or self._tail.awaited or may_repeat():
            return None
        assert isinstance(storage, AppendingStorage)
        name, size = found
        path = join(self._bucket.partition_path, str(name))
        # by its name it would be deleted with the files of this write
        taken = name.cdc or name.extension != "log" or context.format.logs.is_own(name, context.instant_time)
        if taken or size >= context.logs.file_bytes or not ends_whole(storage, path, size):
            return None
        marker = Marker(context.instant_time, self._bucket.partition_path, str(name), context.format.logs.marker_type)
        create_marker(storage, marker, listed=context.announced is not None)
        try:
            sink = self._stack.enter_context(storage.open_append(path))
        except StorageError as error:  # of HDFS, where a writer that died still has it open
            log.info("%s: a new log file begins, as this one can't grow: %s", path, error.message)
            return None
        self._names.append(str(name))
        self._open = _OpenLog(name, path, sink, EventTimes(context.event_time), size)
        return self._open

    def _next(self) -> _OpenLog:
        context, bucket, tail = self._context, self._bucket, self._tail
        partition = bucket.partition_path
        of_slice = tail.awaited or not context.format.logs.of_delta_commit
        last = sum(each not in tail.files for each in self._names) + (tail.version if of_slice else 0)
        named_by = tail.base_instant if tail.awaited else context.instant_time
        name = context.format.logs.new_file(bucket.file_id, tail.base_instant, named_by, last, self._token)
        path = join(partition, str(name))
        marker = Marker(context.instant_time, partition, str(name), context.format.logs.marker_type)
        create_marker(context.storage, marker, listed=context.announced is not None)
        if self._is_new and not bucket.has_metafile:
            ensure_partition(context.storage, partition, context.instant_time, context.metafile)
        self._names.append(str(name))
        sink = self._stack.enter_context(context.storage.open_write(path))
        self._open = _OpenLog(name, path, sink, EventTimes(context.event_time))
        return self._open

    def _close(self, file: _OpenLog) -> None:
        context = self._context
        self._open = None
        self._stack.close()
        try:
            ensure_open(context.storage, context.instant_time, file.path)
        except LeaseLostError:
            if not file.start:
                context.storage.delete(file.path)
            raise
        if file.start and context.storage.size(file.path) != file.start + file.size:
            problem = "another writer wrote to it at the same time"
            raise CommitConflictError.of_file(file.path, problem, instant=context.instant_time)
        self._stats.append(self._stat(file))
        self._inserts -= min(self._inserts, file.rows)
        self._start = time.monotonic()
        facts = None if context.facts is None else context.facts.of_log_file(self._stats[-1], file.columns)
        if facts is not None:
            self.facts.append(facts)

    def _stat(self, file: _OpenLog) -> WriteStat:
        context, tail = self._context, self._tail
        shared = not context.format.logs.of_delta_commit or context.changes is not None
        names_slice = shared or context.operation is WriteOperation.LOG_COMPACT
        base_file, before = self._slice_before() if shared else ("", ())
        # a look-up in base files reads the logs of groups that got any
        inserts = file.rows if self._is_new else min(self._inserts, file.rows)
        return WriteStat(
            file_id=self._bucket.file_id,
            path=file.path,
            partition_path=self._bucket.partition_path,
            prev_commit=tail.base_instant if names_slice else context.instant_time,
            num_writes=file.rows,
            num_deletes=file.deletes,
            num_update_writes=file.rows - inserts,
            num_inserts=inserts,
            total_write_bytes=file.size,
            file_size_in_bytes=file.start + file.size,
            log_version=file.name.version,
            log_offset=file.start,
            min_event_time=file.times.least,
            max_event_time=file.times.greatest,
            runtime_stats=runtime_stats(upsert=time.monotonic() - self._start),
            base_file=base_file,
            log_files=tuple(dict.fromkeys((*before, *self._names))) if shared else (str(file.name),),
        )

    def _slice_before(self) -> tuple[str, tuple[str, ...]]:
        """The names of the base file and the logs that hold the rows before this write.

        Readers of change data also need those that a pending compaction takes.
        """
        base, tail = self._bucket.base, self._tail
        planned = base.planned if base is not None and self._context.changes is not None else None
        if planned is None:
            return tail.base_file, tail.files
        files = tuple(str(log.name) for log in planned.log_files)
        return str(planned.base_file.name) if planned.base_file else "", (*files, *tail.files)
