"""Conditions on their way to Spark and back: those of a read as Spark's columns, where both find them true for the same
rows, and filters that Spark hands to a source as a predicate over the table's columns.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skep_format.schema.arrow import from_arrow_type
from skep_format.schema.types import COMMIT_TIME, quoted, type_text
from skep_table.query.filters import predicate as predicates
from skep_table.slices.context import CommitTimes

if TYPE_CHECKING:
    from pyspark.sql import Column

_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "equal": eq,
    "not_equal": ne,
    "less": lt,
    "less_equal": le,
    "greater": gt,
    "greater_equal": ge,
}
_COMPARISONS: Final = {
    "EqualTo": "equal",
    "EqualNullSafe": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_PYTHON: Final[dict[pa.DataType, type]] = {
    **dict.fromkeys((pa.float16(), pa.float32(), pa.float64()), float),
    **dict.fromkeys((pa.int32(), pa.int64()), int),
    pa.bool_(): bool,
    pa.string(): str,
    pa.date32(): dt.date,
}
_MOST_VALUES: Final = 1000  # each is one call to the JVM
# Texts as regular expressions over the whole value, as LIKE has them, and whether all matches begin with the text.
_PATTERNS: Final = {
    "StringStartsWith": (r"(?s)\A{}.*\z", True),
    "StringEndsWith": (r"(?s)\A.*{}\z", False),
    "StringContains": (r"(?s)\A.*{}.*\z", False),
}
# Spark hands ancient dates and times over in the calendar of Java's old classes.
_FIRST_DAY: Final = dt.date(1900, 1, 2)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def on_spark(predicate: predicates.Predicate) -> Column | None:
    """The condition over columns of these names, of an implied one what Spark takes of it; None where Spark might
    answer otherwise.

    That is so of arithmetic, of functions, and of casts of dates and times, which depend on the session's time zone.
    And of floats: Spark's reader leaves out row groups by statistics that have no NaN.
    """
    return None if predicate.may_differ else _condition(predicate.condition, predicate.is_implied)


def of_commits(times: CommitTimes) -> Column:
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


def _condition(node: predicates.Condition, weaker: bool) -> Column | None:
    from pyspark.sql import functions

    if isinstance(node, (predicates.And, predicates.Or)):
        parts = [_condition(part, weaker) for part in node.parts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) and not (weaker and known and isinstance(node, predicates.And)):
            return None
        return reduce(and_ if isinstance(node, predicates.And) else or_, known)
    if isinstance(node, predicates.Comparison):
        left, right = _value(node.left), _value(node.right)
        known_both = left is not None and right is not None and node.left.type == node.right.type
        return _OPERATORS[node.function](left, right) if known_both else None
    if isinstance(node, predicates.IsNull):
        found = _column(node.argument)
        return found if found is None else found.isNotNull() if node.negated else found.isNull()
    found = _value(node.argument)
    if found is None:
        return None
    if isinstance(node, predicates.IsIn):
        values = [_literal(value) for value in node.values]
        if not values or node.values.type != node.argument.type or any(each is None for each in values):
            return None
        found = found.isin(values)
        found = found | functions.lit(None).cast("boolean") if node.or_null else found
    elif isinstance(node, predicates.Matches):
        begins = node.regex == rf"(?s)\A{re.escape(node.prefix)}.*\z"
        found = found.startswith(node.prefix) if begins else found.rlike(node.regex)
    return ~found if node.negated else found


def _column(node: predicates.Value) -> Column | None:
    from pyspark.sql import functions

    return functions.col(".".join(map(quoted, node.path))) if isinstance(node, predicates.ColumnRef) else None


def _value(node: predicates.Value) -> Column | None:
    if isinstance(node, predicates.Literal):
        return _literal(node.value)
    if isinstance(node, predicates.Cast) and _python_of(node.type) in (int, str, bool):
        inner = _value(node.argument)
        return None if inner is None else inner.cast(_type(node.type))
    return None if pa.types.is_floating(node.type) else _column(node)


def _type(kind: pa.DataType) -> str:
    return type_text(from_arrow_type(kind, "a condition"))


def _literal(value: pa.Scalar) -> Column | None:
    """A constant of exactly the column's type."""
    from pyspark.sql import functions

    kind, t = value.type, pa.types
    if t.is_date32(kind):
        return functions.date_from_unix_date(functions.lit(value.cast(pa.int32()).as_py()))
    if t.is_timestamp(kind):
        if kind.tz is None or not value.is_valid:
            return None
        return functions.timestamp_micros(functions.lit(value.cast(pa.timestamp("us", kind.tz)).value).cast("bigint"))
    if _python_of(kind) is None or t.is_decimal256(kind):
        return None
    return functions.lit(value.as_py()).cast(_type(kind))


