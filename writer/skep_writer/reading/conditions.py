"""Conditions of a read as Spark's columns, where Spark finds them true for the same rows as skep does."""

from __future__ import annotations

import re
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skep_format.schema.types import COMMIT_TIME
from skep_table.query.filters.predicate import (
    And,
    ColumnRef,
    Comparison,
    Condition,
    IsIn,
    IsNull,
    Literal,
    Matches,
    Or,
    Predicate,
    Value,
)
from skep_table.slices.commit_times import CommitTimes
from skep_writer.edge import quoted

if TYPE_CHECKING:
    from pyspark.sql import ColumnRef as SparkColumn

_OPERATORS = {
    "equal": "__eq__",
    "not_equal": "__ne__",
    "less": "__lt__",
    "less_equal": "__le__",
    "greater": "__gt__",
    "greater_equal": "__ge__",
}


def as_column(predicate: Predicate) -> SparkColumn | None:
    """The condition over columns of these names; None where Spark might answer otherwise.

    That is so of casts, arithmetic and functions, of patterns that are not a prefix, and of floats: for Spark, NaN is a
    great number.
    """
    return _condition(predicate.condition)


def of_commits(times: CommitTimes) -> SparkColumn:
    """Whether a row was written by one of these commits. The bounds spare row groups."""
    from pyspark.sql import functions

    column = functions.col(COMMIT_TIME)
    named = sorted(map(str, times.named))
    found = functions.lit(False)
    if named:
        found = column.isin(named) & (column >= named[0]) & (column <= named[-1])
    if times.after.is_before(times.before):
        found = found | ((column > str(times.after)) & (column < str(times.before)))
    return found


def _condition(node: Condition) -> SparkColumn | None:
    if isinstance(node, (And, Or)):
        parts = [_condition(part) for part in node.parts]
        known = [part for part in parts if part is not None]
        return reduce(and_ if isinstance(node, And) else or_, known) if len(known) == len(parts) else None
    if isinstance(node, Comparison):
        left, right = _value(node.left), _value(node.right)
        if left is None or right is None or node.left.type != node.right.type:
            return None
        return getattr(left, _OPERATORS[node.function])(right)
    if isinstance(node, IsNull):
        column = _column(node.argument)
        return None if column is None else column.isNotNull() if node.negated else column.isNull()
    if isinstance(node, IsIn):
        return _is_in(node)
    if isinstance(node, Matches):
        column = _value(node.argument)
        if column is None or node.regex != rf"(?s)\A{re.escape(node.prefix)}.*\z":
            return None
        return ~column.startswith(node.prefix) if node.negated else column.startswith(node.prefix)
    if isinstance(node.argument, ColumnRef) and pa.types.is_boolean(node.argument.type):
        column = _column(node.argument)
        return None if column is None else ~column if node.negated else column
    return None


def _is_in(node: IsIn) -> SparkColumn | None:
    from pyspark.sql import functions

    column = _value(node.argument)
    values = [_literal(value) for value in node.values]
    if column is None or node.values.type != node.argument.type or not values or any(v is None for v in values):
        return None
    found = column.isin(values)
    if node.or_null:
        found = found | functions.lit(None).cast("boolean")
    return ~found if node.negated else found


def _value(node: Value) -> SparkColumn | None:
    if isinstance(node, ColumnRef):
        return None if pa.types.is_floating(node.type) else _column(node)
    return _literal(node.value) if isinstance(node, Literal) else None


def _column(node: Value) -> SparkColumn | None:
    from pyspark.sql import functions

    return functions.col(".".join(map(quoted, node.path))) if isinstance(node, ColumnRef) else None


def _literal(value: pa.Scalar) -> SparkColumn | None:
    """A constant of exactly the column's type."""
    from pyspark.sql import functions

    kind: pa.DataType = value.type
    t = pa.types
    plain: Any = value.as_py() if not t.is_timestamp(kind) else None
    if t.is_boolean(kind) or t.is_string(kind):
        return functions.lit(plain)
    if t.is_int32(kind) or t.is_int64(kind):
        return functions.lit(plain).cast("int" if t.is_int32(kind) else "bigint")
    if t.is_decimal(kind) and kind.precision <= 38:
        return functions.lit(plain).cast(f"decimal({kind.precision},{kind.scale})")
    if t.is_date32(kind):
        return functions.date_from_unix_date(functions.lit(value.cast(pa.int32()).as_py()))
    if t.is_timestamp(kind) and kind.tz is not None and value.is_valid:
        return functions.timestamp_micros(functions.lit(value.cast(pa.timestamp("us", kind.tz)).value).cast("bigint"))
    return None
