"""Rows that one commit removes, of a partition with the same record key, or moves, to another partition.

Duplicates come from inserts and bulk inserts, which look no key up. Where each file group has a key once, the rows that
go are deleted from theirs, and no other row is changed. Within one file group a row is found by its key alone: the
partition is then replaced by the rows that stay, which all belong to that commit.

Partitions are renamed, and those of releases whose partition of nulls was `default`. One commit writes the rows of a
partition into the other one and replaces its file groups: readers find them in one of the two. All rows belong to that
commit then, and are held in memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from skep_format.names import DEFAULT_PARTITION
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import open_storage
from skep_format.timeline.plans import CompactionOperation
from skep_table.commit.parts.metadata_table import built_or_building, create_again, name_dropped, to_make_again
from skep_table.commit.writable import check_writable, prepared
from skep_table.keys.generator import KeyGenerator
from skep_table.keys.partition_path import split_path, value_of
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
_DEPRECATED: Final = "default"
Commit = Callable[[Callable[["TableWriter"], "WriteResult"]], object]
"""The commit that moves rows: a method of `TableWriter` with what it computes."""


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
            problem = f"a write has brought rows of one key into one file group of {partition!r}"
            raise now.error(CommitConflictError, problem, hint="try again")
        return fresh.deleted.select(columns_that_find(now))

    def staying(now: HudiTable) -> pa.Table:
        return _whole_rows_that_stay(now, partition, keep).select(now.schema().names())

    with _without_record_index(table):
        if found.within_group:
            commit(lambda writer: writer.replace_computed([partition], staying), _NO_KEY_INDEX)
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
        same = found.filter(pa.array(last_but_one & _like_next(found, COMMIT_TIME)))
        if len(same):
            key, time = same[RECORD_KEY][0].as_py(), same[COMMIT_TIME][0].as_py()
            problem = f"partition {partition!r} has two rows with key {key!r} of one commit {time}"
            hint = f"{DedupeType.UPSERT.value} keeps the last that the commit wrote"
            expected = "one row in the newest commit of each key"
            raise table.error(InputError, problem, hint=hint, found=key, expected=expected)
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


@dataclass(frozen=True, slots=True)
class MovedPartition:
    """A partition whose rows are to be in another one, how many they are, and whether they were moved."""

    before: str
    after: str
    rows: int
    moved: bool = False


def rename_partition(table: HudiTable, before: str, after: str, commit: Commit | None) -> MovedPartition:
    """Brings the rows of a partition, all of them, into one that has no rows yet; plans it without a `commit`.

    Their partition columns get the values that the path `after` has. InputError for a partition that is not there, a
    path that is none of the table's or has rows; UnsupportedError where paths are not made of the values of columns.
    """
    _check_paths(table)
    if before == after:
        raise table.error(InputError, f"{before!r} is the partition's path already", found=after)
    found = MovedPartition(before, after, len(_renamed(before, after, table)))
    if commit is None:
        return found
    commit(lambda writer: writer.replace_computed([before, after], partial(_renamed, before, after)))
    return replace(found, moved=True)


def move_deprecated(table: HudiTable, commit: Commit | None) -> list[MovedPartition]:
    """Brings the rows of partitions named `default`, the partition of nulls before Hudi 0.12, to that of today.

    That partition may have rows, with other keys. Each partition is a commit of its own; without `commit` they are
    planned. InputError where a row has the value `default` itself, or a key that is there already.
    """
    _check_paths(table)
    view = table.view()
    named = (path for path in view.partitions() if _DEPRECATED in _values(table, path).values())
    found = [_deprecated(table, path) for path in named if view.slices(path)]
    if commit is None:
        return found
    for each in found:
        ends, compute = (each.before, each.after), partial(_joined, each.before, each.after)
        commit(lambda writer, ends=ends, compute=compute: writer.replace_computed(ends, compute))  # type: ignore[misc]
    return [replace(each, moved=True) for each in found]


def _check_paths(table: HudiTable) -> None:
    config = table.config
    check_writable(config, table.storage.root)
    generator = KeyGenerator.of(config, table.options)
    if generator.own or generator.timestamps or not generator.partition_fields:
        kind = "is not partitioned" if not generator.partition_fields else "has paths that are no values of its columns"
        raise UnsupportedError(f"table {config.name} {kind}: no path of a partition can be changed", table=config.name)


def _renamed(before: str, after: str, table: HudiTable) -> pa.Table:
    """The rows of a partition with the values of another path. The other one must be empty."""
    if len(_rows(table, after)):
        problem = f"partition {after!r} has rows"
        hint = "upsert the rows of the other one with new values, then delete it"
        raise table.error(InputError, problem, hint=hint, found=after, expected="a path without rows")
    view = table.view()
    if before not in view.partitions() or not view.slices(before):
        raise InputError(f"table {table.config.name} has no partition {before!r}", found=before)
    rows = _with_values(table, _rows(table, before), _values(table, after))
    made = pc.unique(KeyGenerator.of(table.config, table.options).partition_paths(rows)).to_pylist()
    if made not in ([], [after]):
        problem = f"the values of {after!r} make the path {made[0]!r}"
        raise table.error(InputError, problem, found=after, expected=made[0])
    return rows


def _values(table: HudiTable, path: str) -> dict[str, str | None]:
    config = table.config
    return split_path(path, config.partition_fields, hive_style=config.hive_style, url_encode=config.url_encode)


def _with_values(table: HudiTable, rows: pa.Table, values: dict[str, str | None]) -> pa.Table:
    """InputError for a text that is no value of its column."""
    for name, text in values.items():
        if name not in rows.column_names:
            raise table.error(UnsupportedError, f"partition column {name} is a member of a struct", column=name)
        field = rows.schema.field(name)
        try:
            value = value_of(text, field.type)
        except pa.ArrowException as error:
            problem = f"{text!r} is no value of partition column {name}, which is {field.type}"
            raise table.error(InputError, problem, column=name, found=text, expected=str(field.type)) from error
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.repeat(value, len(rows)))
    return rows


def _deprecated(table: HudiTable, path: str) -> MovedPartition:
    rows = _of_nulls(table, path)
    made = pc.unique(KeyGenerator.of(table.config, table.options).partition_paths(rows)).to_pylist()
    if len(made) > 1 or path in made:
        problem = f"rows of partition {path!r} have the value {_DEPRECATED!r} in its columns"
        hint = "rename the partition where that means a missing value"
        raise table.error(InputError, problem, hint=hint, found=path, expected=DEFAULT_PARTITION)
    (after,) = made or [path.replace(_DEPRECATED, DEFAULT_PARTITION)]
    _joined(path, after, table)
    return MovedPartition(path, after, len(rows))


def _of_nulls(table: HudiTable, path: str) -> pa.Table:
    """The rows of a partition named `default`, with nulls for what they have from its path only."""
    dropped = set(table.config.dropped_columns)
    missing = [name for name, value in _values(table, path).items() if value == _DEPRECATED and name in dropped]
    return _with_values(table, _rows(table, path), dict.fromkeys(missing))


def _joined(before: str, after: str, table: HudiTable) -> pa.Table:
    """The rows of both. InputError where they have a key in common."""
    moved, there = _of_nulls(table, before), _rows(table, after)
    generator = KeyGenerator.of(table.config, table.options)
    if generator.record_fields and len(there):
        keys = generator.record_keys(moved)
        common = keys.filter(pc.is_in(keys, value_set=generator.record_keys(there)))
        if len(common):
            problem = f"key {common[0].as_py()!r} is in partition {before!r} and in {after!r}"
            hint = "delete one of the two rows"
            raise table.error(InputError, problem, hint=hint, found=common[0].as_py(), expected="a key in one of them")
    return pa.concat_tables([moved, there])


def _rows(table: HudiTable, path: str) -> pa.Table:
    """All rows of a partition with the table's columns; none of one that is not there."""
    schema, view = to_arrow(table.schema()), table.view()
    if path not in view.partitions():
        return schema.empty_table()
    read = table.context.threads.map(lambda one: list(read_slice(table, one)), view.slices(path))
    batches = [batch.select(schema.names).cast(schema) for each in read for batch in each]
    return pa.Table.from_batches(batches, schema)
