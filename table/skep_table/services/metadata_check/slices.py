"""The latest file slices of a table, and the record keys in them, read some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from skep_table.keys.stored import StoredKeys
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def latest_slices(table: HudiTable) -> Iterator[FileSlice]:
    """Those that queries read, partition by partition, by a listing of the storage."""
    view = table.view(metadata=False)
    for path in view.partitions():
        yield from view.slices(path)


def keys_of_slices(table: HudiTable, slices: Sequence[FileSlice]) -> list[pa.Array]:
    """The record keys of the merged rows of each slice."""
    stored = StoredKeys.of(table.config, table.stored_schema())
    columns = stored.schema.names()

    def keys_of(slice_: FileSlice) -> pa.Array:
        found = [stored.of_rows(rows).cast(pa.string()) for rows in read_slice(table, slice_, columns=columns)]
        return pa.concat_arrays(found) if found else pa.array([], pa.string())

    return list(table.context.threads.map(keys_of, slices))
