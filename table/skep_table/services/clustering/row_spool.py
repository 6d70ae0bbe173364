"""Rows that are to be put into another order: held in memory, or in a file once they are too many.

Only the columns they are ordered by stay in memory in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_table.keys.text import column_of
from skep_table.slices.spill import SpillFile, SpillRange, rows_at

_CHUNK_ROWS: Final = 65_536


class RowSpool:
    """A context manager: its temporary file, in `folder` or the system's temporary folder, is deleted in the end."""

    def __init__(self, columns: Sequence[str], limit_bytes: int, folder: str = "") -> None:
        self._columns = columns
        self._limit = limit_bytes
        self._file = SpillFile(folder)
        self._places: list[SpillRange] = []
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._keys: list[list[pa.Array]] = [[] for _ in columns]
        self.rows = 0

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def is_spilled(self) -> bool:
        """Whether the rows are in the temporary file."""
        return bool(self._places)

    def add(self, rows: pa.RecordBatch) -> None:
        """Appends rows, to the file once all together exceed the limit. Their columns include those of the order."""
        for held, name in zip(self._keys, self._columns, strict=True):
            held.append(column_of(rows, name))
        self.rows += rows.num_rows
        self._size += rows.nbytes
        self._held.append(rows)
        if self._places or self._size > self._limit:
            self._places += map(self._file.append, self._held)
            self._held = []

    def ordered(self, order_of: Callable[[pa.Table], npt.NDArray[np.int64]]) -> Iterator[pa.RecordBatch]:
        """All rows, in the order that `order_of` computes from the key columns."""
        if not self.rows:
            return
        names = [str(number) for number in range(len(self._keys))]
        order = order_of(pa.table([pa.chunked_array(held) for held in self._keys], names=names))
        self._keys = []
        batches = self._batches()
        starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        # so many that few batches are touched again for the next ones, and a share of the memory holds them
        chunk = max(_CHUNK_ROWS, int(self._limit / 8 * self.rows / max(1, self._size)))
        for at in range(0, self.rows, chunk):
            yield from rows_at(batches, starts, order[at : at + chunk]).to_batches(max_chunksize=_CHUNK_ROWS)

    def _batches(self) -> list[pa.RecordBatch]:
        if self._places:
            return self._file.mapped(self._places)
        return pa.Table.from_batches(self._held).combine_chunks().to_batches()
