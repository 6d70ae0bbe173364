"""Column types as Spark's SQL writes them, from and to the neutral schema."""

from __future__ import annotations

import pyarrow as pa

from skep_sql.statements import ColumnSpec
from skep_table.errors import InputError, SchemaError
from skep_table.query.sql import parse_columns
from skep_table.schema.arrow import from_arrow_type
from skep_table.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    StructType,
    TimestampType,
)

_PLAIN: dict[type, str] = {
    BooleanType: "boolean",
    IntType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "binary",
    FixedType: "binary",
    DateType: "date",
}


def type_text(kind: DataType) -> str:
    """As DESCRIBE shows it; bytes and shorts are int, as Hudi stores them."""
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case TimestampType():
            return "timestamp" if kind.utc else "timestamp_ntz"
        case ListType():
            return f"array<{type_text(kind.element)}>"
        case MapType():
            return f"map<string,{type_text(kind.value)}>"
        case StructType():
            return f"struct<{','.join(f'{field.name}:{type_text(field.type)}' for field in kind.fields)}>"
    return _PLAIN.get(type(kind), "string")


def arrow_text(kind: pa.DataType, column: str) -> str:
    """The same of an Arrow type."""
    return type_text(from_arrow_type(kind, column))


def column_type(column: ColumnSpec) -> DataType:
    """The neutral type of a column as it is declared; raises as `arrow_field` does."""
    return from_arrow_type(arrow_field(column).type, column.name)


def arrow_field(column: ColumnSpec) -> pa.Field:
    """A column as it is declared. InputError for an unknown type, SchemaError for a map whose keys are no texts."""
    quoted = column.name.replace("`", "``")
    try:
        kind = parse_columns(f"`{quoted}` {column.type}").field(0).type
    except InputError as error:
        raise InputError(
            f"column {column.name}: unknown type {column.type}", column=column.name, found=column.type
        ) from error
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        raise SchemaError(f"column {column.name}: keys of maps are strings in Hudi's tables", column=column.name)
    metadata = {"comment": column.comment} if column.comment else None
    return pa.field(column.name, kind, column.nullable, metadata)
