"""Schemas on their way between Arrow and Spark: the types that Spark takes back from Python, instants in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skep_table.write.input.conform import plain_type, with_inner

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_arrow(schema: pa.Schema) -> pa.Schema:
    """The schema in the Arrow types that Spark takes back from Python."""
    return pa.schema([pa.field(field.name, _spark_arrow_type(field.type), field.nullable) for field in schema])


def _spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    kind = plain_type(kind)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.int64() if pa.types.is_time64(kind) else pa.int32()
    if pa.types.is_fixed_size_binary(kind) or kind == pa.uuid():
        return pa.binary() if kind != pa.uuid() else pa.string()
    return with_inner(kind, lambda field: field.with_type(_spark_arrow_type(field.type)))


def spark_type(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow columns; timestamps without a zone become TimestampNTZType."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def in_utc(schema: pa.Schema) -> pa.Schema:
    """The schema with UTC as the zone of each timestamp that has one, those in nested types included."""
    return pa.schema(list(map(_utc, schema)))


def _utc(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return field.with_type(pa.timestamp(kind.unit, "UTC"))
    return field.with_type(with_inner(kind, _utc))


def null_in_null(schema: pa.Schema) -> pa.Schema:
    """The schema where members of what may be null may be null: Spark's rows have nulls there, Arrow casts none."""
    return pa.schema([_null_in_null(field, within=False) for field in schema])


def _null_in_null(field: pa.Field, *, within: bool) -> pa.Field:
    """`within`: what has the field may be null."""
    nullable = field.nullable or within
    of_struct = nullable and pa.types.is_struct(field.type)
    kind = with_inner(field.type, lambda inner: _null_in_null(inner, within=of_struct))
    return field.with_type(kind).with_nullable(nullable)
