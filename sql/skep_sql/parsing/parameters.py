"""Parameters of a statement: `:name` and `?` become constants of the types of their values, before it is parsed.

A marker is a word of the statement, so one within a text, a comment or a quoted name is none. A constant ends where it
ends, whatever the value: a text keeps letters, digits and spaces, everything else of ASCII is written by its code.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, pairwise
from typing import Final

from sqlglot.errors import SqlglotError

from skep_format.errors import InputError
from skep_sql.parsing.words import words_of
from skep_table.query.filters.text import parse_reason

_CODED: Final = re.compile(r"[\x00-\x1f!-/:-@\[-^`{-\x7f]")
_JOINED: Final = re.compile(r"[\w`'\")\]]")  # before a colon: it is within a type or a path
_MOST_DIGITS: Final = 38


def with_parameters(text: str, parameters: Mapping[str, object] | Sequence[object], *, all_used: bool = True) -> str:
    """The statement with a constant in place of each marker; a sequence has the values of `?` in turn.

    InputError for a marker without a value, a value that no constant stands for, and, unless `all_used` is False as for
    Spark, a value without a marker.
    """
    named = isinstance(parameters, Mapping)
    values = parameters if isinstance(parameters, Mapping) else dict(enumerate(parameters))
    found: list[str] = []
    used: set[object] = set()
    at = 0
    for start, end, name in _markers(text):
        if named is (name is None):
            mixed = "values are given by name, and the statement has ?" if named else "values are given for ? only"
            raise InputError(f"{mixed}: {text[start:end]!r} has none", found=text[start:end])
        key: object = len(used) if name is None else name
        if key not in values:
            marker = f":{name}" if named else f"? number {len(used) + 1}"
            given = ", ".join(map(str, values)) if named else len(values)
            raise InputError(f"there is no value for {marker}; given: {given or 'none'}", found=marker)
        used.add(key)
        found += [text[at:start], _constant(values[key], key)]  # type: ignore[index]
        at = end
    unused = [key for key in values if key not in used]
    if unused and all_used:
        what = f"no :{unused[0]}" if named else f"{len(used)} times ?"
        raise InputError(f"the statement has {what}; values are given: {len(values)}", found=unused[0])
    return "".join([*found, text[at:]])


def _markers(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Where markers are, and the names in them; None of `?`."""
    try:
        words = list(words_of(text))
    except SqlglotError as error:
        raise InputError(f"the statement can't be parsed: {parse_reason(error)}", found=text) from error
    if words and words[0].text.upper() == "SET":
        raise InputError("SET takes no parameters: a setting is text as it is written", found=text)
    for word, follower in pairwise(chain(words, [None])):
        if word is None or word.is_string or word.is_quoted:
            continue
        if word.text.startswith("?"):  # it is joined to a cast behind it
            yield word.start, word.start + 1, None
        if word.text != ":" or follower is None or follower.is_string or follower.is_quoted:
            continue
        if follower.start == word.end + 1 and not _JOINED.match(text[word.start - 1 : word.start]):
            yield word.start, follower.end + 1, text[follower.start : follower.end + 1]


def _constant(value: object, key: object) -> str:
    value = getattr(value, "item", lambda: value)()  # of numpy
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            if -(2**63) <= value < 2**63:
                return f"{'' if value >= 0 else ' '}{int(value)}"  # behind a minus it would begin a comment
        case float():
            if math.isfinite(value):
                return f"{'' if math.copysign(1, value) > 0 else ' '}{float(value)!r}D"
            return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
        case Decimal():
            text = format(value, "f")
            if value.is_finite() and sum(map(str.isdigit, text)) <= _MOST_DIGITS:
                return f"{' ' if text.startswith('-') else ''}{text}BD"
        case str() | uuid.UUID():
            return _text(str(value), key)
        case bytes() | bytearray() | memoryview():
            return f"X'{bytes(value).hex().upper()}'"
        case dt.datetime():
            if value != value:  # pandas' NaT
                return "NULL"
            zone = "" if value.tzinfo is None else "Z"
            moment = value if value.tzinfo is None else value.astimezone(dt.timezone.utc)
            kind = "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
            return f"{kind}'{moment.replace(tzinfo=None).isoformat(' ', 'microseconds')}{zone}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
    raise InputError(
        f"parameter {key}: {value!r} is no constant of SQL",
        hint="a list takes one parameter for each value: IN (?, ?)" if isinstance(value, (list, tuple)) else None,
        found=type(value).__name__,
        expected="None, bool, int, float, Decimal, str, bytes, date or datetime",
    )


def _text(value: str, key: object) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"parameter {key}: {value!r} is no text of Unicode", found=value) from error
    return "'" + _CODED.sub(lambda found: f"\\u{ord(found[0]):04x}", value) + "'"
