"""Rows of one partition with the same record key: which of them stay, and where the others are deleted from.

Duplicates come from inserts and bulk inserts, which look no key up. A key may be in several file groups once each: the
rows that go are deleted from theirs, by one commit, and no other row is changed. Within one file group a row
is found by its key alone, so that one of two can't be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.errors import InputError, UnsupportedError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import open_storage
from skep_format.timeline.plans import CompactionOperation
from skep_table.commit.parts.metadata_table import create_again, name_dropped, to_make_again
from skep_table.commit.writable import check_writable, prepared
from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.metadata_write.drop import drop_indexes
from skep_table.metadata_write.dropped import dropped_indexes
from skep_table.metadata_write.options import PARTITIONED_RECORD_INDEX_ENABLE, RECORD_INDEX_ENABLE, SECONDARY_COLUMN
from skep_table.services.compaction.compact import compact
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.input.source import columns_that_find

KEPT: Final = "kept"
_NO_KEY_INDEX: Final[Mapping[str, str]] = {
    RECORD_INDEX_ENABLE.key: "false",
    PARTITIONED_RECORD_INDEX_ENABLE.key: "false",
    SECONDARY_COLUMN.key: "",
}
_COPY: Final = "deduplicated.parquet"
_FACTS: Final = (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO, PARTITION_PATH)
_SCHEMA: Final = pa.schema([*((name, pa.string()) for name in (*_FACTS, FILE_NAME))])


class DedupeType(str, Enum):
    """Which row of a key stays, by Hudi's words (DeDupeType).

    `insert_type`: that of the newest commit, and two of one commit are an error. `update_type`, `upsert_type`: that of
    the newest commit, and of several of one commit the last that it wrote.
    """

    INSERT = "insert_type"
    UPDATE = "update_type"
    UPSERT = "upsert_type"


@dataclass(frozen=True, slots=True)
class DuplicateRows:
    """All rows of one partition whose key another row of it has: where each is, and whether it stays."""

    partition: str
    rows: pa.Table

    @property
    def deleted(self) -> pa.Table:
        """Those that go."""
        return self.rows.filter(pc.invert(self.rows[KEPT]))


def find_duplicates(table: HudiTable, partition: str, keep: DedupeType) -> DuplicateRows:
    """The duplicates of a partition, by key. Changes nothing.

    InputError for a partition that is not there, a table without record keys, and rows of one commit with
    `insert_type`; UnsupportedError for two rows of a key in one file group, and for tables without meta columns.
    """
    config = table.config
    check_writable(config, table.storage.root)
    if not config.populate_meta_fields or not config.record_key_fields:
        why = "record key" if config.populate_meta_fields else "meta columns"
        raise UnsupportedError(f"table {config.name} has no {why}: its rows can't be deleted one by one")
    view = table.view()
    if partition not in view.partitions():
        raise InputError(f"table {config.name} has no partition {partition!r}", found=partition)
    read = table.context.threads.map(partial(_facts, table), view.slices(partition))
    rows = pa.concat_tables([_SCHEMA.empty_table(), *read])
    counts = pc.value_counts(rows[RECORD_KEY])
    several = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = rows.filter(pc.is_in(rows[RECORD_KEY], value_set=several))
    found = rows.sort_by([(name, "ascending") for name in (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO, FILE_NAME)])
    _refuse_within_group(table, partition, rows)
    goes = _like_next(found, RECORD_KEY)
    if keep is DedupeType.INSERT:
        # of the newest commit of a key are its last row, and those like it
        last_but_one = goes & ~np.append(goes[1:], True)
        _refuse_same_commit(table, partition, found.filter(pa.array(last_but_one & _like_next(found, COMMIT_TIME))))
    return DuplicateRows(partition, found.append_column(KEPT, pa.array(~goes)))


def delete_duplicates(
    table: HudiTable,
    found: DuplicateRows,
    keep: DedupeType,
    delete: Callable[[Callable[[HudiTable], pa.Table], Mapping[str, str]], object],
) -> None:
    """Deletes the rows that go, looked for once more in the table as the commit finds it. `delete` is that commit, of
    what `TableWriter.delete_computed` takes, with these options.

    In a merge-on-read table a log deletes them; their file groups are compacted then, as indexes would find the keys in
    the base files, and bring the rows back by the next update.
    """
    if not len(found.rows):
        return
    partition = found.partition
    with _without_record_index(table):
        delete(lambda now: find_duplicates(now, partition, keep).deleted.select(columns_that_find(now)), _NO_KEY_INDEX)
        if table.config.is_mor:
            groups = set(found.deleted[FILE_NAME].unique().to_pylist())

            def choose(operations: Sequence[CompactionOperation]) -> Sequence[CompactionOperation]:
                return [each for each in operations if each.partition_path == partition and each.file_id in groups]

            compact(table.reload(), choose)


@contextmanager
def _without_record_index(table: HudiTable) -> Iterator[None]:
    """For the commit that deletes duplicates: the record index has one place for a key, which may be the one that goes.

    It is rebuilt from the files after the block, with the indexes that depend on it.
    """
    with table.context.locked():
        fresh = prepared(table)
        there = {*fresh.config.metadata_partitions}
        if RECORD_INDEX not in there:
            again = None
        else:
            going = {RECORD_INDEX, *(name for name in there if name.startswith("secondary_index_"))}
            again = to_make_again(fresh, going)
            drop_indexes(fresh, there - going)
    yield
    if again is not None:
        with table.context.locked():
            fresh = table.reload()
            create_again(name_dropped(fresh, {**dropped_indexes(fresh.config), **again}))


def _facts(table: HudiTable, slice_: FileSlice) -> pa.Table:
    """The meta columns of a slice's rows, with its file group in the place of their file."""
    batches = list(read_slice(table, slice_, columns=_FACTS))
    if not batches:
        return _SCHEMA.empty_table()
    rows = pa.Table.from_batches(batches)
    group = pa.chunked_array([pa.repeat(pa.scalar(slice_.file_id), len(rows))])
    return rows.append_column(FILE_NAME, group).select(_SCHEMA.names).cast(_SCHEMA)


