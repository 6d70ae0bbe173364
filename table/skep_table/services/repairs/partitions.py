"""Partitions under other paths: renamed, and those of releases whose partition of nulls was `default`.

One commit writes the rows of a partition into the other one and replaces its file groups: readers find them in one of
the two. All rows belong to that commit then, and are held in memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError, UnsupportedError
from skep_format.names import DEFAULT_PARTITION
from skep_format.schema.arrow import to_arrow
from skep_table.commit.writable import check_writable
from skep_table.keys.generator import KeyGenerator
from skep_table.keys.partition_path import split_path, value_of
from skep_table.slices import read_slice
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_table.write.flow import TableWriter
    from skep_table.write.result import WriteResult

_DEPRECATED: Final = "default"

Commit = Callable[[Callable[["TableWriter"], "WriteResult"]], object]
"""The commit that moves rows: a method of `TableWriter` with what it computes."""


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
    _check(table)
    if before == after:
        raise InputError(f"table {table.config.name}: {before!r} is the partition's path already", found=after)
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
    _check(table)
    found = [_deprecated(table, path) for path in table.view().partitions() if _is_deprecated(table, path)]
    if commit is None:
        return found
    for each in found:
        ends, compute = (each.before, each.after), partial(_joined, each.before, each.after)
        commit(lambda writer, ends=ends, compute=compute: writer.replace_computed(ends, compute))  # type: ignore[misc]
    return [replace(each, moved=True) for each in found]


def _check(table: HudiTable) -> None:
    config = table.config
    check_writable(config, table.storage.root)
    generator = KeyGenerator.of(config, table.options)
    if generator.own or generator.timestamps or not generator.partition_fields:
        kind = "is not partitioned" if not generator.partition_fields else "has paths that are no values of its columns"
        raise UnsupportedError(f"table {config.name} {kind}: no path of a partition can be changed", table=config.name)


def _renamed(before: str, after: str, table: HudiTable) -> pa.Table:
    """The rows of a partition with the values of another path. The other one must be empty."""
    if len(_rows(table, after)):
        raise InputError(
            f"table {table.config.name}: partition {after!r} has rows",
            hint="upsert the rows of the other one with new values, then delete it",
            found=after,
            expected="a path without rows",
        )
    view = table.view()
    if before not in view.partitions() or not view.slices(before):
        raise InputError(f"table {table.config.name} has no partition {before!r}", found=before)
    rows = _with_values(table, _rows(table, before), _values(table, after))
    made = pc.unique(KeyGenerator.of(table.config, table.options).partition_paths(rows)).to_pylist()
    if made not in ([], [after]):
        raise InputError(
            f"table {table.config.name}: the values of {after!r} make the path {made[0]!r}",
            found=after,
            expected=made[0],
        )
    return rows


def _values(table: HudiTable, path: str) -> dict[str, str | None]:
    config = table.config
    return split_path(path, config.partition_fields, hive_style=config.hive_style, url_encode=config.url_encode)


def _with_values(table: HudiTable, rows: pa.Table, values: dict[str, str | None]) -> pa.Table:
    """InputError for a text that is no value of its column."""
    for name, text in values.items():
        if name not in rows.column_names:
            raise UnsupportedError(
                f"table {table.config.name}: partition column {name} is a member of a struct", column=name
            )
        field = rows.schema.field(name)
        try:
            value = value_of(text, field.type)
        except pa.ArrowException as error:
            raise InputError(
                f"table {table.config.name}: {text!r} is no value of partition column {name}, which is {field.type}",
                column=name,
                found=text,
                expected=str(field.type),
            ) from error
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.repeat(value, len(rows)))
    return rows


def _is_deprecated(table: HudiTable, path: str) -> bool:
    return _DEPRECATED in _values(table, path).values() and bool(table.view().slices(path))


def _deprecated(table: HudiTable, path: str) -> MovedPartition:
    rows = _of_nulls(table, path)
    made = pc.unique(KeyGenerator.of(table.config, table.options).partition_paths(rows)).to_pylist()
    if len(made) > 1 or path in made:
        raise InputError(
            f"table {table.config.name}: rows of partition {path!r} have the value {_DEPRECATED!r} in its columns",
            hint="rename the partition where that means a missing value",
            found=path,
            expected=DEFAULT_PARTITION,
        )
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
            raise InputError(
                f"table {table.config.name}: key {common[0].as_py()!r} is in partition {before!r} and in {after!r}",
                hint="delete one of the two rows",
                found=common[0].as_py(),
                expected="a key in one of them",
            )
    return pa.concat_tables([moved, there])


def _rows(table: HudiTable, path: str) -> pa.Table:
    """All rows of a partition with the table's columns; none of one that is not there."""
    schema, view = to_arrow(table.schema()), table.view()
    if path not in view.partitions():
        return schema.empty_table()
    read = table.context.threads.map(lambda one: list(read_slice(table, one)), view.slices(path))
    batches = [batch.select(schema.names).cast(schema) for each in read for batch in each]
    return pa.Table.from_batches(batches, schema)
