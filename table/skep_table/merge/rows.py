"""Rows on their way through a merge: the helper columns they carry, and which rows are deletes.

Beside the table's columns, rows may have `_skep_deleted` (an entry of a delete block, or a delete by key: its other
columns are null but for key and ordering value), `_skep_ordering_<n>` (the ordering value where it lies inside a
struct, so that a delete can have one too) and `_skep_has_<column>` (which columns a partial update brought; a column
without that helper is in all rows). On their way into files they may have `_skep_partial` (a row of which only the
columns that the write sets count). `_skep_position` is the place of the row with that key in a base file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SchemaError
from skep_format.schema.types import IS_DELETED, OPERATION
from skep_table.keys.text import column_of, single
from skep_table.merge.rule import MergeRule

DELETED: Final = "_skep_deleted"
ORDERING: Final = "_skep_ordering_"
HAS: Final = "_skep_has_"
PARTIAL: Final = "_skep_partial"
POSITION: Final = "_skep_position"
_HELPERS: Final = (DELETED, ORDERING, HAS, PARTIAL, POSITION)
_DELETING_OPERATIONS: Final = ("D", "-U")

Mask = npt.NDArray[np.bool_]


def mark_deleted(rows: pa.Table) -> pa.Table:
    """Rows as deletes by key. By the rule, those with an ordering value may lose against a row with a greater one."""
    return rows.append_column(pa.field(DELETED, pa.bool_()), pa.chunked_array([pa.repeat(True, rows.num_rows)]))


def loose(schema: pa.Schema) -> pa.Schema:
    """The columns of rows on their way: required ones are null in deletes, and in rows of partial updates."""
    return pa.schema([field.with_nullable(True) for field in schema])


def is_helper(name: str) -> bool:
    """Whether a column is one of the helper columns."""
    return name.startswith(_HELPERS)


def without_helpers(rows: pa.Table) -> pa.Table:
    """The rows with the table's columns only."""
    names = [name for name in rows.schema.names if not is_helper(name)]
    return rows if len(names) == rows.num_columns else rows.select(names)


def in_delete_block(rows: pa.Table) -> Mask:
    """Which rows are entries of delete blocks or deletes by key."""
    return _mask(rows, DELETED)


def deleted(rows: pa.Table, rule: MergeRule) -> Mask:
    """Which rows are deletes: by helper column, `_hoodie_is_deleted`, the rule's delete field, or their operation."""
    names = rows.schema.names
    found = _mask(rows, DELETED) | _mask(rows, IS_DELETED)
    if rule.delete_field and rule.delete_field in names:
        text = rows.column(rule.delete_field).cast(pa.string())
        found |= as_mask(pc.equal(text, rule.delete_marker))
    if OPERATION in names:
        found |= as_mask(pc.is_in(rows.column(OPERATION), value_set=pa.array(_DELETING_OPERATIONS)))
    return found


def _mask(rows: pa.Table, name: str) -> Mask:
    if name not in rows.schema.names or not pa.types.is_boolean(rows.schema.field(name).type):
        return np.zeros(rows.num_rows, np.bool_)
    return as_mask(rows.column(name))


def as_mask(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Null counts as False."""
    mask: Mask = (
        pc.fill_null(column, False).to_numpy(zero_copy_only=False)
        if isinstance(column, pa.Array)
        else pc.fill_null(column, False).to_numpy()
    )
    return mask.astype(np.bool_, copy=False)


def ordering_columns(rows: pa.Table | pa.RecordBatch, rule: MergeRule) -> list[pa.Array]:
    """The ordering values of rows, one array a field. KeyFieldError for a field that the rows have not."""
    helpers = [f"{ORDERING}{number}" for number in range(len(rule.ordering_fields))]
    return [
        single(rows.column(helper)) if helper in rows.schema.names else column_of(rows, name, "ordering")
        for helper, name in zip(helpers, rule.ordering_fields, strict=True)
    ]


def ordering_keys(rows: pa.Table | pa.RecordBatch, rule: MergeRule) -> list[pa.Array]:
    """As `ordering_columns`, in the form in which they compare."""
    columns = ordering_columns(rows, rule)
    if not rule.numbered_ordering:
        return columns
    return [part for name, column in zip(rule.ordering_fields, columns, strict=True) for part in _numbers(name, column)]


def _numbers(name: str, column: pa.Array) -> list[pa.Array]:
    """Both numbers of texts like `000003.154`: a place in MySQL's binary log is a file and an offset."""
    try:
        parts = pc.split_pattern(column.cast(pa.string()), ".", max_splits=1)
        return [pc.list_element(parts, at).cast(pa.int64()) for at in (0, 1)]
    except pa.ArrowException as error:
        raise SchemaError(
            f"column {name} orders rows by file and position, like 000003.154: {error}", column=name
        ) from error


def by_columns_brought(rows: pa.Table) -> Iterator[tuple[pa.Table, tuple[str, ...] | None]]:
    """Rows in parts that bring the same columns, with the names of these; None for whole rows, which come last."""
    names = [name for name in rows.schema.names if name.startswith(HAS)]
    if not names or not rows.num_rows:
        yield rows, None
        return
    brought = np.stack([as_mask(rows.column(name)) for name in names], axis=1)
    sets, codes = np.unique(brought, axis=0, return_inverse=True)
    for code, has in enumerate(sets):
        columns = tuple(name.removeprefix(HAS) for name, there in zip(names, has.tolist(), strict=True) if there)
        yield rows.filter(pa.array(codes.ravel() == code)), None if has.all() else columns
