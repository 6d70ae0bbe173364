"""Records on their way into file groups: on disk by group, and from there in the order of their keys.

Memory holds some of the last ones, and of one group at a time the positions of its records.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.slices.spill import SpillFile, SpillRange, rows_at

if TYPE_CHECKING:
    from typing_extensions import Self

_HELD_BYTES: Final = 32 << 20
_CHUNK_BYTES: Final = 2 << 20
_TABLES: Final = 64  # of a group, before they are made one: a table of few rows takes a hundred times their bytes

KEY: Final = "key"


class GroupSpool:
    """Tables of one schema with a column `key`, by the group that they belong to.

    A context manager: its temporary file, in `folder` or the system's temporary folder, is deleted in the end. First
    everything is added, then it is read; threads may read.
    """

    def __init__(self, folder: str = "", *, held_bytes: int = _HELD_BYTES, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._file = SpillFile(folder)
        self._held_bytes, self._chunk_bytes = held_bytes, chunk_bytes
        self._held: dict[Hashable, list[pa.Table]] = defaultdict(list)
        self._last: dict[Hashable, list[pa.Table]] = defaultdict(list)
        self._size = 0
        self._places: dict[Hashable, list[SpillRange]] = defaultdict(list)
        self._counts: dict[Hashable, int] = defaultdict(int)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, group: Hashable, rows: pa.Table) -> None:
        """Appends rows. StorageError where the temporary folder has no room."""
        if not len(rows):
            return
        self._counts[group] += len(rows)
        last = self._last[group]
        last.append(rows)
        if len(last) == _TABLES:
            self._held[group].append(pa.concat_tables(last).combine_chunks())
            last.clear()
        self._size += rows.nbytes
        if self._size > self._held_bytes:
            self._write()

    def count(self, group: Hashable) -> int:
        """The number of rows of a group."""
        return self._counts.get(group, 0)

    def batches(self, group: Hashable) -> list[pa.RecordBatch]:
        """The rows of a group in the order in which they came."""
        self._write()
        places = self._places.get(group)
        return self._file.mapped(places) if places else []

    def ascending(self, group: Hashable) -> Iterator[pa.Table]:
        """The rows of a group in the order of their keys' bytes, in pieces of some megabytes."""
        batches = self.batches(group)
        if not batches:
            return
        starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        order = pc.sort_indices(pa.chunked_array([batch.column(KEY) for batch in batches])).to_numpy()
        size = sum(batch.nbytes for batch in batches)
        step = max(1, int(self._chunk_bytes / max(1, size) * len(order)))
        for at in range(0, len(order), step):
            yield rows_at(batches, starts, order[at : at + step].astype(np.int64))

    def _write(self) -> None:
        with self._lock:
            for group, last in self._last.items():
                if tables := [*self._held[group], *last]:
                    for batch in pa.concat_tables(tables).combine_chunks().to_batches():
                        self._places[group].append(self._file.append(batch))
            self._held.clear()
            self._last.clear()
            self._size = 0