def _like_next(rows: pa.Table, *names: str) -> npt.NDArray[np.bool_]:
    """Which of sorted rows have the values of the row behind them in these columns."""
    found = np.zeros(len(rows), np.bool_)
    if len(rows) > 1:
        pairs = ((rows[name].slice(0, len(rows) - 1), rows[name].slice(1)) for name in names)
        found[:-1] = np.logical_and.reduce([pc.equal(one, other).to_numpy() for one, other in pairs])
    return found


def _refuse_within_group(table: HudiTable, partition: str, found: pa.Table) -> None:
    by_group = found.sort_by([(RECORD_KEY, "ascending"), (FILE_NAME, "ascending")])
    same = by_group.filter(pa.array(_like_next(by_group, RECORD_KEY, FILE_NAME)))
    if len(same):
        key, group = same[RECORD_KEY][0].as_py(), same[FILE_NAME][0].as_py()
        raise UnsupportedError(
            f"table {table.config.name}: partition {partition!r} has two rows with key {key!r} in file group {group}:"
            " one of them alone can't be deleted",
            hint="read the partition, and write what is to stay with insert_overwrite (INSERT OVERWRITE … PARTITION)",
            path=partition,
            found=key,
        )


def _refuse_same_commit(table: HudiTable, partition: str, same: pa.Table) -> None:
    if len(same):
        key, time = same[RECORD_KEY][0].as_py(), same[COMMIT_TIME][0].as_py()
        raise InputError(
            f"table {table.config.name}: partition {partition!r} has two rows with key {key!r} of one commit {time}",
            hint=f"{DedupeType.UPSERT.value} keeps the last that the commit wrote",
            found=key,
            expected="one row in the newest commit of each key",
        )


def copy_rows_that_stay(table: HudiTable, found: DuplicateRows, folder: str) -> str:
    """Writes the rows of the partition without those that go into a Parquet file of a folder; returns its path.

    `table` is the snapshot that the duplicates were found in.
    """
    storage = open_storage(folder, table.options)
    schema, deleted = to_arrow(table.schema().with_meta()), found.deleted
    with storage.open_write(_COPY) as sink, pq.ParquetWriter(sink, schema) as writer:
        for slice_ in table.view().slices(found.partition):
            going = deleted.filter(pc.equal(deleted[FILE_NAME], slice_.file_id))[RECORD_KEY]
            for batch in read_slice(table, slice_):
                stays = pc.invert(pc.is_in(batch.column(RECORD_KEY), value_set=going))
                writer.write_batch(batch.filter(stays).cast(schema))
    storage.sync([_COPY])
    return storage.uri(_COPY)
