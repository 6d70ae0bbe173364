"""Arrow schemas and the neutral schema: `to_arrow` and `from_arrow`.

Arrow has more spellings than a table has types: large and view types, dictionaries, seconds and nanoseconds, unsigned
integers, time zones. `from_arrow` names the type that holds all their values; what none can hold is refused by column
name. Comments travel in the field metadata key `comment`, where Spark keeps them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.schema import types
from skep_format.schema.types import DataType, Field, Schema, StructType, cached_by_schema

_COMMENT = b"comment"
_LIST_ELEMENT = "element"  # the name Parquet's standard three-level list gives it


@cached_by_schema
def to_arrow(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's rows: plain types, one for each of ours, nullability and comments kept."""
    return pa.schema([arrow_field(field) for field in schema.fields])


def is_number(kind: pa.DataType) -> bool:
    """Whether it is a type of numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_any_list(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's forms of a list."""
    t = pa.types
    lists = (t.is_list, t.is_large_list, t.is_fixed_size_list, t.is_list_view, t.is_large_list_view)
    return any(is_kind(kind) for is_kind in lists)


def is_text(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's forms of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's forms of bytes of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def rebuilt(
    field: pa.Field,
    leaf: Callable[[pa.DataType], pa.DataType] = lambda kind: kind,
    made: Callable[[pa.Field, pa.DataType], pa.Field] = pa.Field.with_type,
) -> pa.Field:
    """A field whose plain types are those of `leaf`, however deep they are within structs, lists and maps.

    `made` makes each field with its type.
    """
    kind, t = field.type, pa.types
    if t.is_struct(kind):
        kind = pa.struct([rebuilt(member, leaf, made) for member in kind])
    elif t.is_list(kind):
        kind = pa.list_(rebuilt(kind.value_field, leaf, made))
    elif t.is_large_list(kind):
        kind = pa.large_list(rebuilt(kind.value_field, leaf, made))
    elif t.is_map(kind):
        kind = pa.map_(leaf(kind.key_type), rebuilt(kind.item_field, leaf, made))
    else:
        kind = leaf(kind)
    return made(field, kind)


def without_metadata(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """Another field of that name, for `rebuilt`."""
    return pa.field(field.name, kind, field.nullable)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, each of which may be null, and so may all that they hold."""

    def made(field: pa.Field, kind: pa.DataType) -> pa.Field:
        return pa.field(field.name, kind, True, field.metadata)

    return pa.schema([rebuilt(field, made=made) for field in schema], schema.metadata)


def arrow_type(kind: DataType, inner: Callable[[DataType], pa.DataType] | None = None) -> pa.DataType:
    """The Arrow type that holds `kind`. Enums and UUIDs are strings there. `inner` gives the types within others."""
    of = inner or arrow_type
    match kind:
        case types.BooleanType():
            return pa.bool_()
        case types.IntType():
            return {8: pa.int8(), 16: pa.int16(), 32: pa.int32()}[kind.bits]
        case types.LongType():
            return pa.int64()
        case types.FloatType():
            return pa.float32()
        case types.DoubleType():
            return pa.float64()
        case types.BinaryType():
            return pa.binary()
        case types.FixedType():
            return pa.binary(kind.size)
        case types.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case types.DateType():
            return pa.date32()
        case types.TimeType():
            return pa.time32("ms") if kind.unit == "ms" else pa.time64("us")
        case types.TimestampType():
            return pa.timestamp(kind.unit, "UTC" if kind.utc else None)
        case types.ListType():
            return pa.list_(pa.field(_LIST_ELEMENT, of(kind.element), kind.element_nullable))
        case types.MapType():
            return pa.map_(pa.string(), pa.field("value", of(kind.value), kind.value_nullable))
        case StructType():
            return pa.struct([arrow_field(field, of) for field in kind.fields])
    return pa.string()  # string, enum, uuid


def arrow_field(field: Field, of: Callable[[DataType], pa.DataType] = arrow_type) -> pa.Field:
    """The Arrow field, its comment in the metadata. `of` gives its type."""
    metadata = {_COMMENT: field.doc.encode()} if field.doc else None
    return pa.field(field.name, of(field.type), field.nullable, metadata)


def from_arrow(schema: pa.Schema, name: str = "skep_record", namespace: str = "hoodie.skep") -> Schema:
    """The neutral schema that holds every value of an Arrow schema. SchemaError names the column that none can hold."""
    fields = tuple(_from_field(field, field.name) for field in schema)
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise SchemaError(f"column {field.name} occurs twice", column=field.name)
        seen.add(field.name)
    return Schema(fields, name, namespace)


def from_arrow_type(kind: pa.DataType, column: str) -> DataType:
    """The neutral type that holds every value of an Arrow type; `column` is for the error."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return types.UuidType()
        return from_arrow_type(kind.storage_type, column)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return from_arrow_type(kind.value_type, column)
    t = pa.types
    for matches, found in _OF_ONE_TYPE:
        if matches(kind):
            return found
    if t.is_null(kind):
        raise _refused(kind, column, hint="all its values are null: cast it to a type, or leave it out")
    if t.is_integer(kind):
        bits = kind.bit_width if t.is_signed_integer(kind) else kind.bit_width + 1
        if bits > 64:
            raise _refused(kind, column, "a signed integer", "cast it to int64 or decimal(20, 0)")
        return types.LongType() if bits > 32 else types.IntType(8 if bits <= 8 else 16 if bits <= 16 else 32)
    if t.is_decimal(kind):
        if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
            raise _refused(kind, column, "at most 38 digits and 0 ≤ scale ≤ precision")
        return types.DecimalType(kind.precision, kind.scale)
    if t.is_fixed_size_binary(kind):
        return types.FixedType(kind.byte_width)
    if t.is_timestamp(kind):
        return types.TimestampType("ms" if kind.unit == "ms" else "us", utc=kind.tz is not None)
    if is_any_list(kind):
        return types.ListType(from_arrow_type(kind.value_type, f"{column}.element"), kind.value_field.nullable)
    if t.is_map(kind):
        if not isinstance(from_arrow_type(kind.key_type, f"{column}.key"), types.StringType):
            raise _refused(kind, column, "a map with string keys")
        return types.MapType(from_arrow_type(kind.item_type, f"{column}.value"), kind.item_field.nullable)
    if t.is_struct(kind):
        if kind.num_fields == 0:
            raise _refused(kind, column, "a struct with members")
        return StructType(tuple(_from_field(field, f"{column}.{field.name}") for field in kind))
    raise _refused(kind, column)


def _from_field(field: pa.Field, column: str) -> Field:
    comment = (field.metadata or {}).get(_COMMENT)
    kind = from_arrow_type(field.type, column)
    return Field(field.name, kind, field.nullable, None if comment is None else comment.decode("utf-8", "replace"))


def _refused(kind: pa.DataType, column: str, expected: str = "a type Hudi has", hint: str | None = None) -> SchemaError:
    return SchemaError(
        f"column {column}: a table can't hold Arrow type {kind}; expected {expected}",
        column=column,
        found=str(kind),
        expected=expected,
        hint=hint,
    )


_OF_ONE_TYPE: Final[tuple[tuple[Callable[[pa.DataType], bool], DataType], ...]] = (
    (pa.types.is_boolean, types.BooleanType()),
    (pa.types.is_float16, types.FloatType()),
    (pa.types.is_float32, types.FloatType()),
    (pa.types.is_float64, types.DoubleType()),
    (is_text, types.StringType()),
    (is_bytes, types.BinaryType()),
    (pa.types.is_date, types.DateType()),
    (pa.types.is_time32, types.TimeType("ms")),
    (pa.types.is_time64, types.TimeType("us")),
)
