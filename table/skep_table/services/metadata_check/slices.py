"""The latest file slices of a table, and the record keys in them, read some at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from skep_table.keys.stored import StoredKeys
from skep_table.metadata_table.records.secondary_index import secondary_texts
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_SLICES_AT_ONCE: Final = 8


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
