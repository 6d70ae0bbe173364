"""Columns without a type of their own, as all their values are null: they take the table's, or are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.options import WRITES_OF_ROWS, boolean, option
from skep_format.schema.exact import cast_within

DROP_UNTYPED = option(
    "skep.write.drop.untyped.columns",
    boolean,
    False,
    "New columns, and members of structs, whose values are all null and have no type are left out; else refused",
    only=WRITES_OF_ROWS,
)


def typed(given: pa.Schema, known: pa.Schema | None = None, *, drop: bool = False) -> pa.Schema:
    """`given` with the types of `known` where it has none: Arrow's null type, also within structs, lists and maps.

    Unsigned and wide types that no table has become the table's as well; their values are checked when they are cast.
    What `known` lacks is left out with `drop`, else SchemaError.
    """
    return pa.schema(_members(given, known, "", drop))


def _members(given: Iterable[pa.Field], known: Any, path: str, drop: bool) -> Iterator[pa.Field]:
    """Those of a schema, or of a struct, that have a type; `known` is another one."""
    for field in given:
        at = -1 if known is None else known.get_field_index(field.name)
        kind = _typed(field.type, None if at < 0 else known.field(at).type, path + field.name, drop)
        if kind is not None:
            yield field if kind is field.type else field.with_type(kind)


def untyped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of an engine that gave nulls a type, as `kind`, in which they have none. Members are matched by position.

    Times are cut to their unit.
    """
    return cast_within(values, kind, "", _leaf, lambda _given, wanted, _path: range(wanted.num_fields))


def _leaf(values: pa.Array, kind: pa.DataType, _path: str) -> pa.Array:
    return pa.nulls(len(values)) if pa.types.is_null(kind) else values.cast(kind, safe=not pa.types.is_timestamp(kind))


def _typed(kind: pa.DataType, known: pa.DataType | None, path: str, drop: bool) -> pa.DataType | None:
    t = pa.types
    if t.is_null(kind):
        if known is None and not drop:
            raise SchemaError(
                f"column {path} has no type: its values are all null, and the table has no such column",
                hint=f"cast it to a type, or {DROP_UNTYPED.key}=true leaves it out",
                column=path,
                found="null",
                expected="a type Hudi has",
            )
        return known
    if known is not None and t.is_uint64(kind) and t.is_integer(known):
        return known
    if known is not None and t.is_decimal256(kind) and t.is_decimal(known):
        return known
    if known is not None and known.id != kind.id:
        known = None
    if t.is_struct(kind):
        members = list(_members(kind, known, f"{path}.", drop))
        return pa.struct(members) if members or not kind.num_fields else None
    if t.is_map(kind):
        item = _typed(kind.item_type, None if known is None else known.item_type, f"{path}.value", drop)
        return item and (kind if item is kind.item_type else pa.map_(kind.key_type, kind.item_field.with_type(item)))
    if t.is_list(kind):
        value = _typed(kind.value_type, None if known is None else known.value_type, f"{path}.element", drop)
        return value and (kind if value is kind.value_type else pa.list_(kind.value_field.with_type(value)))
    return kind
