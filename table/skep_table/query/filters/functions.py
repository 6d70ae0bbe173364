"""Calls of Spark's functions in a filter, by the names and options of expressions (`skep_format.expressions`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark

Node = Any  # sqlglot's nodes: their base class has different names in different releases


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function, its options by Hudi's names, and the node of its argument."""

    function: str
    argument: Node
    options: Mapping[str, str] = field(default_factory=dict)


def function_call(node: Node) -> FunctionCall | None:
    """The call that a node is; None for a function, or a form of it, that no expression has."""
    read = _CALLS.get(type(node))
    return None if read is None else read(node)


def _plain(function: str) -> Callable[[Node], FunctionCall | None]:
    return lambda node: FunctionCall(function, node.this) if _given(node) == {"this"} else None


def _of_day(function: str) -> Callable[[Node], FunctionCall | None]:
    """sqlglot puts a conversion to a date around the argument."""

    def read(node: Node) -> FunctionCall | None:
        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate):
            inner = inner.this if _given(inner) <= {"this", "safe"} else None
        return FunctionCall(function, inner) if inner is not None and _given(node) == {"this"} else None

    return read


def _trim(node: Node) -> FunctionCall | None:
    position, trimmed = node.args.get("position"), node.args.get("expression")
    name = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(position)
    text = _text(trimmed) if trimmed is not None else " "
    if name is None or not text or not _given(node) <= {"this", "position", "expression"}:
        return None
    return FunctionCall(name, node.this, {"trimString": text})


def _substring(node: Node) -> FunctionCall | None:
    start, length = (_signed(node.args.get(name)) for name in ("start", "length"))
    if start is None or length is None or _given(node) != {"this", "start", "length"}:
        return None
    return FunctionCall("substring", node.this, {"pos": start, "len": length})


def format_of(node: Node) -> str:
    """The pattern of dates or times that a call has: the parser has turned it into another form."""
    text = str(Spark.Generator(dialect="spark").format_time(node))
    return text[1:-1].replace("\\'", "'")


def _whole_seconds(node: Node) -> FunctionCall | None:
    """By a format only texts are read, and no expression is of them."""
    return FunctionCall("unix_timestamp", node.this) if _given(node) == {"this", "format"} else None


def _formatted(function: str, inner: type[Any] | None) -> Callable[[Node], FunctionCall | None]:
    def read(node: Node) -> FunctionCall | None:
        argument, given = node.this, node.args.get("format")
        if inner is not None and isinstance(argument, inner):
            argument = argument.this
        if _text(given) is None or _given(node) != {"this", "format"}:
            return None
        return FunctionCall(function, argument, {"format": format_of(node)})

    return read


def _moved(node: Node) -> FunctionCall | None:
    days, unit = node.expression, node.args.get("unit")
    sign = 1
    while not isinstance(days, exp.Literal):
        if isinstance(days, exp.Mul) and isinstance(days.expression, exp.Neg) and _number(days.expression.this) == "1":
            days, sign = days.this, -sign
        elif isinstance(days, (exp.Neg, exp.Paren)):
            days, sign = days.this, -sign if isinstance(days, exp.Neg) else sign
        else:
            return None
    number = _number(days)
    if number is None or unit is None or unit.name.upper() != "DAY":
        return None
    argument = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
    return FunctionCall("date_add", argument, {"days": str(sign * int(number))})


def _match(node: Node) -> FunctionCall | None:
    pattern, stated = _text(node.expression), node.args.get("group")
    group = "1" if stated is None else _number(stated)
    if pattern is None or group is None or not _given(node) <= {"this", "expression", "group", "null_if_pos_overflow"}:
        return None
    return FunctionCall("regexp_extract", node.this, {"pattern": pattern, "idx": group})


def _without_matches(node: Node) -> FunctionCall | None:
    pattern, replacement = _text(node.expression), _text(node.args.get("replacement"))
    if pattern is None or replacement is None or _given(node) != {"this", "expression", "replacement"}:
        return None
    return FunctionCall("regexp_replace", node.this, {"pattern": pattern, "replacement": replacement})


def _text(node: Node) -> str | None:
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def _number(node: Node) -> str | None:
    known = isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal()
    return str(node.this) if known else None


def _signed(node: Node) -> str | None:
    number = _number(node.this) if isinstance(node, exp.Neg) else _number(node)
    return f"-{number}" if number is not None and isinstance(node, exp.Neg) else number


def _given(node: Node) -> set[str]:
    return {name for name, value in node.args.items() if value not in (None, [], False)}


_CALLS: Final[dict[type[Any], Callable[[Node], FunctionCall | None]]] = {
    exp.Lower: _plain("lower"),
    exp.Upper: _plain("upper"),
    exp.Length: _plain("length"),
    exp.Hour: _plain("hour"),
    exp.Year: _of_day("year"),
    exp.Month: _of_day("month"),
    exp.Day: _of_day("day"),
    exp.DayOfMonth: _of_day("day"),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.RegexpExtract: _match,
    exp.RegexpReplace: _without_matches,
    exp.StrToUnix: _whole_seconds,
    exp.UnixToStr: _formatted("from_unixtime", None),
    exp.TimeToStr: _formatted("date_format", exp.TimeStrToTime),
    exp.TsOrDsAdd: _moved,
}
