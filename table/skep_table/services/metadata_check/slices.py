"""The latest file slices of a table, and the record keys in them: read some at a time, and put aside by file groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_table.keys.stored import StoredKeys
from skep_table.metadata_table.records.secondary_index import secondary_texts
from skep_table.slices.read import read_slice
from skep_table.slices.spill import SpillFile, SpillRange
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_SLICES_AT_ONCE: Final = 8
_SCHEMA: Final = pa.schema([("key", pa.string()), ("slice", pa.int64())])


@dataclass(frozen=True)
class KeyedSlice:
    """A slice with the record keys of its merged rows, and what secondary indexes have of the column that was asked
    for."""

    slice: FileSlice
    keys: pa.Array
    texts: pa.Array | None = None


def latest_slices(table: HudiTable) -> Iterator[FileSlice]:
    """Those that queries read, partition by partition, by a listing of the storage."""
    view = table.view(metadata=False)
    for path in view.partitions():
        yield from view.slices(path)


def keyed_slices(table: HudiTable, column: str | None = None) -> Iterator[KeyedSlice]:
    """The latest slices with their keys; a few are in memory at a time."""
    stored = StoredKeys.of(table.config, table.stored_schema())
    asked = [column] if column is not None else []
    columns: Sequence[str] = list(dict.fromkeys((*stored.schema.names(), *asked)))

    def read(slice_: FileSlice) -> KeyedSlice:
        keys, texts = [pa.array([], pa.string())], [pa.array([], pa.string())]
        for rows in read_slice(table, slice_, columns=columns):
            keys.append(stored.of_rows(rows.select(stored.schema.names())).cast(pa.string()))
            texts += [secondary_texts(rows.column(name)) for name in asked]
        return KeyedSlice(slice_, pa.concat_arrays(keys), pa.concat_arrays(texts) if asked else None)

    waiting = latest_slices(table)
    while portion := list(itertools.islice(waiting, _SLICES_AT_ONCE)):
        yield from table.context.threads.map(read, portion)


@dataclass
class KeySpool:
    """Keys with the number of the file slice that each is in.

    A part is named by the set of file groups, where an index has several of them, and the number of a group in it.
    """

    file: SpillFile
    _places: dict[tuple[str | None, int], list[SpillRange]] = field(default_factory=dict)

    def add(self, group_set: str | None, groups: npt.NDArray[np.int64], keys: pa.Array, slice_number: int) -> None:
        """Adds keys of one slice, each with the number of its file group."""
        if not len(keys):  # all rows of a slice may be deleted
            return
        order = np.argsort(groups, kind="stable")
        ordered = keys.take(pa.array(order))
        numbers, starts = np.unique(groups[order], return_index=True)
        ends = [*starts[1:].tolist(), len(keys)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            part = ordered.slice(start, end - start)
            slices = pa.array(np.full(len(part), slice_number, np.int64))
            place = self.file.append(pa.RecordBatch.from_arrays([part, slices], schema=_SCHEMA))
            self._places.setdefault((group_set, number), []).append(place)

    def part(self, group_set: str | None, group: int) -> pa.Table:
        """The keys of a file group as `key`, each with its `slice`."""
        batches = map(self.file.read, self._places.get((group_set, group), ()))
        return pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
