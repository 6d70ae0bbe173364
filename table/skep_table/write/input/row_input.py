"""The rows that a caller brings, as batches that can be read again: a write may need them more than once.

Rows in memory and files are read again where they are. What can be read but once (a reader, a generator, the answer of
a query) is kept while it is read for the first time: in memory up to a limit, beyond it in a temporary file.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from skep_format.batching import in_groups
from skep_table.slices.spill import SpillFile, SpillRange


class RowInput(ABC):
    """Rows of one schema, evaluated once: every call of `batches` yields the same rows."""

    in_memory = False  # whether the caller holds the rows in memory in any case

    def __init__(self, schema: pa.Schema) -> None:
        """`schema`: the columns of all batches."""
        self.schema = schema

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, from the first one."""

    def release(self) -> None:  # noqa: B027 - most inputs keep nothing
        """Deletes what was kept of the rows; they can't be read any more."""

    def table(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(list(self.batches()), self.schema)


class TableInput(RowInput):
    """An Arrow table."""

    in_memory = True

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table.schema)
        self._table = table

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.to_batches())

    def table(self) -> pa.Table:
        return self._table


class RereadInput(RowInput):
    """Rows that `open` reads from the start each time it is called: datasets, files."""

    def __init__(self, schema: pa.Schema, open: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        super().__init__(schema)
        self._open = open

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._open())


class OnceInput(RowInput):
    """Rows that can be read but once. `limit_bytes` of them stay in memory, the others in a file in `folder`."""

    def __init__(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit_bytes: int, folder: str = ""
    ) -> None:
        super().__init__(schema)
        self._left = batches
        self._limit = limit_bytes
        self._file = SpillFile(folder)
        self._kept: list[pa.RecordBatch | SpillRange] = []
        self._size = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for number in itertools.count():
            if number < len(self._kept):
                kept = self._kept[number]
                yield self._file.read(kept) if isinstance(kept, SpillRange) else kept
                continue
            batch = next(self._left, None)
            if batch is None:
                return
            self._size += batch.nbytes
            self._kept.append(batch if self._size <= self._limit else self._file.append(batch))
            yield batch

    def release(self) -> None:
        self._kept, self._left = [], iter(())
        self._file.close()


class RenamedInput(RowInput):
    """The rows of another input with other names of columns and of their members; types are the same."""

    def __init__(self, rows: RowInput, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._rows, self.in_memory = rows, rows.in_memory

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (pa.record_batch(_Renamed(batch, self.schema)) for batch in self._rows.batches())

    def release(self) -> None:
        self._rows.release()


class _Renamed:
    """A batch as Arrow's C interface passes it on, under another schema."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, data = self._batch.__arrow_c_array__(requested_schema)
        return self._schema.__arrow_c_schema__(), data


def pieces(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """The rows in their order in tables of about `most_bytes`: small batches together, large ones cut up."""

    def parts() -> Iterator[pa.RecordBatch]:
        for batch in (each for each in batches if each.num_rows):
            count = -(-batch.nbytes // max(1, most_bytes))
            step = -(-batch.num_rows // max(1, count))
            yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))

    for held in in_groups(parts(), lambda part: part.nbytes, most_bytes):
        whole = pa.Table.from_batches(held)
        yield whole if len(held) == 1 else whole.combine_chunks()
