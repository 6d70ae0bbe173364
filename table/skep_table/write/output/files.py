"""The base files that a task writes: announced, filled with meta columns, described by stats."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import BaseFileWriter
from skep_format.basefile.encoding import ENCODED_TEXT, constant
from skep_format.errors import LeaseLostError
from skep_format.metafile import ensure_partition
from skep_format.names import BaseFileName, Marker, MarkerType, join
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.timeline.metadata import WriteStat, runtime_stats
from skep_table.commit.parts.markers import can_be_listed, create_marker, ensure_open, list_ahead
from skep_table.write.context import Announced, WriteContext
from skep_table.write.output.attempt import attempt_of
from skep_table.write.output.event_times import EventTimes
from skep_table.write.output.written import WrittenKeys
from skep_table.write.planning.candidates import CandidateFile
from skep_table.write.planning.profile import Bucket

# From so many on they are announced together.
MANY_FILES: Final = 100
_SAME_IN_FILE: Final = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
# Of fewer rows a dictionary costs more than it saves.
_LEAST_ENCODED: Final = 256
# Rows that are numbered at once: memory for more is given back by the C library, and zeroed for the next ones.
_NUMBERED_ROWS: Final = 16_384


@dataclass(slots=True)
class OpenFile:
    """A base file while it is written; its numbers when it is done."""

    file_id: str
    name: str
    path: str
    writer: BaseFileWriter
    size: int = 0
    rows: int = 0
    new_keys: list[pa.Array] | None = None
    """Of the rows that `insert` wrote; None where no index stores them."""
    times: EventTimes | None = None
    start: float = field(default_factory=time.monotonic)
    seconds: float = 0

    def insert(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Writes rows, all meta columns included, whose keys are new in the file group."""
        self.writer.write(rows)
        if self.times is not None:
            self.times.add(rows)
        if self.new_keys is not None:
            column = rows.column(RECORD_KEY)
            self.new_keys += column.chunks if isinstance(column, pa.ChunkedArray) else [column]

    def merged(self, rows: pa.RecordBatch, instant: str) -> None:
        """Takes note of merged rows that were written, of which those of the commit have its instant."""
        if self.times is not None:
            self.times.add(rows.filter(pc.equal(rows.column(COMMIT_TIME).cast(pa.string()), instant)))


def file_id_of(bucket: Bucket, number: int) -> str:
    """The file group of a bucket's file: further files of a new group have the UUID of the first."""
    return bucket.base.file_id if bucket.base is not None else f"{bucket.file_id.rpartition('-')[0]}-{number}"


def announce(context: WriteContext, buckets: Sequence[Bucket], *, again: bool = False) -> WriteContext:
    """Announces the first files of all buckets in one go where these are many; the context for their tasks.

    For tasks of this process, which run once. `again`: that was done before for the same instant.
    """
    ahead = {}
    for bucket in buckets:
        if not bucket.to_log:
            attempt = attempt_of(bucket.number)
            file_id = file_id_of(bucket, 0)
            name = str(BaseFileName(file_id, attempt.write_token, context.instant_time, context.files.format))
            kind = MarkerType.CREATE if bucket.base is None else MarkerType.MERGE
            ahead[bucket.number] = Announced(attempt, Marker(context.instant_time, bucket.partition_path, name, kind))
    markers = [each.marker for each in ahead.values()]
    if not again and (len(markers) < MANY_FILES or not all(map(can_be_listed, markers))):
        return context
    if markers:
        list_ahead(context.storage, markers)
    return replace(context, announced=ahead)


class RowNumbers:
    """Counts the rows that one task writes: the last part of `_hoodie_commit_seqno`."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def take(self, count: int, prefix: str = "") -> pa.Array:
        """The next `count` numbers, as text behind `prefix`.

        Digit by digit for many numbers of one length: a quarter of the time of Arrow's casting and joining of texts.
        """
        head = np.frombuffer(prefix.encode(), np.uint8)
        start, end = self._next, self._next + count
        self._next = end
        kind = np.uint32 if end <= 1 << 32 else np.uint64  # numpy divides those of 32 bits three times as fast
        parts = [pa.array([], pa.string())]
        while start < end:
            digits = len(str(start))
            numbers = np.arange(start, min(end, 10**digits, start + _NUMBERED_ROWS), dtype=kind)
            start += len(numbers)
            text = np.empty((len(numbers), len(head) + digits), np.uint8)
            text[:, : len(head)] = head
            for place in range(1, digits + 1):
                tens = numbers // kind(10)
                text[:, -place] = numbers - kind(10) * tens + kind(ord("0"))
                numbers = tens
            offsets = np.arange(0, text.size + 1, text.shape[1], dtype=np.int32)
            parts.append(pa.StringArray.from_buffers(len(text), pa.py_buffer(offsets), pa.py_buffer(text)))
        return pa.concat_arrays(parts)


class MetaColumns:
    """What one task puts before the columns of the rows that it writes."""

    def __init__(self, context: WriteContext, task: int, numbers: RowNumbers | None = None) -> None:
        self._context = context
        self._task = task
        self._numbers = numbers or RowNumbers()
        self._schema = to_arrow(context.schema.with_meta())
        self._types = [(field.name, field.type) for field in self._schema]
        self._encoded = pa.schema(
            [each.with_type(ENCODED_TEXT) if each.name in _SAME_IN_FILE else each for each in self._schema]
        )

    def added(self, rows: pa.Table, file_name: str, partition: str | None = None) -> pa.Table:
        """Keyed rows with all meta columns; columns that they lack are null.

        `partition`: that of all rows, for a base file: the columns that are the same in all rows have a dictionary.
        """
        instant, count = self._context.instant_time, rows.num_rows
        prefix = f"{instant}_{self._task}_"
        seqno = self._numbers.take(count, prefix)
        same, path = pa.repeat, rows.column(PARTITION_PATH)
        if partition is not None:
            same, path = constant, constant(partition, count)
        meta = {
            COMMIT_TIME: same(instant, count),
            COMMIT_SEQNO: seqno,
            RECORD_KEY: self._keys(rows, seqno),
            PARTITION_PATH: path,
            FILE_NAME: same(file_name, count),
        }
        held = dict(zip(rows.schema.names, rows.columns, strict=True)) | meta
        # deletes by key bring no other columns
        columns = [held[name] if name in held else pa.nulls(count, kind) for name, kind in self._types]
        return pa.Table.from_arrays(columns, schema=self._schema if partition is None else self._encoded)

    def _keys(self, rows: pa.Table, made: pa.Array) -> pa.Array | pa.ChunkedArray:
        """The rows' own keys; in tables without key columns, where a row has none yet, one that is made."""
        keys = rows.column(RECORD_KEY)
        return pc.coalesce(keys, made) if self._context.auto_keys else keys


