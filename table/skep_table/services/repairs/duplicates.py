"""Rows of one partition with the same record key: which of them stay, and how the others are removed by one commit.

Duplicates come from inserts and bulk inserts, which look no key up. Where each file group has a key once, the rows that
go are deleted from theirs, and no other row is changed. Within one file group a row is found by its key alone: the
partition is then replaced by the rows that stay, which all belong to that commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.basefile.encryption import keys_of
from skep_format.errors import CommitConflictError, InputError, UnsupportedError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import open_storage
from skep_format.timeline.plans import CompactionOperation
from skep_table.commit.parts.metadata_table import built_or_building, create_again, name_dropped, to_make_again
from skep_table.commit.writable import check_writable, prepared
from skep_table.metadata_table.partitions import RECORD_INDEX, with_led
from skep_table.metadata_write.drop import drop_indexes, dropped_indexes
from skep_table.metadata_write.options import PARTITIONED_RECORD_INDEX_ENABLE, RECORD_INDEX_ENABLE, SECONDARY_COLUMN
from skep_table.services.compaction.compact import compact
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.input.source import columns_that_find

if TYPE_CHECKING:
    from skep_table.write.flow import TableWriter
    from skep_table.write.result import WriteResult

KEPT: Final = "kept"
_NO_KEY_INDEX: Final[Mapping[str, str]] = {
    RECORD_INDEX_ENABLE.key: "false",
    PARTITIONED_RECORD_INDEX_ENABLE.key: "false",
    SECONDARY_COLUMN.key: "",
}
_COPY: Final = "deduplicated.parquet"
_NUMBER: Final = "number"
_LENGTH: Final = "length"
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


class Removal(Protocol):
    """The commit that removes duplicates: a method of `TableWriter` with what it computes, under further options."""

    def __call__(self, change: Callable[[TableWriter], WriteResult], options: Mapping[str, str], /) -> object: ...


@dataclass(frozen=True, slots=True)
class DuplicateRows:
    """All rows of one partition whose key another row of it has: where each is, and whether it stays.

    `within_group`: two of a key are in one file group.
    """

    partition: str
    rows: pa.Table
    within_group: bool

    @property
    def deleted(self) -> pa.Table:
        """Those that go."""
        return self.rows.filter(pc.invert(self.rows[KEPT]))


def find_duplicates(table: HudiTable, partition: str, keep: DedupeType) -> DuplicateRows:
    """The duplicates of a partition, by key. Changes nothing.

    InputError for a partition that is not there, and for rows of one commit with `insert_type`; UnsupportedError for a
    table without record keys or without meta columns.
    """
    _check(table)
    read = table.context.threads.map(partial(_facts, table), _slices(table, partition))
    return _duplicates(table, partition, keep, pa.concat_tables([_SCHEMA.empty_table(), *read]))


def remove_duplicates(table: HudiTable, found: DuplicateRows, keep: DedupeType, commit: Removal) -> None:
    """Removes the rows that go, looked for once more in the table as the commit finds it.

    In a merge-on-read table a log deletes them; their file groups are compacted then, as indexes would find the keys in
    the base files, and bring the rows back by the next update.
    """
    if not len(found.rows):
        return
    partition = found.partition

    def deleted(now: HudiTable) -> pa.Table:
        fresh = find_duplicates(now, partition, keep)
        if fresh.within_group:
            raise CommitConflictError(
                f"table {now.config.name}: a write has brought rows of one key into one file group of {partition!r}",
                hint="try again",
                table=now.config.name,
            )
        return fresh.deleted.select(columns_that_find(now))

    with _without_record_index(table):
        if found.within_group:
            commit(
                lambda writer: writer.replace_computed([partition], partial(_staying, partition, keep)), _NO_KEY_INDEX
            )
            return
        commit(lambda writer: writer.delete_computed(deleted), _NO_KEY_INDEX)
        if table.config.is_mor:
            groups = set(found.deleted[FILE_NAME].unique().to_pylist())

            def choose(operations: Sequence[CompactionOperation]) -> Sequence[CompactionOperation]:
                return [each for each in operations if each.partition_path == partition and each.file_id in groups]

            compact(table.reload(), choose)


def copy_rows_that_stay(table: HudiTable, partition: str, keep: DedupeType, folder: str) -> str:
    """Writes the rows of a partition without those that go into a Parquet file of a folder; returns its path."""
    storage, rows = open_storage(folder, table.options), _whole_rows_that_stay(table, partition, keep)
    keys = keys_of(table.storage)
    properties = None if keys is None else keys.writing(rows.schema)
    with (
        storage.open_write(_COPY) as sink,
        pq.ParquetWriter(sink, rows.schema, encryption_properties=properties) as writer,
    ):
        writer.write_table(rows)
    storage.sync([_COPY])
    return storage.uri(_COPY)


def _check(table: HudiTable) -> None:
    config = table.config
    check_writable(config, table.storage.root)
    if not config.populate_meta_fields or not config.record_key_fields:
        why = "record key" if config.populate_meta_fields else "meta columns"
        raise UnsupportedError(f"table {config.name} has no {why}: its rows can't be deleted one by one")


def _slices(table: HudiTable, partition: str) -> list[FileSlice]:
    view = table.view()
    if partition not in view.partitions():
        raise InputError(f"table {table.config.name} has no partition {partition!r}", found=partition)
    return view.slices(partition)


def _facts(table: HudiTable, slice_: FileSlice) -> pa.Table:
    """The meta columns of a slice's rows, with its file group in the place of their file."""
    batches = list(read_slice(table, slice_, columns=_FACTS))
    if not batches:
        return _SCHEMA.empty_table()
    rows = pa.Table.from_batches(batches)
    group = pa.chunked_array([pa.repeat(pa.scalar(slice_.file_id), len(rows))])
    return rows.append_column(FILE_NAME, group).select(_SCHEMA.names).cast(_SCHEMA)