def from_spark(filters: Sequence[Any], columns: pa.Schema) -> predicates.Predicate | None:
    """What all rows that pass `filters`, objects of Spark's `sources.Filter`, fulfil; None when that is nothing."""
    known = [found for each in filters if (found := _of_filter(each, columns)) is not None]
    if not known:
        return None
    text = " AND ".join(str(each.toString()) for each in filters)
    return predicates.Predicate(known[0] if len(known) == 1 else predicates.And(tuple(known)), text)


def _of_filter(filter: Any, columns: pa.Schema) -> predicates.Condition | None:
    kind = str(filter.getClass().getSimpleName())
    if kind in ("And", "Or"):
        parts = [_of_filter(side, columns) for side in (filter.left(), filter.right())]
        found = tuple(part for part in parts if part is not None)
        if kind == "Or":
            return predicates.Or(found) if len(found) == len(parts) else None
        return predicates.And(found) if len(found) > 1 else next(iter(found), None)
    if kind not in _COMPARISONS and kind not in _PATTERNS and kind not in ("In", "IsNull", "IsNotNull"):
        return None
    column = _attribute(str(filter.attribute()), columns)
    if column is None:
        return None
    if kind in ("IsNull", "IsNotNull"):
        return predicates.IsNull(column, negated=kind == "IsNotNull")
    if kind == "In":
        given = filter.values()
        values = None if len(given) > _MOST_VALUES else list(_scalars(given, column.type))
        if values is None or len(values) < len(given) or any(map(predicates.is_nan, map(predicates.Literal, values))):
            return None
        return predicates.IsIn(
            column, predicates.equal_to(pa.array([value.as_py() for value in values], column.type), column.type)
        )
    for value in _scalars([filter.value()], column.type):
        if kind in _PATTERNS:
            pattern, begins = _PATTERNS[kind]
            return predicates.Matches(column, pattern.format(re.escape(value.as_py())), value.as_py() if begins else "")
        return predicates.Comparison(_COMPARISONS[kind], column, predicates.Literal(value))
    return None


def _attribute(name: str, columns: pa.Schema) -> predicates.ColumnRef | None:
    """A top-level column; names of members and quoted names are not looked for."""
    at = columns.get_field_index(name)
    if at < 0 or "." in name or "`" in name:
        return None
    kind = columns.field(at).type
    return predicates.ColumnRef((name,), kind) if _python_of(kind) is not None else None


def _scalars(values: Any, kind: pa.DataType) -> Iterator[pa.Scalar]:
    """The values that are of the column's type in Python, too."""
    expected = _python_of(kind)
    for given in values:
        value = _from_java(given)
        if type(value) is not expected or (isinstance(value, dt.date) and not _is_recent(value)):
            continue
        with suppress(pa.ArrowException):  # a decimal of more digits than the column has
            yield pa.scalar(value, kind)


def _python_of(kind: pa.DataType) -> type | None:
    """What the values of a type are in Python; None for types that are left to Spark."""
    if kind in _PYTHON:
        return _PYTHON[kind]
    if pa.types.is_decimal(kind):
        return Decimal
    return dt.datetime if pa.types.is_timestamp(kind) and kind.unit == "us" else None


def _is_recent(day: dt.date) -> bool:
    return (day.date() if isinstance(day, dt.datetime) else day) >= _FIRST_DAY


def _from_java(value: Any) -> object:
    """Dates and times; of other objects of Java, the objects. Py4J has made Python's of all that it knows."""
    if not hasattr(value, "getClass"):
        return value
    name = str(value.getClass().getName())
    try:
        if name in ("java.sql.Date", "java.time.LocalDate"):
            day = value.toLocalDate() if name == "java.sql.Date" else value
            return dt.date.fromisoformat(str(day.toString()))
        if name in ("java.sql.Timestamp", "java.time.Instant"):
            instant = value.toInstant() if name == "java.sql.Timestamp" else value
            return _EPOCH + dt.timedelta(seconds=instant.getEpochSecond(), microseconds=instant.getNano() // 1000)
        if name == "java.time.LocalDateTime":
            return dt.datetime.fromisoformat(f"{value.toLocalDate()}T{value.toLocalTime().toString()}")
    except (ValueError, OverflowError):  # not in the years that Python has
        pass
    return value
