"""Secondary indexes: the record keys that each value of a column has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.keys import group_set_of
from skep_table.metadata_table.partitions import SECONDARY
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.secondary_index import secondary_index_update, sharded_parts
from skep_table.metadata_write.definitions import SecondaryIndex
from skep_table.metadata_write.facts.keys import secondary_entries, slice_rows
from skep_table.metadata_write.kinds.contract import CommittedWrite, KeptKind
from skep_table.metadata_write.making.spreading import Build, Groups, Spread
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def _distinct_entries(table: HudiTable, columns: Sequence[str], slice_: FileSlice) -> dict[str, pa.Array]:
    rows = slice_rows(table, slice_, columns)
    return {column: pc.unique(secondary_entries(rows, column)) for column in columns}


def _contents(build: Build) -> Mapping[str, Groups]:
    """The entries for the rows of all merged slices, which are read once for all of these indexes.

    MetadataTableError for a key that lies in two file groups with the same value.
    """
    table, indexes = build.table, build.wanted.secondary
    if not indexes:
        return {}
    slices, columns = build.slices(), sorted({index.column for index in indexes})
    spreads = [(i, Spread(build, slices, sharded_by=sharded_parts if i.by_value else None)) for i in indexes]
    read = partial(_distinct_entries, table, columns)
    for place, entries in build.read("metadata_table.secondary_indexes", read, slices):
        for index, spread in spreads:
            spread.add(group_set_of(index.partition), entries[index.column], place)

    def update(index: SecondaryIndex, keys: pa.Array, _place: pa.Array) -> PartitionUpdate:
        none, release = pa.array([], pa.string()), table.format.metadata.release
        return secondary_index_update(index.partition, keys, none, release, by_value=index.by_value)

    return {i.partition: spread.groups(group_set_of(i.partition), partial(update, i)) for i, spread in spreads}


def _of_commit(write: CommittedWrite) -> Iterator[PartitionUpdate]:
    """Entries that came into one file group and went out of another stay: a put wins over a delete."""
    prepared, release = write.prepared, write.table.format.metadata.release
    for index in prepared.secondary:
        changes = [change.entries[index.column] for change in prepared.changes.values()]
        if changes:
            added, removed = (pc.unique(pa.concat_arrays(side)) for side in zip(*changes, strict=True))
            yield secondary_index_update(index.partition, added, removed, release, by_value=index.by_value)


KEPT = KeptKind(SECONDARY, of_commit=_of_commit, contents=_contents)
