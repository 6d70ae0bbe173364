"""Writing one bucket: a new version of a base file with updates merged in, or new files with inserts.

Streams: the base file passes row group by row group, only the bucket's own rows are in memory. Kept rows keep their
meta columns but for the file name (format guide 5.1); a file whose rows are all deleted is written empty (8.3).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.basefile import BaseFileWriter, read_base, read_footer
from skep_table.commit.markers import create_marker, ensure_open
from skep_table.errors import LeaseLostError
from skep_table.keys.text import column_of
from skep_table.merge import MergeRule, Updates, latest_per_key, mark_deleted
from skep_table.merge.rows import deleted
from skep_table.names import BaseFileName, Marker, MarkerType, join
from skep_table.schema.arrow import to_arrow
from skep_table.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.timeline.metadata import WriteOperation, WriteStat
from skep_table.write.attempt import attempt_of
from skep_table.write.context import WriteContext, ensure_partition
from skep_table.write.frame import lists_with_nulls
from skep_table.write.index import IndexFile
from skep_table.write.profile import Bucket

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class BucketResult:
    """The files a bucket became, and the list columns with null elements, of which the driver warns."""

    stats: tuple[WriteStat, ...]
    lists_with_nulls: tuple[str, ...] = ()


def write_bucket(context: WriteContext, bucket: Bucket, rows: pa.Table) -> BucketResult:
    """Writes keyed rows (`write/keyed.py`) into the bucket's file group. Raises what storage and merge raise."""
    return _BucketWriter(context, bucket).write(rows)


@dataclass(slots=True)
class OpenFile:
    """A base file while it is written; its numbers when it is done."""

    file_id: str
    name: str
    path: str
    writer: BaseFileWriter
    size: int = 0
    rows: int = 0


