"""Filters that Spark hands to a source, as a predicate over the table's columns.

A predicate may be weaker than the filters: Spark filters the rows that it gets once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from skep_table.query.predicate import And, Column, Comparison, Condition, IsIn, IsNull, Literal, Or, Predicate

_COMPARISONS: Final = {
    "EqualTo": "equal",
    "EqualNullSafe": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_MOST_VALUES: Final = 1000  # each is one call to the JVM
_KINDS: Final[tuple[tuple[Any, type], ...]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_int32, int),
    (pa.types.is_int64, int),
    (pa.types.is_string, str),
)
"""Types whose values compare in Spark as they do in Arrow, and what they are in Python."""


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
    if kind not in _COMPARISONS and kind not in ("In", "IsNull", "IsNotNull"):
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
        return Comparison(_COMPARISONS[kind], column, Literal(value))
    return None


def _column(name: str, columns: pa.Schema) -> Column | None:
    """A top-level column; names of members and quoted names are not looked for."""
    at = columns.get_field_index(name)
    if at < 0 or "." in name or "`" in name:
        return None
    kind = columns.field(at).type
    return Column((name,), kind) if any(fits(kind) for fits, _ in _KINDS) else None


def _scalars(values: Any, kind: pa.DataType) -> Iterator[pa.Scalar]:
    """The values that are of the column's type in Python, too."""
    expected = next(python for fits, python in _KINDS if fits(kind))
    for value in values:
        if type(value) is expected:
            yield pa.scalar(value, kind)