def _duplicates(table: HudiTable, partition: str, keep: DedupeType, rows: pa.Table) -> DuplicateRows:
    """`rows` are the facts of all rows; columns beyond these are kept."""
    counts = pc.value_counts(rows[RECORD_KEY])
    several = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = rows.filter(pc.is_in(rows[RECORD_KEY], value_set=several))
    # of one task `<commit>_<task>_10` comes after `<commit>_<task>_9`
    rows = rows.append_column(_LENGTH, pc.utf8_length(rows[COMMIT_SEQNO]))
    order = (RECORD_KEY, COMMIT_TIME, _LENGTH, COMMIT_SEQNO, FILE_NAME)
    found = rows.sort_by([(name, "ascending") for name in order]).drop_columns(_LENGTH)
    goes = _like_next(found, RECORD_KEY)
    if keep is DedupeType.INSERT:
        # of the newest commit of a key are its last row, and those like it
        last_but_one = goes & ~np.append(goes[1:], True)
        _refuse_same_commit(table, partition, found.filter(pa.array(last_but_one & _like_next(found, COMMIT_TIME))))
    by_group = rows.sort_by([(RECORD_KEY, "ascending"), (FILE_NAME, "ascending")])
    within_group = bool(_like_next(by_group, RECORD_KEY, FILE_NAME).any())
    return DuplicateRows(partition, found.append_column(KEPT, pa.array(~goes)), within_group)


def _like_next(rows: pa.Table, *names: str) -> npt.NDArray[np.bool_]:
    """Which of sorted rows have the values of the row behind them in these columns."""
    found = np.zeros(len(rows), np.bool_)
    if len(rows) > 1:
        pairs = ((rows[name].slice(0, len(rows) - 1), rows[name].slice(1)) for name in names)
        found[:-1] = np.logical_and.reduce([pc.equal(one, other).to_numpy() for one, other in pairs])
    return found


def _refuse_same_commit(table: HudiTable, partition: str, same: pa.Table) -> None:
    if len(same):
        key, time = same[RECORD_KEY][0].as_py(), same[COMMIT_TIME][0].as_py()
        raise InputError(
            f"table {table.config.name}: partition {partition!r} has two rows with key {key!r} of one commit {time}",
            hint=f"{DedupeType.UPSERT.value} keeps the last that the commit wrote",
            found=key,
            expected="one row in the newest commit of each key",
        )


def _staying(partition: str, keep: DedupeType, table: HudiTable) -> pa.Table:
    return _whole_rows_that_stay(table, partition, keep).select(table.schema().names())


def _whole_rows_that_stay(table: HudiTable, partition: str, keep: DedupeType) -> pa.Table:
    """With all columns, the meta columns first. Holds the partition in memory."""
    _check(table)
    schema = to_arrow(table.schema().with_meta())
    slices = _slices(table, partition)
    read = table.context.threads.map(lambda slice_: list(read_slice(table, slice_)), slices)
    rows = pa.Table.from_batches([batch.cast(schema) for batches in read for batch in batches], schema)
    counts = [sum(map(len, batches)) for batches in read]
    groups = [pa.repeat(pa.scalar(slice_.file_id), count) for slice_, count in zip(slices, counts, strict=True)]
    facts = rows.select(_FACTS).append_column(FILE_NAME, pa.chunked_array(groups, pa.string())).cast(_SCHEMA)
    numbered = facts.append_column(_NUMBER, pa.array(np.arange(len(rows))))
    going = _duplicates(table, partition, keep, numbered).deleted[_NUMBER].to_numpy()
    return rows.take(pa.array(np.setdiff1d(np.arange(len(rows)), going)))


@contextmanager
def _without_record_index(table: HudiTable) -> Iterator[None]:
    """For the commit that removes duplicates: the record index has one place for a key, which may be the one that goes.

    It is rebuilt from the files after the block, with the indexes that depend on it.
    """
    with table.context.locked():
        fresh = prepared(table)
        there, again = built_or_building(fresh), None
        if RECORD_INDEX in there:
            going = set(with_led([RECORD_INDEX], there))
            again = to_make_again(fresh, going)
            drop_indexes(fresh, there - going)
    try:
        yield
    finally:
        if again is not None:
            with table.context.locked():
                fresh = table.reload()
                create_again(name_dropped(fresh, {**dropped_indexes(fresh.config), **again}))
