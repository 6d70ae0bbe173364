"""Expressions of Spark's SQL as DataFusion's SQL of the same meaning, with the types and names that Spark gives them.

Only what is known to mean the same is taken; everything else is `DiffersError`. Functions and operators are those of
`functions`, which were compared with Spark over values of all kinds. Where the engines differ for some values only (a
number that overflows, a division by zero), DataFusion fails for these, and the query is left to Spark, which knows
whether they are an error.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Protocol

import pyarrow as pa
from sqlglot import ErrorLevel, exp

from benchmarks.engine_choice.datafusion.functions import Argument, found_function
from benchmarks.engine_choice.datafusion.spark_types import (
    EXACT_DIGITS,
    cast,
    common,
    decimal,
    decimal_of,
    exactly,
    is_groupable,
    is_plain,
    is_whole,
    list_of,
    narrowed,
)
from skep_sql.parsing.statements import Node
from skep_sql.parsing.written import is_read_alike
from skep_table.query.filters.text import binds_otherwise

t = pa.types
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f\x7f]*')
_LONGEST_REASON: Final = 100
DIVIDE: Final = "skep_divide"
_LONGEST: Final = 100_000  # what some functions are made of mentions their argument more than once


class DiffersError(Exception):
    """A part of a query whose meaning is not known to be the same in both engines; the message shows it."""


@dataclass(frozen=True, slots=True)
class EngineValue:
    """An expression for DataFusion. `name` is that of its column in Spark's answer, None where that is not known."""

    text: str
    type: pa.DataType
    name: str | None = None
    literal: str | None = None
    has_aggregate: bool = False


class NameScope(Protocol):
    """Where an expression finds its columns and subqueries."""

    def column(self, node: Node) -> EngineValue:
        """The column that a node names."""

    def subquery(self, query: Node) -> tuple[str, tuple[EngineValue, ...]]:
        """A query within the expression, and its columns."""


def differs(node: Node, why: str = "") -> DiffersError:
    """The error for a node that is left to Spark."""
    text = " ".join(node.sql("spark", unsupported_level=ErrorLevel.IGNORE).split())  # of which sqlglot would warn
    if len(text) > _LONGEST_REASON:
        text = f"{text[: _LONGEST_REASON - 1]}…"
    return DiffersError(f"{text} ({why})" if why else text)


def check_only(node: Node, *names: str) -> None:
    """DiffersError for a node with more to it than these arguments."""
    for name, value in node.args.items():
        if value not in (None, [], False) and name not in names:
            part = value[0] if isinstance(value, list) else value
            raise differs(part if isinstance(node, exp.Query | exp.Table) and hasattr(part, "sql") else node)


def as_type(value: EngineValue, kind: pa.DataType) -> str:
    """The value in another type, which holds it; DataFusion fails where it does not."""
    return value.text if value.type == kind else cast(value.text, kind)


def literal_text(text: str) -> str:
    """A text as DataFusion writes it."""
    return "'" + text.replace("'", "''") + "'"


