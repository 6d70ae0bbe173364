"""Answers of DataFusion to translated queries over tables in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from benchmarks.engine_choice.answers import LEFT
from benchmarks.engine_choice.datafusion.expressions import DIVIDE, DiffersError
from benchmarks.engine_choice.datafusion.queries import engine_query
from benchmarks.engine_choice.datafusion.spark_types import spark_type
from skep_format.schema.untyped import untyped

SETTINGS = {
    "datafusion.execution.time_zone": "UTC",
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
}


class LeftToSparkError(Exception):
    """A query that DataFusion may answer in another way than Spark, or can't answer."""


def rows(query: exp.Query, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The answer in the names and types of Spark's."""
    try:
        made = engine_query(query, {name: table.schema for name, table in tables.items()})
    except DiffersError as error:
        raise LeftToSparkError(f"{LEFT}{error}") from error
    context = datafusion.SessionContext(datafusion.SessionConfig(dict(SETTINGS)))
    context.enable_spark_functions()
    for digits in set(re.findall(rf"{DIVIDE}((?:_\d+){{6}})", made.text)):
        context.register_udf(division(*map(int, digits.split("_")[1:])))
    for name, table in tables.items():
        schema = pa.schema([field.with_type(spark_type(field.type) or field.type) for field in table.schema])
        context.register_record_batches(name, [in_types_of(schema, table).to_batches()])
    return in_types_of(made.schema, context.sql(made.text).to_arrow_table())


def in_types_of(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Columns by their places, in the types of a schema."""
    columns = [
        column if column.type == field.type else untyped(column.combine_chunks(), field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def division(p1: int, s1: int, p2: int, s2: int, precision: int, scale: int) -> Any:
    """Decimals divided as by Spark: rounded half up to the digits of the type, null where the divisor is zero."""
    one, other, kind = pa.decimal128(p1, s1), pa.decimal128(p2, s2), pa.decimal128(precision, scale)

    def divide(left: pa.Array, right: pa.Array) -> pa.Array:
        divisor = pc.if_else(pc.equal(right, pa.scalar(0, other)), None, right).cast(pa.decimal256(p2, s2))
        quotient = pc.divide(left.cast(pa.decimal256(p1 + 1, s1 + 1)), divisor)
        return pc.round(quotient, scale, "half_towards_infinity").cast(pa.decimal256(76, scale)).cast(kind)

    return datafusion.udf(divide, [one, other], kind, "immutable", f"{DIVIDE}_{p1}_{s1}_{p2}_{s2}_{precision}_{scale}")
