"""The rows of an operation: few in memory, many in a mapped file; read page by page, and again from the first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from skep_format.errors import InputError

_MEMORY_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 65_536


class Results:
    """All rows, and the place in them of the client that reads them. For one thread at a time."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit_bytes: int) -> None:
        self.schema = schema
        self.position = 0
        self._batches: list[pa.RecordBatch] = []
        self._file: tempfile._TemporaryFileWrapper[bytes] | None = None
        self._at = self._within = 0
        try:
            self._take(batches, limit_bytes)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, table: pa.Table) -> Results:
        """A short table."""
        return cls(table.schema, table.to_batches(), 1 << 40)

    @property
    def num_rows(self) -> int:
        """Of all pages."""
        return sum(batch.num_rows for batch in self._batches)

    def _take(self, batches: Iterable[pa.RecordBatch], limit_bytes: int) -> None:
        size, writer = 0, None
        for whole in batches:
            for start in range(0, whole.num_rows, _BATCH_ROWS):
                batch = whole.slice(start, _BATCH_ROWS)
                size += batch.nbytes
                if size > limit_bytes:
                    raise InputError(
                        f"the rows of this statement take more than {limit_bytes >> 20} MiB", hint="LIMIT, or a filter"
                    )
                if writer is None:
                    self._batches.append(batch)
                    if size > _MEMORY_BYTES:
                        self._file = tempfile.NamedTemporaryFile(prefix="skep-sql-")  # noqa: SIM115 - closed by close
                        writer = pa.ipc.new_file(self._file, self.schema)
                        for held in self._batches:
                            writer.write_batch(held)
                        self._batches.clear()
                else:
                    writer.write_batch(batch)
        if writer is not None and self._file is not None:
            writer.close()
            self._file.flush()
            mapped = pa.ipc.open_file(pa.memory_map(self._file.name))
            self._batches = [mapped.get_batch(number) for number in range(mapped.num_record_batches)]

    def page(self, max_rows: int, max_bytes: int) -> pa.Table:
        """The next rows, at least one while there are any; after the last one none."""
        parts: list[pa.RecordBatch] = []
        rows = size = 0
        while self._at < len(self._batches) and rows < max_rows and (size < max_bytes or not rows):
            batch = self._batches[self._at]
            wide = max(1, batch.nbytes // max(1, batch.num_rows))
            room = max(1, (max_bytes - size) // wide)
            part = batch.slice(self._within, min(max_rows - rows, room))
            parts.append(part)
            rows, size = rows + part.num_rows, size + part.num_rows * wide
            self._within += part.num_rows
            if self._within >= batch.num_rows:
                self._at, self._within = self._at + 1, 0
        self.position += rows
        return pa.Table.from_batches(parts, self.schema)

    def rewind(self) -> None:
        """The next page is the first one."""
        self.position = self._at = self._within = 0

    def close(self) -> None:
        """Frees memory and file. Calling it again is no error."""
        self._batches = []
        self._at = self._within = 0
        file, self._file = self._file, None
        if file is not None:
            file.close()
