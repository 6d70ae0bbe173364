"""Schemas on their way between Arrow and Spark: the types that Spark takes back from Python, instants in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skep_table.write.input.conform import plain_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_arrow(schema: pa.Schema) -> pa.Schema:
    """The schema in the Arrow types that Spark takes back from Python."""
    return pa.schema([pa.field(field.name, _spark_arrow_type(field.type), field.nullable) for field in schema])


def _spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_spark_arrow_type(field.type))

    kind = plain_type(kind)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.int64() if pa.types.is_time64(kind) else pa.int32()
    if pa.types.is_fixed_size_binary(kind) or kind == pa.uuid():
        return pa.binary() if kind != pa.uuid() else pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, inner(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    return kind


def spark_type(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow columns; timestamps without a zone become TimestampNTZType."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def in_utc(schema: pa.Schema) -> pa.Schema:
    """The schema with UTC as the zone of each timestamp that has one, those in nested types included."""
    return pa.schema([field.with_type(_utc(field.type)) for field in schema])


def _utc(kind: pa.DataType) -> pa.DataType:
    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_utc(field.type))

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([inner(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, inner(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    return kind


def null_in_null(schema: pa.Schema) -> pa.Schema:
    """The schema where members of what may be null may be null: Spark's rows have nulls there, Arrow casts none."""
    return pa.schema([_null_in_null(field, within=False) for field in schema])


def _null_in_null(field: pa.Field, *, within: bool) -> pa.Field:
    """`within`: what has the field may be null."""
    kind, nullable = field.type, field.nullable or within
    if pa.types.is_struct(kind):
        kind = pa.struct([_null_in_null(kind.field(at), within=nullable) for at in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _null_in_null(kind.item_field, within=False))
    elif pa.types.is_list(kind):
        kind = pa.list_(_null_in_null(kind.value_field, within=False))
    return field.with_type(kind).with_nullable(nullable)
