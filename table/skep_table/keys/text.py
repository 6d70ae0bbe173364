"""Column values as the text of record keys and partition paths: what Java's `toString` makes of Avro values.

Format guide 9.1. Everything is an Arrow kernel over a whole column; nulls stay null.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import KeyFieldError, SchemaError
from skep_format.json_text import decimal_text
from skep_format.schema.java_text import java_float
from skep_format.schema.policy import hint_of_case


def value_text(column: pa.Array, name: str, *, logical_timestamps: bool = False) -> pa.Array:
    """`column` as Java text. `logical_timestamps` prints timestamps like java.sql.Timestamp in UTC, not as raw numbers.

    Raises SchemaError for types that have no usable text (binary, lists, maps, structs).
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return value_text(column.dictionary_decode(), name, logical_timestamps=logical_timestamps)
    if pa.types.is_string(kind):
        return column
    if pa.types.is_large_string(kind) or kind == pa.string_view() or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return column.cast(pa.string())
    if pa.types.is_date64(kind):
        return column.cast(pa.date32()).cast(pa.string())
    if pa.types.is_floating(kind):
        return java_float(column)
    if pa.types.is_decimal(kind):
        return decimal_text(column).cast(pa.string())
    if pa.types.is_timestamp(kind):
        return _sql_timestamp(column) if logical_timestamps else _hudi_unit(column).cast(pa.int64()).cast(pa.string())
    if pa.types.is_time(kind):
        return column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64()).cast(pa.string())
    raise SchemaError(
        f"column {name} of type {kind} can't be part of a record key or partition path",
        column=name,
        found=str(kind),
        expected="a string, number, boolean, date or timestamp",
    )


def single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def joined_places(paths: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Partition path and record key of each row as one text, by which rows are compared."""
    return pc.binary_join_element_wise(single(paths).cast(pa.string()), single(keys).cast(pa.string()), "\0")


def column_of(batch: pa.RecordBatch | pa.Table, name: str, kind: str = "key") -> pa.Array:
    """The column `name`, dotted for a member of a struct, as one array. KeyFieldError when it is not there.

    `kind` is what the column is for.
    """
    column: pa.Array | None = None
    if name in batch.schema.names:
        column = batch.column(name)
    else:
        head, *members = name.split(".")
        if members and head in batch.schema.names:
            column = batch.column(head)
            for member in members:
                if not pa.types.is_struct(column.type) or column.type.get_field_index(member) < 0:
                    column = None
                    break
                column = pc.struct_field(column, member)
    if column is None:
        raise KeyFieldError(
            f"{kind} column {name} is not among the columns {', '.join(batch.schema.names)}",
            hint=hint_of_case(name.partition(".")[0], batch.schema.names),
            column=name,
            found=tuple(batch.schema.names),
        )
    return single(column)


def _hudi_unit(column: pa.Array) -> pa.Array:
    """Seconds become milliseconds and nanoseconds microseconds: the units Avro has."""
    unit = {"s": "ms", "ms": "ms", "us": "us", "ns": "us"}[column.type.unit]
    return column.cast(pa.timestamp(unit, column.type.tz), safe=False)


def _sql_timestamp(column: pa.Array) -> pa.Array:
    """java.sql.Timestamp.toString at milliseconds: fraction without trailing zeros, at least one digit."""
    text = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.timestamp("ms")).cast(pa.string())
    stripped = pc.utf8_rtrim(text, "0")
    return pc.if_else(pc.ends_with(stripped, "."), pc.binary_join_element_wise(stripped, "0", ""), stripped)
