"""Keyed rows of one write, grouped by a label (partition path, bucket): in memory while they are few, else on disk.

Batches are kept as they come, each with the order of its rows by label; the rows of a label are taken out of them when
they are read. Beyond the limit each batch is sorted once and written to a temporary file in pieces, small labels
together and large ones by themselves, so that a label is read without the others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.slices.spill import SpillFile, SpillRange
from skep_table.write.keyed import rows_by

L = TypeVar("L", bound=Hashable)
_Labelled: TypeAlias = tuple[pa.RecordBatch, list[L], npt.NDArray[np.int32]]
ARRIVAL: Final = "_skep_arrival"
_PIECE_BYTES: Final = 1 << 20  # pieces of the file that hold several labels
_CACHED_PIECES: Final = 16
_SAMPLED_ROWS: Final = 65_536
_SAMPLED_BYTES: Final = 16 << 20
_FEW_BATCHES: Final = 1_000  # batches × labels, up to which rows are taken from each batch by itself


@dataclass(frozen=True, slots=True)
class _Held:
    """Positions of a label's rows in a batch in memory."""

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    first: int  # the arrival of the batch's first row

    @property
    def bytes(self) -> int:
        """About what the rows take."""
        return self.batch.nbytes * len(self.rows) // max(1, self.batch.num_rows)

    def read(self, columns: Sequence[str] | None) -> pa.RecordBatch:
        """The rows; a view of the batch where they lie side by side."""
        batch = self.batch if columns is None else self.batch.select(columns)
        count = len(self.rows)
        if count and int(self.rows[-1]) - int(self.rows[0]) + 1 == count:  # positions ascend
            return batch.slice(int(self.rows[0]), count)
        return _taken(batch, self.rows)


@dataclass(frozen=True, slots=True)
class _Spilled:
    """A range of rows of a batch in the file."""

    place: SpillRange
    start: int
    count: int
    bytes: int


