"""Rows that are to be put into another order: held in memory, or in a file once they are too many.

Only the columns they are ordered by stay in memory in any case.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_table.keys.text import column_of
from skep_table.slices.spill import spill_folder, spilling

_CHUNK_ROWS: Final = 65_536


class RowSpool:
    """A context manager: its file, below `folder` or the system's temporary one, is gone in the end."""

    def __init__(self, columns: Sequence[str], limit_bytes: int, folder: str = "") -> None:
        self._columns = columns
        self._limit = limit_bytes
        self._parent = folder or None
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._keys: list[list[pa.Array]] = [[] for _ in columns]
        self._folder: Path | None = None
        self._file: pa.NativeFile | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self.rows = 0

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the file goes anyway
            if self._writer is not None:
                self._writer.close()
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_spilled(self) -> bool:
        return self._folder is not None

    def add(self, rows: pa.RecordBatch) -> None:
        for held, name in zip(self._keys, self._columns, strict=True):
            held.append(column_of(rows, name))
        self.rows += rows.num_rows
        self._size += rows.nbytes
        if self._writer is None and self._size > self._limit:
            self._spill(rows.schema)
        if self._writer is None:
            self._held.append(rows)
        else:
            with spilling(self._folder):
                self._writer.write_batch(rows)

    def ordered(self, order_of: Callable[[pa.Table], npt.NDArray[np.int64]]) -> Iterator[pa.RecordBatch]:
        """All rows, in the order that `order_of` says of the key columns."""
        if not self.rows:
            return
        names = [str(number) for number in range(len(self._keys))]
        order = order_of(pa.table([pa.chunked_array(held) for held in self._keys], names=names))
        self._keys = []
        batches = self._batches()
        starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        chunk = self._rows_a_chunk()
        for at in range(0, self.rows, chunk):
            yield from _taken(batches, starts, order[at : at + chunk]).to_batches(max_chunksize=_CHUNK_ROWS)

    def _rows_a_chunk(self) -> int:
        """So many that few batches are touched again for the next ones, and a share of the memory holds them."""
        return max(_CHUNK_ROWS, int(self._limit / 8 * self.rows / max(1, self._size)))

    def _spill(self, schema: pa.Schema) -> None:
        self._folder = spill_folder("skep-sort-", self._parent)
        with spilling(self._folder):
            self._file = pa.OSFile(str(self._folder / "rows.arrow"), "wb")
            self._writer = pa.ipc.new_file(self._file, schema)
            while self._held:
                self._writer.write_batch(self._held.pop(0))

    def _batches(self) -> list[pa.RecordBatch]:
        if self._writer is None:
            return pa.Table.from_batches(self._held).combine_chunks().to_batches()
        assert self._folder is not None
        writer, self._writer = self._writer, None
        with spilling(self._folder):
            writer.close()
            if self._file is not None:
                self._file.close()
        reader = pa.ipc.open_file(pa.memory_map(str(self._folder / "rows.arrow")))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _taken(batches: Sequence[pa.RecordBatch], starts: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> pa.Table:
    """Rows by their position in all batches together. Each batch is asked once."""
    if len(batches) == 1:
        return pa.Table.from_batches([batches[0].take(pa.array(wanted))])
    numbers = np.searchsorted(starts, wanted, side="right") - 1
    by_batch = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[by_batch], np.arange(len(batches) + 1))
    parts = [
        batch.take(pa.array(wanted[by_batch[low:high]] - starts[number]))
        for number, batch in enumerate(batches)
        if (low := bounds[number]) < (high := bounds[number + 1])
    ]
    back = np.empty(len(wanted), np.int64)
    back[by_batch] = np.arange(len(wanted))
    return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back))
