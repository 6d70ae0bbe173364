"""Calls of Spark's functions in a filter, by the names and options of expressions (`skep_format.expressions`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True)
class _Form:
    """How sqlglot has the calls of a function. `options` are by the names of its arguments: the option, how it is read,
    and its default. `around` is what may be around the argument of the call, `unread` arguments without a meaning here.
    """

    function: str
    options: Mapping[str, tuple[str, Callable[[Node], str | None], str | None]] = field(default_factory=dict)
    around: type[Any] | None = None
    unread: frozenset[str] = frozenset()

    def read(self, node: Node) -> FunctionCall | None:
        """The call; None for another form."""
        given, argument = _given(node) - self.unread, node.this
        if self.around is not None and isinstance(argument, self.around):
            if not _given(argument) <= {"this", "safe"}:
                return None
            argument = argument.this
        options: dict[str, str] = {}
        for name, (option, read, default) in self.options.items():
            value = read(node.args[name]) if name in given else default
            if value is None:
                return None
            options[option] = value
        return FunctionCall(self.function, argument, options) if given <= {"this", *self.options} else None


def function_call(node: Node) -> FunctionCall | None:
    """The call that a node is; None for a function, or a form of it, that no expression has."""
    form = _FORMS.get(type(node))
    return form.read(node) if isinstance(form, _Form) else None if form is None else form(node)


def _trim(node: Node) -> FunctionCall | None:
    position = node.args.get("position")
    name = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(position)
    form = _Form(name or "", {"expression": ("trimString", lambda each: _text(each) or None, " ")})
    return None if name is None else replace(form, unread=frozenset({"position"})).read(node)


def format_of(node: Node) -> str:
    """The pattern of dates or times that a call has: the parser has turned it into another form."""
    text = str(Spark.Generator(dialect="spark").format_time(node))
    return text[1:-1].replace("\\'", "'")


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


def _format(text: Node) -> str | None:
    return None if _text(text) is None else format_of(text.parent)


_FORMS: Final[dict[type[Any], _Form | Callable[[Node], FunctionCall | None]]] = {
    exp.Lower: _Form("lower"),
    exp.Upper: _Form("upper"),
    exp.Length: _Form("length"),
    exp.Hour: _Form("hour"),
    exp.Year: _Form("year", around=exp.TsOrDsToDate),
    exp.Month: _Form("month", around=exp.TsOrDsToDate),
    exp.Day: _Form("day", around=exp.TsOrDsToDate),
    exp.DayOfMonth: _Form("day", around=exp.TsOrDsToDate),
    exp.Trim: _trim,
    exp.Substring: _Form("substring", {"start": ("pos", _signed, None), "length": ("len", _signed, None)}),
    exp.RegexpExtract: _Form(
        "regexp_extract",
        {"expression": ("pattern", _text, None), "group": ("idx", _number, "1")},
        unread=frozenset({"null_if_pos_overflow"}),
    ),
    exp.RegexpReplace: _Form(
        "regexp_replace", {"expression": ("pattern", _text, None), "replacement": ("replacement", _text, None)}
    ),
    # By a format only texts are read, and no expression is of them.
    exp.StrToUnix: _Form("unix_timestamp", unread=frozenset({"format"})),
    exp.UnixToStr: _Form("from_unixtime", {"format": ("format", _format, None)}),
    exp.TimeToStr: _Form("date_format", {"format": ("format", _format, None)}, around=exp.TimeStrToTime),
    exp.TsOrDsAdd: _moved,
}
