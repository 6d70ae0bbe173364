"""In which order rows are written: by columns one after the other, or along a curve that treats all columns alike.

A curve goes through the ranks of the values, not through their bytes: skewed columns and long common prefixes spread
as well as any, and every type that can be sorted can be used. Rows that are put into another order are held in memory,
or in a file once they are too many; only the columns they are ordered by stay in memory in any case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.keys.text import column_of
from skep_table.services.clustering.options import Curve
from skep_table.slices.spill import SpillFile, SpillRange, rows_at

Ranks = npt.NDArray[np.uint64]
_CHUNK_ROWS: Final = 65_536


def order_of(keys: pa.Table, curve: Curve = Curve.LINEAR) -> npt.NDArray[np.int64]:
    """Positions of the rows in their new order. Nulls come first, equal rows keep their order."""
    if curve is Curve.LINEAR or keys.num_columns == 1:
        columns = [
            part
            for column in keys.columns
            for part in ([pc.is_valid(column), column] if column.null_count else [column])
        ]
        table = pa.table(columns, names=[str(number) for number in range(len(columns))]).combine_chunks()
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
        return order.to_numpy().astype(np.int64)
    bits = min(32, 64 // keys.num_columns)
    ranks = [_scaled_ranks(column, bits) for column in keys.columns]
    places = interleave(ranks, bits) if curve is Curve.ZORDER else hilbert(ranks, bits)
    return np.argsort(places, kind="stable")


def can_be_sorted(kind: pa.DataType) -> bool:
    """Whether the values of a column of this type have an order: nested types and nulls have none."""
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def _scaled_ranks(column: pa.ChunkedArray, bits: int) -> Ranks:
    """Ranks of the values, equal for equal values, nulls lowest, stretched over all numbers of so many bits."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.float64)
    ranks[pc.is_null(column).to_numpy()] = 0
    ranks -= ranks.min(initial=2**53)
    most = ranks.max(initial=0)
    if most == 0:
        return np.zeros(len(ranks), np.uint64)
    return np.minimum(ranks / most * float(2**bits), float(2**bits - 1)).astype(np.uint64)


def interleave(ranks: Sequence[Ranks], bits: int) -> Ranks:
    """Places on the Z curve: the highest bit of each number, then the next of each, …"""
    place = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            place = (place << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return place


def hilbert(ranks: Sequence[Ranks], bits: int) -> Ranks:
    """Places on Hilbert's curve: neighbours on it are neighbours in every column (Skilling's transform)."""
    axes = [rank.copy() for rank in ranks]
    for bit in range(bits - 1, 0, -1):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in axes:
            high = (axis & mask) != 0
            swapped = (axes[0] ^ axis) & below
            axes[0] ^= np.where(high, below, swapped)
            if axis is not axes[0]:
                axis ^= np.where(high, np.uint64(0), swapped)
    for before, axis in itertools.pairwise(axes):
        axis ^= before
    carry = np.zeros(len(axes[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        carry ^= np.where((axes[-1] & np.uint64(1 << bit)) != 0, np.uint64((1 << bit) - 1), np.uint64(0))
    return interleave([axis ^ carry for axis in axes], bits)


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
