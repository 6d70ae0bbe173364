"""Filters that Spark hands to a source, as a predicate over the table's columns.

A predicate may be weaker than the filters: Spark filters the rows that it gets once more.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

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
)

_COMPARISONS: Final = {
    "EqualTo": "equal",
    "EqualNullSafe": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
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


def predicate_of(filters: Sequence[Any], columns: pa.Schema) -> Predicate | None:
    """What all rows that pass `filters`, objects of Spark's `sources.Filter`, fulfil; None when that is nothing."""
    known = [found for each in filters if (found := _condition(each, columns)) is not None]
    if not known:
        return None
    text = " AND ".join(str(each.toString()) for each in filters)
    return Predicate(known[0] if len(known) == 1 else And(tuple(known)), text)


def _condition(filter: Any, columns: pa.Schema) -> Condition | None:
    kind = str(filter.getClass().getSimpleName())
    if kind in ("And", "Or"):
        parts = [_condition(side, columns) for side in (filter.left(), filter.right())]
        found = tuple(part for part in parts if part is not None)
        if kind == "Or":
            return Or(found) if len(found) == len(parts) else None
        return And(found) if len(found) > 1 else next(iter(found), None)
    if kind not in _COMPARISONS and kind not in _PATTERNS and kind not in ("In", "IsNull", "IsNotNull"):
        return None
    column = _column(str(filter.attribute()), columns)
    if column is None:
        return None
    if kind in ("IsNull", "IsNotNull"):
        return IsNull(column, negated=kind == "IsNotNull")
    if kind == "In":
        given = filter.values()
        values = None if len(given) > _MOST_VALUES else list(_scalars(given, column.type))
        if values is None or len(values) < len(given):
            return None
        return IsIn(column, pa.array([value.as_py() for value in values], column.type))
    for value in _scalars([filter.value()], column.type):
        if kind in _PATTERNS:
            pattern, begins = _PATTERNS[kind]
            return Matches(column, pattern.format(re.escape(value.as_py())), value.as_py() if begins else "")
        return Comparison(_COMPARISONS[kind], column, Literal(value))
    return None


def _column(name: str, columns: pa.Schema) -> ColumnRef | None:
    """A top-level column; names of members and quoted names are not looked for."""
    at = columns.get_field_index(name)
    if at < 0 or "." in name or "`" in name:
        return None
    kind = columns.field(at).type
    return ColumnRef((name,), kind) if _python_of(kind) is not None else None


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
    """What the values of a type are in Python; None for those that compare in Spark in another way than in Arrow."""
    t = pa.types
    if t.is_boolean(kind):
        return bool
    if t.is_int32(kind) or t.is_int64(kind):
        return int
    if t.is_string(kind):
        return str
    if t.is_date32(kind):
        return dt.date
    if t.is_decimal(kind):
        return Decimal
    return dt.datetime if t.is_timestamp(kind) and kind.unit == "us" else None


def _is_recent(day: dt.date) -> bool:
    return (day.date() if isinstance(day, dt.datetime) else day) >= _FIRST_DAY


def _from_java(value: Any) -> object:
    """Dates and times; of other objects of Java, the objects. Py4J has made Python's of all that it knows."""
    if not hasattr(value, "getClass"):
        return value
    name = str(value.getClass().getName())
    try:
        if name == "java.sql.Date":
            return dt.date.fromisoformat(str(value.toLocalDate().toString()))
        if name == "java.time.LocalDate":
            return dt.date.fromisoformat(str(value.toString()))
        if name in ("java.sql.Timestamp", "java.time.Instant"):
            instant = value.toInstant() if name == "java.sql.Timestamp" else value
            return _EPOCH + dt.timedelta(seconds=instant.getEpochSecond(), microseconds=instant.getNano() // 1000)
        if name == "java.time.LocalDateTime":
            return dt.datetime.fromisoformat(f"{value.toLocalDate()}T{value.toLocalTime().toString()}")
    except (ValueError, OverflowError):  # not in the years that Python has
        pass
    return value