class Translator:
    """Translates the expressions of one SELECT."""

    def __init__(self, names: NameScope) -> None:
        self._names = names

    def value(self, node: Node | None) -> EngineValue:
        """DiffersError for what is left to Spark; None is an argument that a call lacks."""
        if node is None:
            raise DiffersError("an argument is missing")
        translate = _TRANSLATIONS.get(type(node), Translator._call)
        value = translate(self, node)
        if len(value.text) > _LONGEST:
            raise differs(node, "long")
        return value

    def condition(self, node: Node) -> EngineValue:
        """A value that is true, false or null."""
        value = self.value(node)
        if not t.is_boolean(value.type) and not t.is_null(value.type):
            raise differs(node, "not a condition")
        return replace(value, text=as_type(value, pa.bool_()))

    def _together(self, node: Node, values: list[EngineValue]) -> tuple[pa.DataType, list[str]]:
        """Values in the type that Spark brings them to."""
        kind = common(value.type for value in values)
        if kind is None:
            raise differs(node, "types differ")
        return kind, [as_type(value, kind) for value in values]

    # -- functions and operators

    def _call(self, node: Node) -> EngineValue:
        name, nodes = _called(node)
        if name in _AGGREGATES:
            return self._aggregate(node, name, nodes)
        values = [self.value(each) for each in nodes]
        if name in _ARITHMETIC and len(values) == 2:
            return self._arithmetic(node, name, values)
        arguments = [Argument(value.type, value.literal) for value in values]
        found = found_function(name, arguments)
        if found is None:
            raise differs(node)
        text = found.template.format(*(value.text for value in values))
        shown = [value.name for value in values]
        spelled = None if None in shown or found.name is None else found.name.format(*shown)
        return EngineValue(text, found.type, spelled, has_aggregate=any(value.has_aggregate for value in values))

    def _arithmetic(self, node: Node, sign: str, values: list[EngineValue]) -> EngineValue:
        """DataFusion fails for what is too large and for a divisor of zero: errors of Spark by its settings only."""
        kinds = [value.type for value in values]
        if not all(is_whole(kind) or t.is_floating(kind) or t.is_decimal(kind) for kind in kinds):
            return self._days_moved(node, sign, values)
        name = f"({{}} {sign} {{}})"
        if any(map(t.is_decimal, kinds)) and not any(map(t.is_floating, kinds)) and sign != "div":
            return self._decimal_arithmetic(node, sign, values)
        if sign == "div":
            if not all(map(is_whole, kinds)):
                raise differs(node)
            over, under = (as_type(value, pa.int64()) for value in values)
            return _made(f"({over} / {under})", pa.int64(), name, *values)
        is_single = all(kind == pa.float32() for kind in kinds)
        if sign == "/" or any(map(t.is_floating, kinds)):
            kind = pa.float32() if is_single and sign != "/" else pa.float64()
            over, under = (value.text if is_single and sign != "/" else _double(value) for value in values)
            text = f"({over} {sign} {under})"
            if sign in "/%":
                text = f"CASE WHEN {under} = 0 THEN {cast(f'(1 / {cast(under, pa.int64())})', kind)} ELSE {text} END"
            return _made(text, kind, name, *values)
        kind = common(kinds)
        if kind is None:
            raise differs(node)
        wide = _WIDER[kind.bit_width] if sign != "%" else kind
        left, right = (as_type(value, wide) for value in values)
        return _made(narrowed(f"({left} {sign} {right})", kind), kind, name, *values)

    def _days_moved(self, node: Node, sign: str, values: list[EngineValue]) -> EngineValue:
        left, right = values
        if t.is_date(left.type) and right.type in (pa.int8(), pa.int16(), pa.int32()) and sign in "+-":
            days = f"{cast(left.text, pa.int32())} {sign} {as_type(right, pa.int64())}"
            text = cast(narrowed(f"({days})", pa.int32()), pa.date32())
            name = "date_add({}, {})" if sign == "+" else "date_sub({}, {})"
            return _made(text, pa.date32(), name, *values)
        raise differs(node)

    def _decimal_arithmetic(self, node: Node, sign: str, values: list[EngineValue]) -> EngineValue:
        left, right = values
        one, other = _as_decimal(left), _as_decimal(right)
        if one is None or other is None:
            raise differs(node)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        scale = max(one.scale, other.scale)
        if sign in "+-":
            kind = decimal(whole + scale + 1, scale)
        elif sign == "*":
            kind = decimal(one.precision + other.precision + 1, one.scale + other.scale)
        elif sign == "/":
            digits = max(6, one.scale + other.precision + 1)
            kind = exactly(one.precision - one.scale + other.scale + digits, digits)
        else:
            kind = decimal(min(one.precision - one.scale, other.precision - other.scale) + scale, scale)
        if kind is None:
            raise differs(node, "more digits than a decimal has")
        if sign == "/":
            text = divided(as_type(left, one), one, as_type(right, other), other, kind)
        elif sign == "*":
            text = narrowed(f"({as_type(left, one)} * {as_type(right, other)})", kind)
        elif sign == "%":
            wide = decimal(whole + scale, scale)
            if wide is None:
                raise differs(node, "more digits than a decimal has")
            text = narrowed(f"({as_type(left, wide)} % {as_type(right, wide)})", kind)
        else:
            text = f"({as_type(left, kind)} {sign} {as_type(right, kind)})"
        return _made(text, kind, f"({{}} {sign} {{}})", left, right)

    # -- columns and constants

    def _column(self, node: Node) -> EngineValue:
        return self._names.column(node)

    def _paren(self, node: Node) -> EngineValue:
        check_only(node, "this")
        return self.value(node.this)

    def _literal(self, node: Node) -> EngineValue:
        text = str(node.this)
        if node.is_string:
            if not _PLAIN_TEXT.fullmatch(text) and (not is_read_alike(node) or "\0" in text):
                raise differs(node, "escapes")
            return EngineValue(literal_text(text), pa.string(), text, text)
        return _number(node, text)

    def _boolean(self, node: Node) -> EngineValue:
        word = "true" if node.this else "false"
        return EngineValue(word.upper(), pa.bool_(), word)

    def _null(self, _node: Node) -> EngineValue:
        return EngineValue("NULL", pa.null(), "NULL")

    def _neg(self, node: Node) -> EngineValue:
        check_only(node, "this")
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return _number(node, f"-{inner.this}")
        value = self.value(inner)
        if t.is_decimal(value.type) or t.is_floating(value.type):
            return _made(f"(- {value.text})", value.type, "(- {})", value)
        if not is_whole(value.type):
            raise differs(node)
        wide = _WIDER[value.type.bit_width]
        return _made(narrowed(f"(- {as_type(value, wide)})", value.type), value.type, "(- {})", value)

    # -- conditions

    def _logic(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        left, right = self.condition(node.left), self.condition(node.right)
        word = "AND" if isinstance(node, exp.And) else "OR"
        return _made(f"({left.text} {word} {right.text})", pa.bool_(), f"({{}} {word} {{}})", left, right)

    def _not(self, node: Node) -> EngineValue:
        check_only(node, "this")
        value = self.condition(node.this)
        return _made(f"(NOT {value.text})", pa.bool_(), "(NOT {})", value)

    def _comparable(self, node: Node, *sides: Node) -> tuple[list[str], list[EngineValue]]:
        values = [self.value(side) for side in sides]
        for is_kind, read in ((t.is_timestamp, _as_time), (t.is_date, _as_date)):
            if any(is_kind(value.type) for value in values):
                values = [read(value) for value in values]
        kind, texts = self._together(node, values)
        if not is_plain(kind) and not t.is_null(kind):
            raise differs(node, "not compared alike")
        return [comparable(text, kind) for text in texts], values

    def _comparison(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        if binds_otherwise(node.left) or binds_otherwise(node.right):
            raise differs(node, "a condition without parentheses")
        (left, right), values = self._comparable(node, node.left, node.right)
        sign, shown = _COMPARISONS[type(node)]
        return _made(f"({left} {sign} {right})", pa.bool_(), shown and f"({{}} {shown} {{}})", *values)

    def _is(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return _made(f"({value.text} IS NULL)", pa.bool_(), "({} IS NULL)", value)
        if isinstance(node.expression, exp.Boolean) and t.is_boolean(value.type):
            word = "TRUE" if node.expression.this else "FALSE"
            return _made(f"({value.text} IS NOT DISTINCT FROM {word})", pa.bool_(), None, value)
        raise differs(node)

    def _between(self, node: Node) -> EngineValue:
        check_only(node, "this", "low", "high")
        parts = [
            self._comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())),
            self._comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())),
        ]
        return _made(f"({parts[0].text} AND {parts[1].text})", pa.bool_(), "({} AND {})", *parts)

    def _in(self, node: Node) -> EngineValue:
        check_only(node, "this", "expressions", "query")
        query = node.args.get("query")
        if query is None:
            (left, *others), values = self._comparable(node, node.this, *node.expressions)
            names = f"({{}} IN ({', '.join(['{}'] * len(others))}))"
            return _made(f"({left} IN ({', '.join(others)}))", pa.bool_(), names, *values)
        value = self.value(node.this)
        text, columns = self._names.subquery(query)
        if len(columns) != 1:
            raise differs(node)
        kind, (left, _) = self._together(node, [value, columns[0]])
        if not is_groupable(kind):
            raise differs(node, "not compared alike")
        found = f"SELECT {comparable(as_type(replace(columns[0], text='c0'), kind), kind)} FROM ({text}) AS q"
        return _made(f"({comparable(left, kind)} IN ({found}))", pa.bool_(), None, value)

    def _exists(self, node: Node) -> EngineValue:
        check_only(node, "this")
        text, _ = self._names.subquery(node.this)
        return EngineValue(f"EXISTS ({text})", pa.bool_())

    def _scalar(self, node: Node) -> EngineValue:
        check_only(node, "this")
        text, columns = self._names.subquery(node.this)
        if len(columns) != 1:
            raise differs(node)
        return EngineValue(f"({text})", columns[0].type)

    def _like(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression", "negate")
        value, pattern = self.value(node.this), self.value(node.expression)
        if value.type != pa.string() or pattern.literal is None or pattern.type != pa.string() or "\\" in pattern.text:
            raise differs(node)
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        name = "(NOT {} LIKE {})" if node.args.get("negate") else "{} LIKE {}"
        return _made(f"({value.text} {word} {pattern.text})", pa.bool_(), name, value, pattern)

    # -- choices

    def _case(self, node: Node) -> EngineValue:
        check_only(node, "this", "ifs", "default")
        conditions, values = [], []
        for each in node.args["ifs"]:
            when = exp.EQ(this=node.this.copy(), expression=each.this.copy()) if node.this else each.this
            conditions.append(self.condition(when))
            values.append(self.value(each.args["true"]))
        default = node.args.get("default")
        values.append(self.value(default) if default is not None else EngineValue("NULL", pa.null()))
        parts = ["WHEN {} THEN {}"] * len(conditions) + (["ELSE {}"] if default is not None else [])
        pairs = [each for pair in zip(conditions, values, strict=False) for each in pair]
        shown = [*pairs, values[-1]] if default is not None else pairs
        return replace(self._chosen(node, conditions, values), name=_named(f"CASE {' '.join(parts)} END", *shown))

    def _if(self, node: Node) -> EngineValue:
        check_only(node, "this", "true", "false")
        when, values = self.condition(node.this), [self.value(node.args["true"]), self.value(node.args.get("false"))]
        return replace(self._chosen(node, [when], values), name=_named("(IF({}, {}, {}))", when, *values))

    def _chosen(self, node: Node, conditions: list[EngineValue], values: list[EngineValue]) -> EngineValue:
        kind, texts = self._together(node, values)
        whens = [f"WHEN {when.text} THEN {then}" for when, then in zip(conditions, texts, strict=False)]
        return _made(f"CASE {' '.join(whens)} ELSE {texts[-1]} END", kind, None, *conditions, *values)

    def _first_known(self, node: Node, name: str, values: list[EngineValue]) -> EngineValue:
        kind, texts = self._together(node, values)
        return _made(f"COALESCE({', '.join(texts)})", kind, f"{name}({', '.join(['{}'] * len(values))})", *values)

    def _nullif(self, node: Node) -> EngineValue:
        if len(node.expressions) != 2:
            raise differs(node)
        one, other = node.expressions
        same, value = self._comparison(exp.EQ(this=one.copy(), expression=other.copy())), self.value(one)
        text = f"CASE WHEN {same.text} THEN NULL ELSE {value.text} END"
        return replace(
            _made(text, value.type, None, same, value), name=_named("nullif({}, {})", value, self.value(other))
        )

    # -- casts

    def _cast(self, node: Node) -> EngineValue:
        check_only(node, "this", "to", "safe")
        kind, inner = _type_named(node.args["to"]), node.this
        if kind is None:
            raise differs(node)
        if isinstance(inner, exp.Literal) and inner.is_string and (found := _cast_text(str(inner.this), kind)):
            return found
        value = self.value(inner)
        name = None if value.name is None else f"CAST({value.name} AS {_spark_name(kind)})"
        if t.is_decimal(value.type) and value.literal is not None and kind == pa.float64():
            return EngineValue(cast(literal_text(value.literal), kind), kind, name)
        if value.type == kind or t.is_null(value.type):
            return replace(value, text=as_type(value, kind), type=kind, literal=None, name=value.name)
        if is_whole(value.type) and value.literal is not None and is_whole(kind):  # 1L, 2S
            return replace(value, text=as_type(value, kind), type=kind, name=value.literal)
        if _is_cast_alike(value.type, kind):
            return replace(value, text=narrowed(value.text, kind), type=kind, literal=None, name=name)
        known = found_function(f"cast to {_spark_name(kind).lower()}", [Argument(value.type, None)])
        if known is None:
            raise differs(node)
        return replace(value, text=known.template.format(value.text), type=kind, literal=None, name=name)

    # -- nested values

    def _array(self, node: Node, values: list[EngineValue]) -> EngineValue:
        if not values:
            raise differs(node)
        kind, texts = self._together(node, values)
        name = f"array({', '.join(['{}'] * len(values))})"
        return _made(f"make_array({', '.join(texts)})", list_of(kind), name, *values)

    def _named_struct(self, node: Node, values: list[EngineValue]) -> EngineValue:
        names = [value.literal for value in values[::2]]
        if None in names or len(values) % 2 or len({(name or "").lower() for name in names}) != len(names):
            raise differs(node)
        kind = pa.struct([(name, value.type) for name, value in zip(names, values[1::2], strict=True)])
        text = f"named_struct({', '.join(value.text for value in values)})"
        return _made(text, kind, f"named_struct({', '.join(['{}'] * len(values))})", *values)

    def _map(self, node: Node, values: list[EngineValue]) -> EngineValue:
        if len(values) % 2 or not values:
            raise differs(node)
        keys, items = self._array(node, values[::2]), self._array(node, values[1::2])
        literals = [value.literal for value in values[::2]]
        if None in literals or len(set(literals)) != len(literals):
            raise differs(node, "keys that may be equal")
        name = _named(f"map({', '.join(['{}'] * len(values))})", *values)
        return replace(
            _made(
                f"map({keys.text}, {items.text})", pa.map_(keys.type.value_type, items.type.value_type), None, *values
            ),
            name=name,
        )

    # -- aggregates and windows

    def _aggregate(self, node: Node, name: str, nodes: list[Node]) -> EngineValue:
        if len(nodes) != 1:
            raise differs(node)
        (inner,) = nodes
        if name == "count" and isinstance(inner, exp.Star):
            return EngineValue("count(1)", pa.int64(), "count(1)", has_aggregate=True)
        is_distinct = isinstance(inner, exp.Distinct)
        if is_distinct:
            check_only(inner, "expressions")
            if len(inner.expressions) != 1 or name != "count":
                raise differs(node)
            inner = inner.expressions[0]
        value = self.value(inner)
        if value.has_aggregate:
            raise differs(node, "an aggregate of an aggregate")
        if is_distinct:
            if not is_groupable(value.type):
                raise differs(node, "not grouped alike")
            value = replace(value, text=comparable(value.text, value.type))
        found = _AGGREGATES[name](value)
        if found is None:
            raise differs(node)
        text, kind = found
        if is_distinct:
            text = text.replace("(", "(DISTINCT ", 1)
        shown = f"{name}(DISTINCT {{}})" if is_distinct else f"{name}({{}})"
        return EngineValue(text, kind, _named(shown, value), has_aggregate=True)

    def _filter(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        name, nodes = _called(node.this)
        if name != "count":
            raise differs(node)  # the casts of the others would come between
        value, when = self._aggregate(node.this, name, nodes), self.condition(node.expression.this)
        return EngineValue(f"{value.text} FILTER (WHERE {when.text})", value.type, has_aggregate=True)

    def _window(self, node: Node) -> EngineValue:
        check_only(node, "this", "partition_by", "order", "over")
        name, nodes = _called(node.this)
        order = node.args.get("order")
        parts = [self.value(each) for each in node.args.get("partition_by") or ()]
        if not all(is_groupable(each.type) for each in parts):
            raise differs(node, "not grouped alike")
        by = f"PARTITION BY {', '.join(comparable(each.text, each.type) for each in parts)} " if parts else ""
        orders = ", ".join(self.ordered(each)[0] for each in order.expressions) if order is not None else ""
        if name in _RANKINGS and order is not None and not nodes:
            return EngineValue(cast(f"{name}() OVER ({by}ORDER BY {orders})", pa.int32()), pa.int32())
        raise differs(node)

    def ordered(self, node: Node, position: tuple[int, EngineValue] | None = None) -> tuple[str, EngineValue]:
        """One of the values that rows are ordered by, in the order that Spark has them. `position`: a column's."""
        check_only(node, "this", "desc", "nulls_first")
        value = position[1] if position else self.value(node.this)
        if not is_plain(value.type) and not t.is_null(value.type):
            raise differs(node, "not ordered alike")
        text = str(position[0]) if position else f"({comparable(value.text, value.type)})"
        if position and t.is_floating(value.type):
            raise differs(node, "not ordered alike")
        way = "DESC" if node.args.get("desc") else "ASC"
        return f"{text} {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}", value


def comparable(text: str, kind: pa.DataType) -> str:
    """A value such that equal ones are one: Spark has one zero and one NaN, DataFusion those of either sign."""
    if not t.is_floating(kind):
        return text
    return f"(CASE WHEN isnan({text}) THEN {cast(literal_text('NaN'), kind)} ELSE {text} + {cast('0', kind)} END)"


def divided(left: str, one: pa.DataType, right: str, other: pa.DataType, kind: pa.DataType) -> str:
    """A quotient of decimals, by a function of skep's own whose name has their digits: DataFusion cuts digits off."""
    digits = (one.precision, one.scale, other.precision, other.scale, kind.precision, kind.scale)
    return f"{DIVIDE}_{'_'.join(map(str, digits))}({left}, {right})"


def _called(node: Node) -> tuple[str, list[Node]]:
    """The name by which a function was called, in lower case, or the sign of an operator; and its arguments."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), list(node.expressions)
    if type(node) in _SIGNS:
        check_only(node, "this", "expression", "typed", "safe", "coalesce")
        return _SIGNS[type(node)], [node.this] if isinstance(node, exp.Unary) else [node.left, node.right]
    if isinstance(node, exp.Substring):
        check_only(node, "this", "start", "length")
        return "substring", [each for name in ("this", "start", "length") if (each := node.args.get(name)) is not None]
    if isinstance(node, exp.Trim):
        check_only(node, "this")
        return "trim", [node.this]
    if isinstance(node, exp.Extract):
        check_only(node, "this", "expression")
        if node.this.name.lower() in _PARTS:
            return node.this.name.lower(), [node.expression]
    raise differs(node)


def _number(node: Node, text: str) -> EngineValue:
    digits = text.removeprefix("-")
    if digits.isdecimal():
        for kind in (pa.int32(), pa.int64()):
            bound = 1 << (kind.bit_width - 1)
            if -bound <= int(text) < bound:
                return EngineValue(cast(literal_text(text), kind), kind, text, text)
        raise differs(node)
    if re.fullmatch(r"\d*\.\d+|\d+\.", digits):
        number = Decimal(text).as_tuple()
        scale = -int(number.exponent)
        precision = max(len(number.digits), scale)
        found = decimal(precision, scale)
        if found is not None and Decimal(text) != 0:
            return EngineValue(cast(literal_text(text), found), found, text, text)
        raise differs(node)
    if re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d+", digits):
        return EngineValue(cast(literal_text(text), pa.float64()), pa.float64(), None, text)
    raise differs(node)


def _as_decimal(value: EngineValue) -> pa.DataType | None:
    """The decimal that Spark makes of a side of an operation: of a whole constant, one with just its digits."""
    if value.literal is not None and is_whole(value.type):
        return pa.decimal128(len(value.literal.removeprefix("-").lstrip("0")) or 1, 0)
    return decimal_of(value.type)


def _double(value: EngineValue) -> str:
    if t.is_decimal(value.type) and value.literal is None and value.type.precision > 15:
        raise DiffersError(f"{value.text} (a decimal of more than 15 digits as a double)")
    return as_type(value, pa.float64())


def _as_date(value: EngineValue) -> EngineValue:
    """A text that is a date, as that date."""
    if value.type != pa.string():
        return value
    if value.literal is None or not _is_date(value.literal):
        raise DiffersError(f"{value.text} (compared with a date)")
    return EngineValue(cast(literal_text(value.literal), pa.date32()), pa.date32(), None)


def _as_time(value: EngineValue) -> EngineValue:
    """A text that is a date or a time of day in UTC, as that time."""
    if value.type == pa.string() and value.literal is not None:
        found = _cast_text(value.literal, _UTC)
        if found is not None:
            return found
    if value.type == pa.string():
        raise DiffersError(f"{value.text} (compared with a time)")
    return value


_UTC: Final = pa.timestamp("us", "UTC")


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and dt.date.fromisoformat(text))
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        return bool(_TIME.fullmatch(text) and dt.datetime.fromisoformat(text[:19]))
    except ValueError:
        return False


def _cast_text(text: str, kind: pa.DataType) -> EngineValue | None:
    """A constant text as a value of another type; None where that is not plain."""
    if t.is_date(kind) and _is_date(text):
        return EngineValue(cast(literal_text(text), kind), kind, f"DATE '{text}'")
    if t.is_timestamp(kind) and (_is_date(text) or _is_time(text)):
        whole = text if _is_time(text) else f"{text} 00:00:00"
        word = "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
        return EngineValue(cast(literal_text(whole), kind), kind, f"{word} '{whole}'" if "." not in whole else None)
    if kind == pa.string() and _PLAIN_TEXT.fullmatch(text):
        return EngineValue(literal_text(text), kind, text)
    if t.is_decimal(kind) and re.fullmatch(r"-?\d+(\.\d+)?", text):
        scale = len(text.partition(".")[2])
        if scale <= kind.scale and len(text.lstrip("-0").partition(".")[0]) <= kind.precision - kind.scale:
            return EngineValue(cast(literal_text(text), kind), kind, f"CAST({text} AS {_spark_name(kind)})")
    return None


def _type_named(node: Node) -> pa.DataType | None:
    kinds = exp.DataType.Type
    if node.this == kinds.DECIMAL:
        given = [int(part.name) for part in node.expressions]
        return pa.decimal128(*(given[0], given[1] if len(given) > 1 else 0)) if given else pa.decimal128(10, 0)
    if node.expressions:
        return None
    return {
        kinds.BOOLEAN: pa.bool_(),
        kinds.TINYINT: pa.int8(),
        kinds.SMALLINT: pa.int16(),
        kinds.INT: pa.int32(),
        kinds.BIGINT: pa.int64(),
        kinds.FLOAT: pa.float32(),
        kinds.DOUBLE: pa.float64(),
        kinds.TEXT: pa.string(),
        kinds.VARCHAR: pa.string(),
        kinds.BINARY: pa.binary(),
        kinds.VARBINARY: pa.binary(),
        kinds.DATE: pa.date32(),
        kinds.TIMESTAMP: _UTC,
        kinds.TIMESTAMPTZ: _UTC,
        kinds.TIMESTAMPLTZ: _UTC,
        kinds.TIMESTAMPNTZ: pa.timestamp("us"),
    }.get(node.this)


def _is_cast_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether both engines make the same of every value, but for those of which DataFusion makes nothing."""
    if is_whole(given):
        return is_whole(kind) or t.is_decimal(kind) or kind in (pa.float64(), pa.bool_(), pa.string())
    if t.is_boolean(given):
        return is_whole(kind) or kind == pa.string()
    if t.is_decimal(given):
        return bool(kind == pa.float64() and given.precision <= EXACT_DIGITS)
    return bool(t.is_floating(given) and (t.is_floating(kind) or is_whole(kind)))


def _spark_name(kind: pa.DataType) -> str:
    if t.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _SPARK_NAMES[kind]


_SPARK_NAMES: Final = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.binary(): "BINARY", pa.date32(): "DATE",
    _UTC: "TIMESTAMP", pa.timestamp("us"): "TIMESTAMP_NTZ",
}  # fmt: skip


def _named(pattern: str | None, *values: EngineValue) -> str | None:
    names = [value.name for value in values]
    return None if pattern is None or None in names else pattern.format(*names)


def _made(text: str, kind: pa.DataType, name: str | None, *values: EngineValue) -> EngineValue:
    return EngineValue(text, kind, _named(name, *values), has_aggregate=any(value.has_aggregate for value in values))


# -- aggregates: the text, and the type of the answer; None where they differ


def _count(value: EngineValue) -> tuple[str, pa.DataType]:
    return f"count({value.text})", pa.int64()


def _sum(value: EngineValue) -> tuple[str, pa.DataType] | None:
    if t.is_decimal(value.type):
        if value.type.precision > 28:
            return None
        return f"sum({value.text})", pa.decimal128(value.type.precision + 10, value.type.scale)
    if is_whole(value.type):
        return narrowed(f"sum({cast(value.text, pa.decimal128(38, 0))})", pa.int64()), pa.int64()
    if t.is_floating(value.type):
        return f"sum({as_type(value, pa.float64())})", pa.float64()
    return None


def _avg(value: EngineValue) -> tuple[str, pa.DataType] | None:
    if t.is_decimal(value.type):
        made = _sum(value)
        if made is None:
            return None
        summed, kind = made
        found, counts = pa.decimal128(value.type.precision + 4, value.type.scale + 4), pa.decimal128(20, 0)
        digits = max(6, kind.scale + counts.precision + 1)
        whole = exactly(kind.precision - kind.scale + digits, digits)
        return cast(divided(summed, kind, cast(f"count({value.text})", counts), counts, whole), found), found
    if is_whole(value.type) or t.is_floating(value.type):
        return f"avg({as_type(value, pa.float64())})", pa.float64()
    return None


def _extreme(name: str) -> Callable[[EngineValue], tuple[str, pa.DataType] | None]:
    def made(value: EngineValue) -> tuple[str, pa.DataType] | None:
        return (f"{name}({comparable(value.text, value.type)})", value.type) if is_plain(value.type) else None

    return made


def _of_doubles(name: str) -> Callable[[EngineValue], tuple[str, pa.DataType] | None]:
    def made(value: EngineValue) -> tuple[str, pa.DataType] | None:
        if not (is_whole(value.type) or t.is_floating(value.type)):
            return None
        return f"{name}({as_type(value, pa.float64())})", pa.float64()

    return made


def _of_booleans(name: str) -> Callable[[EngineValue], tuple[str, pa.DataType] | None]:
    return lambda value: (f"{name}({value.text})", pa.bool_()) if t.is_boolean(value.type) else None


def _of_bits(name: str) -> Callable[[EngineValue], tuple[str, pa.DataType] | None]:
    return lambda value: (cast(f"{name}({value.text})", value.type), value.type) if is_whole(value.type) else None


_AGGREGATES: Final[Mapping[str, Callable[[EngineValue], tuple[str, pa.DataType] | None]]] = {
    "count": _count, "sum": _sum, "avg": _avg, "mean": _avg, "min": _extreme("min"), "max": _extreme("max"),
    "stddev": _of_doubles("stddev"), "stddev_samp": _of_doubles("stddev_samp"), "std": _of_doubles("stddev"),
    "stddev_pop": _of_doubles("stddev_pop"), "variance": _of_doubles("var_samp"), "var_samp": _of_doubles("var_samp"),
    "var_pop": _of_doubles("var_pop"), "bool_and": _of_booleans("bool_and"), "every": _of_booleans("bool_and"),
    "bool_or": _of_booleans("bool_or"), "some": _of_booleans("bool_or"), "any": _of_booleans("bool_or"),
    "bit_and": _of_bits("bit_and"), "bit_or": _of_bits("bit_or"), "bit_xor": _of_bits("bit_xor"),
}  # fmt: skip
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "div")
_WIDER: Final = {8: pa.int64(), 16: pa.int64(), 32: pa.int64(), 64: pa.decimal128(38, 0)}
_PARTS: Final = ("year", "quarter", "month", "day", "hour", "minute")  # seconds have a fraction
_RANKINGS: Final = ("row_number", "rank", "dense_rank")
_COMPARISONS: Final = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", None),
    exp.LT: ("<", "<"),
    exp.LTE: ("<=", "<="),
    exp.GT: (">", ">"),
    exp.GTE: (">=", ">="),
    exp.NullSafeEQ: ("IS NOT DISTINCT FROM", "<=>"),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", None),
}
_SIGNS: Final = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.Neg: "-",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.BitwiseNot: "~", exp.DPipe: "||",
}  # fmt: skip


