"""Rows as the caller has them, made into rows as the table has them: plain types, its columns in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SchemaError
from skep_format.names import DEFAULT_PARTITION
from skep_format.schema.exact import EXACT, Casts, cast_exactly


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Without dictionaries, views, large offsets and nanoseconds: the types that base files and Spark agree on."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_timestamp(kind):
        unit = "ms" if kind.unit in ("s", "ms") else "us"
        return pa.timestamp(unit, "UTC" if kind.tz else None)
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), _plain_field(kind.item_field))
    if isinstance(kind, (pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)):
        return pa.list_(_plain_field(kind.value_field))
    return with_inner(kind, _plain_field)


def with_inner(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A struct, map or list with its members, values or elements changed; other types are as they are."""
    if pa.types.is_struct(kind):
        return pa.struct([change(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, change(kind.item_field))
    return pa.list_(change(kind.value_field)) if pa.types.is_list(kind) else kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in plain types. SchemaError for a column name given twice."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"column {name} occurs twice", column=name)
        seen.add(name)
    return pa.schema([_plain_field(field) for field in schema])


def conform(rows: pa.RecordBatch | pa.Table, target: pa.Schema, casts: Casts = EXACT) -> pa.Table:
    """`rows` with exactly the columns of `target`, by name: cast, put in order, missing nullable ones null.

    Columns that `target` has not are left out. SchemaError when a value does not fit (InexactValueError where another
    type would hold it) or a required column has nulls.
    """
    columns = []
    for field in target:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            column = pa.nulls(rows.num_rows, field.type)
        else:
            column = cast_exactly(rows.column(at), field.type, field.name, casts)
        if not field.nullable and column.null_count:
            raise SchemaError(
                f"column {field.name} is required and null in {column.null_count} rows",
                column=field.name,
                rows=column.null_count,
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=target)


def lists_with_nulls(rows: pa.Table) -> Iterator[str]:
    """Dotted names of the list columns that hold a null element; Hudi's default writer can't rewrite such rows."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if _nested(field.type):
            yield from dict.fromkeys(name for chunk in column.chunks for name in _null_elements(chunk, field.name))


def empty_partitions(rows: pa.Table, fields: Sequence[str], paths: Iterable[str]) -> Iterator[str]:
    """Partition columns that hold empty text, or the name of Hudi's default partition, in rows of these partitions.

    Both have the path of null.
    """
    if any(DEFAULT_PARTITION in path for path in paths):
        for name in fields:
            texts = rows.column(name) if name in rows.column_names else None
            if texts is None or not pa.types.is_string(texts.type):
                continue
            if pc.any(pc.is_in(texts, pa.array(["", DEFAULT_PARTITION]))).as_py():
                yield name


def _nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind))


def _null_elements(array: pa.Array, name: str) -> Iterator[str]:
    kind = array.type
    if pa.types.is_list(kind):
        elements = pc.list_flatten(array)
        if elements.null_count:
            yield name
        if _nested(elements.type):
            yield from _null_elements(elements, f"{name}.element")
    elif pa.types.is_map(kind):
        if _nested(kind.item_type):
            yield from _null_elements(array.items, f"{name}.value")
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            if _nested(kind.field(at).type):
                yield from _null_elements(array.field(at), f"{name}.{kind.field(at).name}")