class RowStore(Generic[L]):
    """Rows by label. `limit_bytes` of Arrow data stay in memory; `close` deletes what is in the file in `folder`.

    Rows of a label are read in the order in which they were added, by several threads at once if need be.
    """

    def __init__(self, limit_bytes: int, folder: str = "") -> None:
        self._limit = limit_bytes
        self._file = SpillFile(folder)
        self._held: list[_Labelled[L]] = []
        self._held_bytes = 0
        self._parts: dict[L, list[_Held | _Spilled]] = {}
        self._counts: dict[L, int] = {}
        self._sample = _Sample()
        self._cache: OrderedDict[SpillRange, pa.RecordBatch] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._is_indexed = False
        self._arrived = 0  # rows in the file
        self.rows = 0
        self.bytes = 0
        self.is_spilled = False

    def add(self, rows: pa.RecordBatch, labels: Sequence[L], codes: npt.NDArray[np.int32]) -> None:
        """Adds rows; `codes` are the positions of their labels. Rows with another code are left out."""
        self.rows += rows.num_rows
        size = rows.nbytes
        self.bytes += size
        values, counts = np.unique(codes, return_counts=True)
        for code, count in zip(values.tolist(), counts.tolist(), strict=True):
            if 0 <= code < len(labels):
                self._counts[labels[code]] = self._counts.get(labels[code], 0) + count
        self._held.append((rows, list(labels), codes))
        self._held_bytes += size
        self._is_indexed = False
        if self.is_spilled or self._held_bytes > self._limit:
            self.spill()

    def spill(self) -> None:
        """Moves what is in memory to the file."""
        self.is_spilled = True
        while self._held:
            self._spill(*self._held.pop(0))
        self._held_bytes = 0

    @property
    def labels(self) -> dict[L, int]:
        """Label → rows, in the order in which labels came."""
        return self._counts

    def sample(self, most: int) -> pa.Table:
        """Rows from all over the store, at most `most` of them."""
        found = [*self._sample.batches, *(_every(batch, max(1, self.rows // most)) for batch, _, _ in self._held)]
        whole = pa.Table.from_batches(found).combine_chunks()
        return pa.Table.from_batches(
            [_every(batch, max(1, -(-whole.num_rows // most))) for batch in whole.to_batches()], whole.schema
        )

    def batches(self, label: L, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a label, only `columns` of them."""
        self._index()
        for part in self._parts.get(label, ()):
            if isinstance(part, _Held):
                yield part.read(columns)
            else:
                whole = self._read(part.place)
                batch = whole.slice(part.start, part.count)
                batch = _without_arrival(batch) if columns is None else batch.select(columns)
                # A view of a part would keep the whole in memory.
                yield batch if columns is None and part.count == whole.num_rows else _copied(batch)

    def numbered(self) -> Iterator[pa.RecordBatch]:
        """All rows with a column ARRIVAL behind their own, which has their order; label by label."""
        self._index()
        for parts in self._parts.values():
            for part in parts:
                if isinstance(part, _Held):
                    yield _with_arrival(part.read(None), part.first + part.rows)
                else:
                    yield self._read(part.place).slice(part.start, part.count)

    def size(self, label: L) -> int:
        """About what the rows of a label take as Arrow data, in bytes."""
        self._index()
        return sum(part.bytes for part in self._parts.get(label, ()))

    def split(self, label: L, into: RowStore[int], labels: Sequence[int], codes: npt.NDArray[np.int32]) -> None:
        """Adds the rows of a label to another store, by other labels: `codes` has one for each row of the label.

        Rows in memory are not copied, those in the file are written to the other store's.
        """
        self._index()
        start = 0
        for part in self._parts.get(label, ()):
            count = len(part.rows) if isinstance(part, _Held) else part.count
            some = codes[start : start + count]
            start += count
            if isinstance(part, _Spilled):
                into.spill()
                batch = self._read(part.place).slice(part.start, part.count)
                into.add(_without_arrival(batch), labels, some)
                continue
            into._is_indexed = True
            for code, rows in rows_by(some, len(labels)):
                into._parts.setdefault(labels[code], []).append(_Held(part.batch, part.rows[rows], part.first))
                into._counts[labels[code]] = into._counts.get(labels[code], 0) + len(rows)

    def close(self) -> None:
        """Deletes all rows."""
        self._held, self._held_bytes = [], 0
        self._parts.clear()
        self._cache.clear()
        self._file.close()

    def _index(self) -> None:
        """Finds the rows of each label in the batches in memory, once after the last was added."""
        with self._cache_lock:
            if self._is_indexed:
                return
            if len(self._held) > 1 and len(self._held) * len(self._counts) > _FEW_BATCHES:
                self._held = _together(self._held)
            first = 0
            for batch, labels, codes in self._held:
                for code, rows in rows_by(codes, len(labels)):
                    self._parts.setdefault(labels[code], []).append(_Held(batch, rows, first))
                first += batch.num_rows
            self._is_indexed = True

    def _spill(self, batch: pa.RecordBatch, labels: list[L], codes: npt.NDArray[np.int32]) -> None:
        self._sample.add(batch)
        groups = [(labels[code], rows) for code, rows in rows_by(codes, len(labels))]
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        pending: list[tuple[L, npt.NDArray[np.int64]]] = []
        size = 0
        for label, rows in groups:
            pending.append((label, rows))
            size += len(rows) * row_bytes
            if size >= _PIECE_BYTES:
                self._append(batch, pending)
                pending, size = [], 0
        if pending:
            self._append(batch, pending)
        self._arrived += batch.num_rows

    def _append(self, batch: pa.RecordBatch, groups: list[tuple[L, npt.NDArray[np.int64]]]) -> None:
        together = np.concatenate([rows for _, rows in groups])
        rows = batch if len(groups[0][1]) == batch.num_rows else _taken(batch, together)
        place = self._file.append(_with_arrival(rows, self._arrived + together))
        start = 0
        for label, rows in groups:
            size = place.length * len(rows) // len(together)
            self._parts.setdefault(label, []).append(_Spilled(place, start, len(rows), size))
            start += len(rows)

    def _read(self, place: SpillRange) -> pa.RecordBatch:
        with self._cache_lock:
            batch = self._cache.get(place)
            if batch is not None:
                self._cache.move_to_end(place)
                return batch
        batch = self._file.read(place)
        if place.length <= 2 * _PIECE_BYTES:  # others hold one label each, which is read once
            with self._cache_lock:
                self._cache[place] = batch
                while len(self._cache) > _CACHED_PIECES:
                    self._cache.popitem(last=False)
        return batch


class _Sample:
    """Every n-th row of the batches that were spilled; n doubles when they are too many."""

    def __init__(self) -> None:
        self._step = 1
        self._rows = 0
        self._bytes = 0
        self.batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Keeps some rows of the batch."""
        part = _copied(_every(batch, self._step))  # not a view, which would keep the batch
        self.batches.append(part)
        self._rows += part.num_rows
        self._bytes += part.nbytes
        while self._rows > _SAMPLED_ROWS or (self._bytes > _SAMPLED_BYTES and self._rows > len(self.batches)):
            self._step *= 2
            self.batches = [_every(each, 2) for each in self.batches]
            self._rows = sum(each.num_rows for each in self.batches)
            self._bytes = sum(each.nbytes for each in self.batches)


def _with_arrival(rows: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return rows.append_column(ARRIVAL, pa.array(numbers))


def _without_arrival(rows: pa.RecordBatch) -> pa.RecordBatch:
    """By position: rows may have a column of that name from a store that they were in before."""
    return rows.select(list(range(rows.num_columns - 1)))


def _copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    return _taken(rows, np.arange(rows.num_rows))


def _every(batch: pa.RecordBatch, step: int) -> pa.RecordBatch:
    return batch if step == 1 else _taken(batch, np.arange(0, batch.num_rows, step))


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Text that a batch has in two columns, such as a key and its column, is taken once."""
    places, columns = pa.array(rows), []
    texts: dict[tuple[int | None, ...], pa.Array] = {}
    for column in batch.columns:
        if not pa.types.is_string(column.type):
            columns.append(pc.take(column, places, boundscheck=False))
            continue
        memory = column.offset, *(None if buffer is None else buffer.address for buffer in column.buffers())
        if memory not in texts:
            texts[memory] = pc.take(column, places, boundscheck=False)
        columns.append(texts[memory])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _together(held: list[_Labelled[L]]) -> list[_Labelled[L]]:
    """One batch of all, where many labels would each take a few rows from many batches."""
    positions: dict[L, int] = {}
    for labelled in held:
        for label in labelled[1]:
            positions.setdefault(label, len(positions))
    codes = []
    for _, own, given in held:
        renumbered = np.array([*(positions[label] for label in own), -1], np.int32)
        codes.append(renumbered[np.where((given >= 0) & (given < len(own)), given, len(own))])
    whole = pa.Table.from_batches([batch for batch, _, _ in held]).combine_chunks().to_batches()
    if len(whole) > 1:  # text beyond 2 GB
        return held
    return [(whole[0], list(positions), np.concatenate(codes))]