def _of_values(made: str) -> Callable[[Translator, Any], EngineValue]:
    def translate(translator: Translator, node: Any) -> EngineValue:
        value: EngineValue = getattr(translator, made)(node, [translator.value(each) for each in node.expressions])
        return value

    return translate


_CALLS: Final[Mapping[str, Callable[[Translator, Any], EngineValue]]] = {
    "array": _of_values("_array"),
    "named_struct": _of_values("_named_struct"),
    "map": _of_values("_map"),
    "nullif": Translator._nullif,
    **{
        name: lambda translator, node: translator._first_known(
            node, node.name.lower(), [translator.value(each) for each in node.expressions]
        )
        for name in ("coalesce", "nvl", "ifnull")
    },
}


def _anonymous(translator: Translator, node: Any) -> EngineValue:
    return _CALLS.get(node.name.lower(), Translator._call)(translator, node)


_TRANSLATIONS: Final[Mapping[type, Callable[[Translator, Any], EngineValue]]] = {
    exp.Anonymous: _anonymous,
    exp.Column: Translator._column,
    exp.Dot: Translator._column,
    exp.Paren: Translator._paren,
    exp.Literal: Translator._literal,
    exp.Boolean: Translator._boolean,
    exp.Null: Translator._null,
    exp.Neg: Translator._neg,
    exp.And: Translator._logic,
    exp.Or: Translator._logic,
    exp.Not: Translator._not,
    **dict.fromkeys(_COMPARISONS, Translator._comparison),
    exp.Is: Translator._is,
    exp.Between: Translator._between,
    exp.In: Translator._in,
    exp.Exists: Translator._exists,
    exp.Subquery: Translator._scalar,
    exp.Like: Translator._like,
    exp.Case: Translator._case,
    exp.If: Translator._if,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Filter: Translator._filter,
    exp.Window: Translator._window,
}