class RowNumbers:
    """Counts the rows that one task writes: the last part of `_hoodie_commit_seqno`."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> pa.Array:
        self._next += count
        return pa.array(np.arange(self._next - count, self._next)).cast(pa.string())


class InsertWriter:
    """New file groups for one partition: the bucket's own, and further ones with its UUID when a file is full.

    Rows come in as they are; `close` answers the stats of all files. Leaving it unclosed drops the open file.
    """

    def __init__(self, context: WriteContext, bucket: Bucket, numbers: RowNumbers | None = None) -> None:
        self._files = BaseFiles(context, bucket, numbers)
        self._context = context
        self._bucket = bucket
        self._stats: list[WriteStat] = []
        self._open: ExitStack | None = None
        self._file: OpenFile | None = None

    def __enter__(self) -> InsertWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._open is not None:
            self._open.__exit__(*sys.exc_info())

    def write(self, rows: pa.Table) -> None:
        for start in range(0, rows.num_rows, _BATCH_ROWS):
            file = self._file or self._next_file()
            file.writer.write(self._files.new(rows.slice(start, _BATCH_ROWS), file.name))
            if file.writer.bytes_written >= self._context.max_file_bytes:
                self._close_file()

    def close(self) -> list[WriteStat]:
        """An empty bucket still gets its file: a new group without rows."""
        if self._file is None and not self._stats:
            self._next_file()
        self._close_file()
        return self._stats

    def _next_file(self) -> OpenFile:
        self._open = ExitStack()
        file_id = f"{self._bucket.file_id.rpartition('-')[0]}-{len(self._stats)}"
        self._file = self._open.enter_context(self._files.open(file_id, MarkerType.CREATE))
        return self._file

    def _close_file(self) -> None:
        file, stack = self._file, self._open
        self._file = self._open = None
        if file is not None and stack is not None:
            stack.close()
            self._stats.append(self._files.stat(file, num_inserts=file.rows))


class _BucketWriter:
    def __init__(self, context: WriteContext, bucket: Bucket) -> None:
        self._context = context
        self._bucket = bucket
        self._files = BaseFiles(context, bucket)

    def write(self, rows: pa.Table) -> BucketResult:
        context = self._context
        rows, errors = _without_null_ordering(rows, context)
        if context.combine and context.operation is not WriteOperation.DELETE:
            rows = latest_per_key(rows, context.rule)
        odd = tuple(lists_with_nulls(rows))
        base = self._bucket.base
        if base is None:
            with InsertWriter(context, self._bucket) as inserts:
                inserts.write(_kept(rows, context.rule))
                stats = inserts.close()
        elif context.operation is WriteOperation.INSERT:
            stats = [self._append(base, _kept(rows, context.rule))]
        else:
            stats = [self._merge(base, rows)]
        stats[0] = replace(stats[0], total_write_errors=errors)
        return BucketResult(tuple(stats), odd)

    def _append(self, base: IndexFile, rows: pa.Table) -> WriteStat:
        """`insert` into a small file: what it holds stays, equal keys too."""
        with self._files.open(base.file_id, MarkerType.MERGE) as file:
            known = self._continues_keys(base, file)
            for batch in self._base_batches(base):
                file.writer.write(renamed(batch, file.name), new_keys=not known)
            file.writer.write(self._files.new(rows, file.name))
        return self._files.stat(file, base, num_inserts=rows.num_rows)

    def _merge(self, base: IndexFile, rows: pa.Table) -> WriteStat:
        with self._files.open(base.file_id, MarkerType.MERGE) as file:
            arriving = self._files.new(rows, file.name)
            if self._context.operation is WriteOperation.DELETE:
                arriving = mark_deleted(arriving)
            updates = Updates(arriving, self._context.rule)
            known = self._continues_keys(base, file)
            for batch in self._base_batches(base):
                file.writer.write(renamed(updates.apply(batch), file.name), new_keys=not known)
            inserts = updates.rest()
            file.writer.write(inserts)
        return self._files.stat(
            file,
            base,
            num_inserts=inserts.num_rows,
            num_update_writes=updates.updated,
            num_deletes=updates.deleted,
        )

    def _continues_keys(self, base: IndexFile, file: OpenFile) -> bool:
        """Spares hashing the keys that stay. Deletes have them hashed anew: their keys are to leave the filter."""
        if self._context.operation is WriteOperation.DELETE:
            return False
        return file.writer.continue_keys(read_footer(self._context.storage, base.path))

    def _base_batches(self, base: IndexFile) -> Iterator[pa.RecordBatch]:
        return read_base(self._context.storage, base.path, schema=self._context.schema.with_meta())


class BaseFiles:
    """The base files of one bucket: opened, filled with meta columns, accounted for."""

    def __init__(self, context: WriteContext, bucket: Bucket, numbers: RowNumbers | None = None) -> None:
        self._context = context
        self._partition = bucket.partition_path
        self._attempt = attempt_of(bucket.number)
        self._numbers = numbers or RowNumbers()
        self._schema = to_arrow(context.schema.with_meta())

    @contextmanager
    def open(self, file_id: str, kind: MarkerType) -> Iterator[OpenFile]:
        """Announced, written, closed, and taken away again when the commit ended meanwhile."""
        context, partition = self._context, self._partition
        name = str(BaseFileName(file_id, self._attempt.write_token, context.instant_time))
        path = join(partition, name)
        create_marker(context.storage, Marker(context.instant_time, partition, name, kind))
        ensure_partition(context.storage, partition, context.instant_time)
        with BaseFileWriter(context.storage, path, context.schema.with_meta(), context.files) as writer:
            file = OpenFile(file_id, name, path, writer)
            yield file
            written = writer.close()
        file.size, file.rows = written.size_bytes, written.num_rows
        try:
            ensure_open(context.storage, context.instant_time, path)
        except LeaseLostError:
            context.storage.delete(path)
            raise

    def new(self, rows: pa.Table, file_name: str) -> pa.Table:
        """Keyed rows with all meta columns, as this commit writes them."""
        instant, count = self._context.instant_time, rows.num_rows
        prefix = f"{instant}_{self._attempt.task}_"
        seqno = pc.binary_join_element_wise(prefix, self._numbers.take(count), "")
        meta = {
            COMMIT_TIME: pa.repeat(instant, count),
            COMMIT_SEQNO: seqno,
            RECORD_KEY: seqno if self._context.auto_keys else rows.column(RECORD_KEY),
            PARTITION_PATH: rows.column(PARTITION_PATH),
            FILE_NAME: pa.repeat(file_name, count),
        }
        columns = [meta[field.name] if field.name in meta else _column(rows, field) for field in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def stat(
        self,
        file: OpenFile,
        base: IndexFile | None = None,
        *,
        num_inserts: int,
        num_update_writes: int = 0,
        num_deletes: int = 0,
    ) -> WriteStat:
        return WriteStat(
            file_id=file.file_id,
            path=file.path,
            partition_path=self._partition,
            prev_commit=base.base_instant if base else "null",
            num_writes=file.rows,
            num_deletes=num_deletes,
            num_update_writes=num_update_writes,
            num_inserts=num_inserts,
            total_write_bytes=file.size,
            file_size_in_bytes=file.size,
        )


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """Deletes by key bring no other columns."""
    if field.name in rows.schema.names:
        return rows.column(field.name)
    return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])


def renamed(batch: pa.RecordBatch, file_name: str) -> pa.RecordBatch:
    """Stored rows for another file: they keep their other meta columns (format guide 5.1)."""
    at = batch.schema.get_field_index(FILE_NAME)
    return batch.set_column(at, batch.schema.field(at), pa.repeat(file_name, batch.num_rows))


def _kept(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Without rows that say of themselves that they are deletes."""
    gone = deleted(rows, rule)
    return rows.filter(pa.array(~gone)) if gone.any() else rows


def _without_null_ordering(rows: pa.Table, context: WriteContext) -> tuple[pa.Table, int]:
    """Rows that the merge rule can't compare fail; how many they were."""
    if not context.combine or context.operation is WriteOperation.DELETE:
        return rows, 0
    valid = None
    for name in context.rule.ordering_fields:
        found = pc.is_valid(column_of(rows, name))
        valid = found if valid is None else pc.and_(valid, found)
    if valid is None or pc.all(valid).as_py() is not False:
        return rows, 0
    kept = rows.filter(valid)
    return kept, rows.num_rows - kept.num_rows
