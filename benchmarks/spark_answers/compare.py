"""Whether two engines gave one answer: names, types and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from benchmarks.spark_answers.answers import Answer

DIGITS = 12  # to which sums of floats are the same in any order
LONGEST = 160


def plain(kind: pa.DataType) -> Any:
    """A type without the names and nulls of what is in it, nor how long its values may be."""
    if pa.types.is_struct(kind):
        return [(field.name, plain(field.type)) for field in kind]
    if pa.types.is_map(kind):
        return "map", plain(kind.key_type), plain(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def counted(table: pa.Table, query: str, digits: int | None = DIGITS) -> Any:
    """The rows, in order where the query orders them; floats to so many digits, or to the last."""
    listed = [tuple(spelt(value, digits) for value in row.values()) for row in _numbered(table).to_pylist()]
    is_ordered = " order by " in query.lower().rpartition(")")[2]
    return listed if is_ordered else Counter(listed)


def spelt(value: Any, digits: int | None) -> str:
    """A value as text."""
    if isinstance(value, float):
        return repr(value) if digits is None else f"{value:.{digits}g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(spelt(each, digits) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {spelt(each, digits)}' for name, each in value.items())}}}"
    return repr(value)


def _numbered(table: pa.Table) -> pa.Table:
    """Names of an answer may be there twice. Instants are in UTC, which has one name."""
    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[f"c{at}" for at in range(len(columns))])


class Verdict(str, Enum):
    """What an engine's answer is beside Spark's."""

    EQUAL = "equal"
    DIGITS = "equal to 12 digits"
    NAMES = "equal but for names of columns"
    WRONG = "wrong"
    REFUSED = "refused"
    BOTH_REFUSE = "an error in both"
    CHANCE = "Spark's own answer differs from time to time"


@dataclass(frozen=True)
class Judged:
    """A query, what the engine's answer is, and what differs."""

    query: str
    verdict: Verdict
    why: str = ""


def judged(query: str, found: Answer, wanted: Answer, again: Answer | None = None) -> Judged:
    """The engine's answer beside Spark's, which is asked twice for examples that may be of chance or of the time."""
    if again is not None and not same(query, wanted, again):
        return Judged(query, Verdict.CHANCE)
    if found.rows is None:
        return Judged(query, Verdict.REFUSED if wanted.rows is not None else Verdict.BOTH_REFUSE, short(found.error))
    if wanted.rows is None:
        return Judged(query, Verdict.WRONG, f"Spark: {short(wanted.error)}; found {short(str(_values(found.rows)))}")
    types, wanted_types = ([_typed(kind) for kind in each.rows.schema.types] for each in (found, wanted))
    if types != wanted_types:
        return Judged(query, Verdict.WRONG, f"types: {short(found.rows.schema.types)}, Spark {short(wanted_types)}")
    exact = _text(found, query) == _text(wanted, query)
    if exact or _text(found, query, DIGITS) == _text(wanted, query, DIGITS):
        names, wanted_names = found.rows.schema.names, wanted.rows.schema.names
        if names != wanted_names:
            return Judged(query, Verdict.NAMES, f"names: {short(names)}, Spark {short(wanted_names)}")
        return Judged(query, Verdict.EQUAL if exact else Verdict.DIGITS)
    ours, theirs = _values(found.rows), _values(wanted.rows)
    at = next((n for n, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), 0)
    shown = f"{short(str(ours[at : at + 1]))}, Spark {short(str(theirs[at : at + 1]))}"
    return Judged(query, Verdict.WRONG, f"rows: {len(ours)} of {len(theirs)}: {shown}")


def same(query: str, one: Answer, other: Answer) -> bool:
    """Whether Spark gave one answer when it was asked twice."""
    return bool(_text(one, query) == _text(other, query))


def short(text: object) -> str:
    """On one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _typed(kind: pa.DataType) -> Any:
    found = plain(kind)
    if isinstance(found, pa.DataType) and pa.types.is_timestamp(found) and found.tz:
        return pa.timestamp(found.unit, "UTC")
    return found


def _text(answer: Answer, query: str, digits: int | None = None) -> Any:
    if answer.rows is None:
        return answer.error.partition(":")[0]
    try:
        return counted(answer.rows, query, digits)
    except (ValueError, OverflowError):  # times that Python has no value for
        return [column.to_string(window=10_000) for column in answer.rows.columns]


def _values(rows: pa.Table) -> list[Any]:
    try:
        return [tuple(row.values()) for row in _numbered(rows).to_pylist()]
    except (ValueError, OverflowError):
        return [str(column) for column in rows.columns]
