"""The change log beside a base file: what a commit did to each row of the file group (format guide 15).

One `.cdc` file, opened by the first changes. Changes are held up to the size of a block; rows that stay as they are
never come here. A base file without any change has a log without records: readers take a missing one for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import IO, Any, Final, TypeAlias

import pyarrow as pa

from skep_format.errors import LeaseLostError
from skep_format.logfile.changes import AFTER, BEFORE, DELETE, INSERT, KEY, OP, TIME, UPDATE, change_block, image_type
from skep_format.names import BaseFileName, LogFileName, Marker, join
from skep_format.schema.types import ALL_META_FIELDS, RECORD_KEY
from skep_format.table_config.keys import CdcMode
from skep_table.commit.parts.markers import create_marker, ensure_open
from skep_table.keys.text import single
from skep_table.write.context import WriteContext
from skep_table.write.output.append import pieces

Rows: TypeAlias = "pa.Table | pa.RecordBatch"
FIELDS: Final[Mapping[CdcMode, tuple[str, ...]]] = {
    CdcMode.OP_KEY_ONLY: (OP, KEY),
    CdcMode.DATA_BEFORE: (OP, KEY, BEFORE),
    CdcMode.DATA_BEFORE_AFTER: (OP, TIME, BEFORE, AFTER),
}
_HELD_BYTES: Final = 64 << 20


def changes_beside(
    context: WriteContext, partition_path: str, base_file_name: str
) -> AbstractContextManager[ChangeLog | None]:
    """The change log of a base file that takes the place of another one; None in a table without change data."""
    name = BaseFileName.parse(base_file_name)
    if context.changes is None or name is None:
        return nullcontext()
    return ChangeLog(context, context.changes, partition_path, name)


class ChangeLog:
    """The changes of one file group by one commit. Leaving the block by an error deletes the file.

    `paths` has its size in bytes once it is closed. LeaseLostError from `close` when the commit has ended meanwhile.
    """

    def __init__(self, context: WriteContext, mode: CdcMode, partition_path: str, base: BaseFileName) -> None:
        self._context = context
        self._partition = partition_path
        self._schema = context.schema.without(ALL_META_FIELDS).with_texts(context.dropped.names)
        self._image: Any = image_type(self._schema)
        self._fields = FIELDS[mode]
        self._name = str(LogFileName(base.file_id, context.instant_time, 1, base.write_token, cdc=True))
        self._most = min(context.logs.block_bytes, _HELD_BYTES)
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._size = 0
        self._stack = ExitStack()
        self._sink: IO[bytes] | None = None

    @property
    def path(self) -> str:
        """Relative to the table."""
        return join(self._partition, self._name)

    @property
    def paths(self) -> Mapping[str, int]:
        """What the stat of the base file states: the log's path with its size."""
        return {self.path: self._size}

    def __enter__(self) -> ChangeLog:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def inserted(self, rows: Rows) -> None:
        """Rows whose keys were not there."""
        self._add(INSERT, rows, after=rows)

    def replaced(self, before: Rows, after: Rows) -> None:
        """Rows, and what became of them, in the same order."""
        self._add(UPDATE, before, before=before, after=after)

    def deleted(self, rows: Rows) -> None:
        """Rows that are no more."""
        self._add(DELETE, rows, before=rows)

    def close(self) -> None:
        """Writes what is held, and ends the file."""
        self._flush()
        if self._sink is None:
            self._write(self._table([]))
        self._stack.close()
        try:
            ensure_open(self._context.storage, self._context.instant_time, self.path)
        except LeaseLostError:
            self._context.storage.delete(self.path)
            raise

    def _add(self, op: str, rows: Rows, *, before: Rows | None = None, after: Rows | None = None) -> None:
        count = rows.num_rows
        if not count:
            return
        columns: Mapping[str, Callable[[], pa.Array]] = {
            OP: lambda: pa.repeat(op, count),
            KEY: lambda: _plain(rows.column(RECORD_KEY)),
            TIME: lambda: pa.repeat(str(self._context.instant_time), count),
            BEFORE: lambda: self._images(before, count),
            AFTER: lambda: self._images(after, count),
        }
        table = self._table([columns[name]() for name in self._fields])
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= self._most:
            self._flush()

    def _table(self, columns: list[pa.Array]) -> pa.Table:
        kinds = [(name, self._image if name in (BEFORE, AFTER) else pa.string()) for name in self._fields]
        schema = pa.schema(kinds)
        return pa.Table.from_arrays(columns, schema=schema) if columns else schema.empty_table()

    def _images(self, rows: Rows | None, count: int) -> pa.Array:
        if rows is None:
            return pa.nulls(count, self._image)
        if self._context.dropped.names:
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            rows = self._context.dropped.filled(table, self._partition)
        arrays = [_plain(rows.column(name)) for name in self._schema.names()]
        return pa.StructArray.from_arrays(arrays, fields=list(self._image))

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        for piece in pieces(rows, self._most):
            self._write(piece)

    def _write(self, rows: pa.Table) -> None:
        sink = self._sink = self._sink or self._open()
        block = change_block(self._context.instant_time, self._schema, self._fields, rows)
        sink.write(block)
        self._size += len(block)

    def _open(self) -> IO[bytes]:
        context = self._context
        kind = context.format.logs.marker_type
        marker = Marker(context.instant_time, self._partition, self._name, kind)
        create_marker(context.storage, marker, listed=context.announced is not None)
        return self._stack.enter_context(context.storage.open_write(self.path))


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without a dictionary."""
    column = single(column)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
