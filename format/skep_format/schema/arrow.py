"""Arrow schemas and the neutral schema: `to_arrow` and `from_arrow`.

Arrow has more spellings than a table has types: large and view types, dictionaries, seconds and nanoseconds, unsigned
integers, time zones. `from_arrow` names the type that holds all their values; what none can hold is refused by column
name. Comments travel in the field metadata key `comment`, where Spark keeps them too.
"""

from __future__ import annotations

from collections.abc import Callable

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


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, each of which may be null, and so may all that they hold."""
    return pa.schema([_nullable(field) for field in schema], schema.metadata)


def _nullable(field: pa.Field) -> pa.Field:
    kind, t = field.type, pa.types
    if t.is_struct(kind):
        kind = pa.struct([_nullable(member) for member in kind])
    elif t.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif t.is_large_list(kind):
        kind = pa.large_list(_nullable(kind.value_field))
    elif t.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.field(field.name, kind, True, field.metadata)


def is_any_list(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's forms of a list."""
    t = pa.types
    return (
        t.is_list(kind)
        or t.is_large_list(kind)
        or t.is_fixed_size_list(kind)
        or t.is_list_view(kind)
        or t.is_large_list_view(kind)
    )


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
    for matches, convert in _RULES:
        if matches(kind):
            return convert(kind, column)
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


def _null(kind: pa.DataType, column: str) -> DataType:
    raise _refused(kind, column, hint="all its values are null: cast it to a type, or leave it out")


def _integer(kind: pa.DataType, column: str) -> DataType:
    signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width if signed else kind.bit_width + 1
    if bits <= 8:
        return types.IntType(8)
    if bits <= 16:
        return types.IntType(16)
    if bits <= 32:
        return types.IntType()
    if bits <= 64:
        return types.LongType()
    raise _refused(kind, column, "a signed integer", "cast it to int64 or decimal(20, 0)")


def _decimal(kind: pa.DataType, column: str) -> DataType:
    if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
        raise _refused(kind, column, "at most 38 digits and 0 ≤ scale ≤ precision")
    return types.DecimalType(kind.precision, kind.scale)


def _timestamp(kind: pa.DataType, _column: str) -> DataType:
    return types.TimestampType("ms" if kind.unit == "ms" else "us", utc=kind.tz is not None)


def _list(kind: pa.DataType, column: str) -> DataType:
    return types.ListType(from_arrow_type(kind.value_type, f"{column}.element"), kind.value_field.nullable)


def _map(kind: pa.DataType, column: str) -> DataType:
    if not isinstance(from_arrow_type(kind.key_type, f"{column}.key"), types.StringType):
        raise _refused(kind, column, "a map with string keys")
    return types.MapType(from_arrow_type(kind.item_type, f"{column}.value"), kind.item_field.nullable)


def _struct(kind: pa.DataType, column: str) -> DataType:
    if kind.num_fields == 0:
        raise _refused(kind, column, "a struct with members")
    return StructType(tuple(_from_field(field, f"{column}.{field.name}") for field in kind))


def _constant(result: DataType) -> Callable[[pa.DataType, str], DataType]:
    return lambda _kind, _column: result


def _any_of(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(test(kind) for test in tests)


_t = pa.types
_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], DataType]], ...] = (
    (_t.is_null, _null),
    (_t.is_boolean, _constant(types.BooleanType())),
    (_t.is_integer, _integer),
    (_any_of(_t.is_float16, _t.is_float32), _constant(types.FloatType())),
    (_t.is_float64, _constant(types.DoubleType())),
    (_any_of(_t.is_string, _t.is_large_string, _t.is_string_view), _constant(types.StringType())),
    (_any_of(_t.is_binary, _t.is_large_binary, _t.is_binary_view), _constant(types.BinaryType())),
    (_t.is_decimal, _decimal),
    (_t.is_fixed_size_binary, lambda kind, _column: types.FixedType(kind.byte_width)),
    (_t.is_date, _constant(types.DateType())),
    (_t.is_timestamp, _timestamp),
    (_t.is_time32, _constant(types.TimeType("ms"))),
    (_t.is_time64, _constant(types.TimeType("us"))),
    (_any_of(_t.is_list, _t.is_large_list, _t.is_fixed_size_list, _t.is_list_view, _t.is_large_list_view), _list),
    (_t.is_map, _map),
    (_t.is_struct, _struct),
)