class BaseFiles:
    """The base files of one bucket: created, filled with meta columns, described by stats."""

    def __init__(self, context: WriteContext, bucket: Bucket, numbers: RowNumbers | None = None) -> None:
        self._context = context
        self._partition = bucket.partition_path
        self._needs_metafile = bucket.base is None and not bucket.has_metafile
        self._attempt = attempt_of(bucket.number)
        self._meta = MetaColumns(context, self._attempt.task, numbers)

    @contextmanager
    def open(self, file_id: str, kind: MarkerType) -> Iterator[OpenFile]:
        """Creates the marker, then the file; closes it after the block.

        LeaseLostError when the commit has ended meanwhile; the file is then deleted again.
        """
        context, partition = self._context, self._partition
        name = str(BaseFileName(file_id, self._attempt.write_token, context.instant_time, context.files.format))
        path = join(partition, name)
        self._announce(Marker(context.instant_time, partition, name, kind))
        if self._needs_metafile:
            ensure_partition(context.storage, partition, context.instant_time, context.metafile)
        with BaseFileWriter(context.storage, path, context.schema.with_meta(), context.files) as writer:
            times = EventTimes(context.event_time) if context.event_time else None
            keys = None if context.on_written is None else list[pa.Array]()
            file = OpenFile(file_id, name, path, writer, new_keys=keys, times=times)
            yield file
            written = writer.close()
        file.size, file.rows = written.size_bytes, written.num_rows
        file.seconds = time.monotonic() - file.start
        try:
            ensure_open(context.storage, context.instant_time, path)
        except LeaseLostError:
            context.storage.delete(path)
            raise
        if context.on_written is not None:
            keys = pa.chunked_array(file.new_keys or [], pa.string())
            columns = writer.column_statistics()
            context.on_written(
                WrittenKeys(context.instant_time, partition, file_id, path, file.size, file.rows, keys, columns)
            )

    def _announce(self, marker: Marker) -> None:
        context, announced = self._context, self._context.announced
        ahead = announced.get(self._attempt.task) if announced is not None else None
        if ahead is not None and ahead.marker == marker:
            ensure_open(context.storage, context.instant_time, marker.data_path)
        else:
            create_marker(context.storage, marker, listed=announced is not None)

    def new(self, rows: pa.Table, file_name: str, *, merges: bool = False) -> pa.Table:
        """Keyed rows with all meta columns, as this commit writes them; in plain types where they are to be merged."""
        plain = merges or rows.num_rows < _LEAST_ENCODED
        return self._meta.added(rows, file_name, None if plain else self._partition)

    def stat(
        self,
        file: OpenFile,
        base: CandidateFile | None = None,
        *,
        num_inserts: int,
        num_update_writes: int = 0,
        num_deletes: int = 0,
        changes: Mapping[str, int] | None = None,
    ) -> WriteStat:
        """The stat of a file that is closed. `base` is the file of the slice before, None for a new file group.

        The counts are of rows: keys that are new, keys of `base` that were updated, and keys that were deleted.
        `changes` are the change logs beside it, with their sizes in bytes.
        """
        return WriteStat(
            file_id=file.file_id,
            path=file.path,
            partition_path=self._partition,
            prev_commit=base.base_instant if base else "null",
            prev_base_file=posixpath.basename(base.path) if base and base.path else None,
            num_writes=file.rows,
            num_deletes=num_deletes,
            num_update_writes=num_update_writes,
            num_inserts=num_inserts,
            total_write_bytes=file.size,
            file_size_in_bytes=file.size,
            cdc_stats=changes,
            min_event_time=None if file.times is None else file.times.least,
            max_event_time=None if file.times is None else file.times.greatest,
            runtime_stats=runtime_stats(upsert=file.seconds) if base else runtime_stats(create=file.seconds),
        )


def renamed(batch: pa.RecordBatch, file_name: str) -> pa.RecordBatch:
    """Stored rows for another file: they keep their other meta columns (format guide 5.1)."""
    at = batch.schema.get_field_index(FILE_NAME)
    field, count = batch.schema.field(at), batch.num_rows
    if count < _LEAST_ENCODED:
        return batch.set_column(at, field.with_type(pa.string()), pa.repeat(file_name, count))
    return batch.set_column(at, field.with_type(ENCODED_TEXT), constant(file_name, count))
