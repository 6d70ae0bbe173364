"""Constants of queries, as values of Spark's types."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from decimal import Decimal
from typing import Final

import pyarrow as pa
from sqlglot import exp

from skep_sql.parsing.statements import Node
from skep_sql.translation.spark_types import UTC, cast, decimal, is_whole, sql_name
from skep_sql.translation.values import DiffersError, EngineValue, check_only, differs, literal_text

t = pa.types
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f\x7f]*')
UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def number(node: Node, text: str) -> EngineValue:
    """A number as it is written, of the type that Spark gives it. DiffersError for one without a plain type."""
    digits = text.removeprefix("-")
    if digits.isdecimal():
        for kind, suffix in ((pa.int32(), ""), (pa.int64(), "L")):
            bound = 1 << (kind.bit_width - 1)
            if -bound <= int(text) < bound:
                shown = str(int(text))
                sql = cast(literal_text(shown), kind) if shown[0] == "-" else f"{shown}{suffix}"
                return EngineValue(sql, kind, shown, shown)
        raise differs(node)
    if re.fullmatch(r"\d*\.\d+|\d+\.", digits):
        number = Decimal(text).as_tuple()
        scale = -int(number.exponent)
        precision = max(len(number.digits), scale)
        found = decimal(precision, scale)
        if found is not None:
            shown = str(Decimal(text))
            return EngineValue(f"CAST('{shown}' AS {sql_name(found)})", found, shown, shown)
        raise differs(node)
    if re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d+", digits):
        return EngineValue(cast(literal_text(text), pa.float64()), pa.float64(), None, text)
    raise differs(node)


def as_date(value: EngineValue) -> EngineValue:
    """A text that is a date, as that date."""
    if value.type != pa.string():
        return value
    if value.literal is None or not _is_day(value.literal):
        raise DiffersError(f"{value.text} (compared with a date)")
    return EngineValue(cast(literal_text(value.literal), pa.date32()), pa.date32(), None)


def as_number(value: EngineValue) -> EngineValue:
    """A text that is a whole number, as that number, as Spark compares it with one."""
    if value.type == pa.string() and value.literal is not None and re.fullmatch(r"-?\d{1,9}", value.literal):
        return EngineValue(str(int(value.literal)), pa.int32(), value.name, value.literal)
    return value


def as_time(value: EngineValue) -> EngineValue:
    """A text that is a date or a time of day in UTC, as that time."""
    if value.type == pa.string() and value.literal is not None:
        found = cast_text(value.literal, UTC)
        if found is not None:
            return replace(found, name=value.literal)
    if value.type == pa.string():
        raise DiffersError(f"{value.text} (compared with a time)")
    return value


def _is_day(text: str, pattern: re.Pattern[str] = _DATE) -> bool:
    """Whether it is a day as Spark writes it, or a time by the pattern of one."""
    try:
        return bool(pattern.fullmatch(text) and dt.datetime.fromisoformat(text[:19]))
    except ValueError:
        return False


def cast_text(text: str, kind: pa.DataType) -> EngineValue | None:
    """A constant text as a value of another type; None where that is not plain."""
    if t.is_date(kind) and _is_day(text):
        return EngineValue(cast(literal_text(text), kind), kind, f"DATE '{text}'")
    if t.is_timestamp(kind) and (_is_day(text) or _is_day(text, _TIME)):
        whole = text if _is_day(text, _TIME) else f"{text} 00:00:00"
        word = "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
        shown = whole.rstrip("0").rstrip(".") if "." in whole else whole
        return EngineValue(cast(literal_text(whole), kind), kind, f"{word} '{shown}'")
    if kind == pa.string() and PLAIN_TEXT.fullmatch(text):
        return EngineValue(literal_text(text), kind, text)
    if is_whole(kind) and re.fullmatch(r"-?\d{1,18}", text) and abs(int(text)) < 1 << (kind.bit_width - 1):
        return EngineValue(cast(literal_text(str(int(text))), kind), kind, f"CAST({text} AS {sql_name(kind).upper()})")
    if t.is_decimal(kind) and re.fullmatch(r"-?\d+(\.\d+)?", text):
        scale = len(text.partition(".")[2])
        if scale <= kind.scale and len(text.lstrip("-0").partition(".")[0]) <= kind.precision - kind.scale:
            name = f"CAST({text} AS {sql_name(kind).upper()})"
            return EngineValue(cast(literal_text(text), kind), kind, name)
    return None


def interval_of(node: Node) -> tuple[int, str]:
    """A whole number of one unit."""
    check_only(node, "this", "unit")
    unit = node.args.get("unit")
    text = str(node.this.this) if isinstance(node.this, exp.Literal) else ""
    if unit is None:
        text, _, word = text.strip().partition(" ")
    else:
        word = unit.name if isinstance(unit, exp.Var) else ""
    word = word.strip().lower().removesuffix("s")
    if not re.fullmatch(r"-?\d{1,9}", text) or word not in UNITS:
        raise differs(node)
    return int(text), word
