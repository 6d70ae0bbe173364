"""Expressions of Spark's SQL as DuckDB's SQL of the same meaning, with the types and names that Spark gives them.

Only what is known to mean the same is taken; everything else is `DiffersError`. Where the engines differ for some
values only (a number that overflows, a division by zero, letters outside of ASCII), DuckDB fails for these, and the
query is left to Spark, which knows whether they are an error.
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

from skep_sql.parsing.statements import Node
from skep_sql.parsing.written import function_name, is_read_alike
from skep_sql.translation.spark_types import (
    EXACT_DIGITS,
    common,
    decimal,
    decimal_of,
    duckdb_text,
    is_exact,
    is_plain,
    is_whole,
    list_of,
    quoted,
)
from skep_table.query.filters.text import binds_otherwise

t = pa.types
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f\x7f]*')
_MOST_DECIMALS: Final = 6  # to which a double is rounded by way of its text
_LONGEST_REASON: Final = 100
_LONGEST: Final = 100_000  # what some functions are made of mentions their argument more than once
_LARGEST_ROUNDED: Final = "1e9"


class DiffersError(Exception):
    """A part of a query whose meaning is not known to be the same in both engines; the message shows it."""


@dataclass(frozen=True, slots=True)
class DuckValue:
    """An expression for DuckDB. `name` is that of its column in Spark's answer, None where that is not known."""

    text: str
    type: pa.DataType
    name: str | None = None
    literal: str | None = None
    has_aggregate: bool = False


class NameScope(Protocol):
    """Where an expression finds its columns and subqueries."""

    def column(self, node: Node) -> DuckValue:
        """The column that a node names."""

    def subquery(self, query: Node) -> tuple[str, tuple[DuckValue, ...]]:
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


def as_type(value: DuckValue, kind: pa.DataType) -> str:
    """The value in another type, which holds it; DuckDB fails where it does not."""
    return value.text if value.type == kind else f"CAST({value.text} AS {duckdb_text(kind)})"


def literal_text(text: str) -> str:
    """A text as DuckDB writes it."""
    return "'" + text.replace("'", "''") + "'"


class Translator:
    """Translates the expressions of one SELECT."""

    def __init__(self, names: NameScope) -> None:
        self._names = names

    def value(self, node: Node | None) -> DuckValue:
        """DiffersError for what is left to Spark; None is an argument that a call lacks."""
        if node is None:
            raise DiffersError("an argument is missing")
        translate = _TRANSLATIONS.get(type(node))
        if translate is None:
            raise differs(node)
        value = translate(self, node)
        if len(value.text) > _LONGEST:
            raise differs(node, "long")
        called = function_name(node)
        if called is not None and value.name is not None and value.name.partition("(")[0].lower() != called:
            return replace(value, name=None)  # Spark has names of its own for some functions, by how they were called
        return value

    def condition(self, node: Node) -> DuckValue:
        """A value that is true, false or null."""
        value = self.value(node)
        if not t.is_boolean(value.type) and not t.is_null(value.type):
            raise differs(node, "not a condition")
        return replace(value, text=as_type(value, pa.bool_()))

    def _together(self, node: Node, values: list[DuckValue]) -> tuple[pa.DataType, list[str]]:
        """Values in the type that Spark brings them to."""
        kind = common(value.type for value in values)
        if kind is None:
            raise differs(node, "types differ")
        return kind, [as_type(value, kind) for value in values]

    # -- columns and constants

    def _column(self, node: Node) -> DuckValue:
        return self._names.column(node)

    def _paren(self, node: Node) -> DuckValue:
        check_only(node, "this")
        return self.value(node.this)

    def _literal(self, node: Node) -> DuckValue:
        text = str(node.this)
        if node.is_string:
            if not _PLAIN_TEXT.fullmatch(text) and (not is_read_alike(node) or "\0" in text):
                raise differs(node, "escapes")
            return DuckValue(f"CAST({literal_text(text)} AS VARCHAR)", pa.string(), text, text)
        return _number(node, text)

    def _boolean(self, node: Node) -> DuckValue:
        word = "true" if node.this else "false"
        return DuckValue(word.upper(), pa.bool_(), word)

    def _null(self, _node: Node) -> DuckValue:
        return DuckValue("NULL", pa.null(), "NULL")

    def _neg(self, node: Node) -> DuckValue:
        check_only(node, "this")
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return _number(node, f"-{inner.this}")
        value = self.value(inner)
        if not (is_whole(value.type) or t.is_floating(value.type) or t.is_decimal(value.type)):
            raise differs(node)
        text = f"CAST((- {value.text}) AS {duckdb_text(value.type)})"
        return DuckValue(text, value.type, _named("(- {})", value), has_aggregate=value.has_aggregate)

    # -- conditions

    def _logic(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        left, right = self.condition(node.left), self.condition(node.right)
        word = "AND" if isinstance(node, exp.And) else "OR"
        return _made(f"({left.text} {word} {right.text})", pa.bool_(), f"({{}} {word} {{}})", left, right)

    def _not(self, node: Node) -> DuckValue:
        check_only(node, "this")
        value = self.condition(node.this)
        return _made(f"(NOT {value.text})", pa.bool_(), None, value)

    def _comparable(self, node: Node, *sides: Node) -> tuple[list[str], list[DuckValue]]:
        values = [self.value(side) for side in sides]
        if any(t.is_date(value.type) for value in values):
            values = [_as_date(value) for value in values]
        kind, texts = self._together(node, values)
        if not is_plain(kind) and not t.is_null(kind):
            raise differs(node, "not compared alike")
        return texts, values

    def _comparison(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        if binds_otherwise(node.left) or binds_otherwise(node.right):
            raise differs(node, "a condition without parentheses")
        (left, right), values = self._comparable(node, node.left, node.right)
        sign = _COMPARISONS[type(node)]
        return _made(f"({left} {sign} {right})", pa.bool_(), None, *values)

    def _is(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return _made(f"({value.text} IS NULL)", pa.bool_(), None, value)
        if isinstance(node.expression, exp.Boolean) and t.is_boolean(value.type):
            word = "TRUE" if node.expression.this else "FALSE"
            return _made(f"({value.text} IS NOT DISTINCT FROM {word})", pa.bool_(), None, value)
        raise differs(node)

    def _between(self, node: Node) -> DuckValue:
        check_only(node, "this", "low", "high")
        parts = [
            self._comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())),
            self._comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())),
        ]
        return _made(f"({parts[0].text} AND {parts[1].text})", pa.bool_(), None, *parts)

    def _in(self, node: Node) -> DuckValue:
        check_only(node, "this", "expressions", "query")
        query = node.args.get("query")
        if query is None:
            (left, *others), values = self._comparable(node, node.this, *node.expressions)
            return _made(f"({left} IN ({', '.join(others)}))", pa.bool_(), None, *values)
        value = self.value(node.this)
        text, columns = self._names.subquery(query)
        if len(columns) != 1:
            raise differs(node)
        kind, (left, _) = self._together(node, [value, columns[0]])
        if not is_exact(kind):
            raise differs(node, "not compared alike")
        found = f"SELECT CAST(c0 AS {duckdb_text(kind)}) FROM ({text}) AS q"
        return _made(f"({left} IN ({found}))", pa.bool_(), None, value)

    def _exists(self, node: Node) -> DuckValue:
        check_only(node, "this")
        text, _ = self._names.subquery(node.this)
        return DuckValue(f"EXISTS ({text})", pa.bool_())

    def _scalar(self, node: Node) -> DuckValue:
        check_only(node, "this")
        text, columns = self._names.subquery(node.this)
        if len(columns) != 1:
            raise differs(node)
        return DuckValue(f"({text})", columns[0].type)

    def _like(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression", "negate")
        value, pattern = self.value(node.this), self.value(node.expression)
        if value.type != pa.string() or pattern.literal is None or pattern.type != pa.string():
            raise differs(node)
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return _made(f"({value.text} {word} {pattern.text})", pa.bool_(), None, value)

    # -- choices

    def _case(self, node: Node) -> DuckValue:
        check_only(node, "this", "ifs", "default")
        conditions, values = [], []
        for each in node.args["ifs"]:
            when = exp.EQ(this=node.this.copy(), expression=each.this.copy()) if node.this else each.this
            conditions.append(self.condition(when))
            values.append(self.value(each.args["true"]))
        default = node.args.get("default")
        values.append(self.value(default) if default is not None else DuckValue("NULL", pa.null()))
        return self._chosen(node, conditions, values)

    def _if(self, node: Node) -> DuckValue:
        check_only(node, "this", "true", "false")
        other = node.args.get("false")
        values = [
            self.value(node.args["true"]),
            self.value(other) if other is not None else DuckValue("NULL", pa.null()),
        ]
        return self._chosen(node, [self.condition(node.this)], values)

    def _chosen(self, node: Node, conditions: list[DuckValue], values: list[DuckValue]) -> DuckValue:
        kind, texts = self._together(node, values)
        whens = [f"WHEN {when.text} THEN {then}" for when, then in zip(conditions, texts, strict=False)]
        return _made(f"CASE {' '.join(whens)} ELSE {texts[-1]} END", kind, None, *conditions, *values)

    def _coalesce(self, node: Node) -> DuckValue:
        check_only(node, "this", "expressions")
        values = [self.value(each) for each in (node.this, *node.expressions)]
        kind, texts = self._together(node, values)
        return _made(f"COALESCE({', '.join(texts)})", kind, None, *values)

    def _nullif(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        same = self._comparison(exp.EQ(this=node.this.copy(), expression=node.expression.copy()))
        value = self.value(node.this)
        return _made(f"CASE WHEN {same.text} THEN NULL ELSE {value.text} END", value.type, None, same, value)

    # -- numbers

    def _arithmetic(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        sign = _ARITHMETIC[type(node)]
        left, right = self.value(node.left), self.value(node.right)
        kinds = (left.type, right.type)
        if any(map(t.is_decimal, kinds)) and not any(map(t.is_floating, kinds)):
            return self._decimal_arithmetic(node, sign, left, right)
        kind = common(kinds)
        if kind is None or not (is_whole(kind) or t.is_floating(kind)):
            raise differs(node)
        text = f"CAST(({as_type(left, kind)} {sign} {as_type(right, kind)}) AS {duckdb_text(kind)})"
        return _made(text, kind, f"({{}} {sign} {{}})", left, right)

    def _decimal_arithmetic(self, node: Node, sign: str, left: DuckValue, right: DuckValue) -> DuckValue:
        one, other = _as_decimal(left), _as_decimal(right)
        if one is None or other is None:
            raise differs(node)
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        sums = decimal(whole + scale + 1, scale)
        products = decimal(one.precision + other.precision + 1, one.scale + other.scale)
        kind = products if sign == "*" else sums
        if kind is None:
            raise differs(node, "more digits than a decimal has")
        if sign == "*":
            # Two decimals of 18 digits or less would be multiplied in 64 bits.
            wide = pa.decimal128(max(one.precision, 19), one.scale)
            text = f"({as_type(left, wide)} * {as_type(right, other)})"
        else:
            text = f"({as_type(left, kind)} {sign} {as_type(right, kind)})"
        text = f"CAST({text} AS {duckdb_text(kind)})"
        return _made(text, kind, f"({{}} {sign} {{}})", left, right)

    def _division(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression", "typed", "safe")
        left, right = self.value(node.left), self.value(node.right)
        kinds = (left.type, right.type)
        if not all(is_whole(kind) or t.is_floating(kind) for kind in kinds):
            if pa.float64() not in kinds or common(kinds) is None:
                raise differs(node, "the scale of a quotient")
        elif pa.float32() in kinds:
            raise differs(node)
        over, under = as_type(left, pa.float64()), as_type(right, pa.float64())
        return _made(_unless_zero(under, f"({over} / {under})"), pa.float64(), "({} / {})", left, right)

    def _remainder(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        left, right = self.value(node.left), self.value(node.right)
        kind = common((left.type, right.type))
        if kind is None or not is_whole(kind):
            raise differs(node)
        over, under = as_type(left, kind), as_type(right, kind)
        text = f"CAST(({over} % {under}) AS {duckdb_text(kind)})"
        return _made(_unless_zero(under, text), kind, "({} % {})", left, right)

    def _abs(self, node: Node) -> DuckValue:
        value = self._number_of(node)
        return _made(f"CAST(abs({value.text}) AS {duckdb_text(value.type)})", value.type, "abs({})", value)

    def _number_of(self, node: Node) -> DuckValue:
        check_only(node, "this")
        value = self.value(node.this)
        if not (is_whole(value.type) or t.is_floating(value.type)):
            raise differs(node)
        return value

    def _floor_or_ceil(self, node: Node) -> DuckValue:
        value = self._number_of(node)
        name = "floor" if isinstance(node, exp.Floor) else "ceil"
        if value.type == pa.float32():
            raise differs(node)
        text = as_type(value, pa.int64()) if is_whole(value.type) else f"CAST({name}({value.text}) AS BIGINT)"
        return _made(text, pa.int64(), f"{name.upper()}({{}})", value)

    def _round(self, node: Node) -> DuckValue:
        """Half up, on the digits that Spark shows of a double."""
        check_only(node, "this", "decimals")
        value, places = self.value(node.this), node.args.get("decimals")
        if places is not None and (not isinstance(places, exp.Literal) or places.is_string):
            raise differs(node)
        digits = "0" if places is None else str(places.this)
        if not digits.isdecimal() or int(digits) > _MOST_DECIMALS:
            raise differs(node)
        if is_whole(value.type):
            return _made(value.text, value.type, f"round({{}}, {digits})", value)
        if value.type != pa.float64():
            raise differs(node)
        rounded = f"CAST(CAST(CAST({value.text} AS VARCHAR) AS DECIMAL(38, {digits})) AS DOUBLE)"
        text = (
            f"CASE WHEN abs({value.text}) < {_LARGEST_ROUNDED} THEN {rounded}"
            f" WHEN {value.text} IS NOT NULL THEN error('round of a large number') END"
        )
        return _made(text, value.type, f"round({{}}, {digits})", value)

    def _cast(self, node: Node) -> DuckValue:
        check_only(node, "this", "to", "safe")
        kind, inner = _type_named(node.args["to"]), node.this
        if kind is None:
            raise differs(node)
        if isinstance(inner, exp.Literal) and inner.is_string:
            return _cast_text(node, str(inner.this), kind)
        value = self.value(inner)
        given = value.type
        if t.is_decimal(given) and value.literal is not None and kind == pa.float64():
            text = f"CAST({literal_text(value.literal)} AS DOUBLE)"
        elif t.is_floating(given) and is_whole(kind):
            text = f"CAST(trunc({value.text}) AS {duckdb_text(kind)})"  # Spark cuts off, DuckDB rounds
        elif given == kind or t.is_null(given) or _is_cast_alike(given, kind):
            text = as_type(value, kind)
        else:
            raise differs(node)
        return _made(text, kind, None, value)

    # -- texts and dates

    def _text_of(self, node: Node, *names: str) -> DuckValue:
        check_only(node, "this", *names)
        value = self.value(node.this)
        if value.type != pa.string():
            raise differs(node)
        return value

    def _letters(self, node: Node) -> DuckValue:
        """Java and DuckDB have the same capitals for ASCII only."""
        value = self._text_of(node)
        name = "upper" if isinstance(node, exp.Upper) else "lower"
        text = (
            f"CASE WHEN strlen({value.text}) = length({value.text}) THEN {name}({value.text})"
            f" WHEN {value.text} IS NOT NULL THEN error('{name} of letters outside of ASCII') END"
        )
        return _made(text, pa.string(), f"{name}({{}})", value)

    def _length(self, node: Node) -> DuckValue:
        value = self._text_of(node)
        return _made(f"CAST(length({value.text}) AS INTEGER)", pa.int32(), "length({})", value)

    def _trim(self, node: Node) -> DuckValue:
        value = self._text_of(node)
        return _made(f"trim({value.text}, ' ')", pa.string(), "trim({})", value)

    def _substring(self, node: Node) -> DuckValue:
        value = self._text_of(node, "start", "length")
        given = [node.args.get("start"), node.args.get("length")]
        numbers = [str(each.this) for each in given if isinstance(each, exp.Literal) and not each.is_string]
        if len(numbers) != sum(each is not None for each in given) or not all(map(str.isdecimal, numbers)):
            raise differs(node)
        if not numbers or int(numbers[0]) < 1:
            raise differs(node)
        return _made(f"substring({value.text}, {', '.join(numbers)})", pa.string(), None, value)

    def _concat(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression", "expressions", "safe", "coalesce")
        parts = [self.value(each) for each in (node.expressions or [node.left, node.right])]
        if node.args.get("coalesce") or any(part.type != pa.string() for part in parts):
            raise differs(node)
        return _made(f"({' || '.join(part.text for part in parts)})", pa.string(), None, *parts)

    def _date_of(self, node: Node) -> DuckValue:
        inner = node.this if isinstance(node, exp.TsOrDsToDate) else node
        if isinstance(node, exp.TsOrDsToDate):
            check_only(node, "this")
        value = self.value(inner)
        if not t.is_date(value.type):
            raise differs(node, "not a date")
        return value

    def _date_part(self, node: Node) -> DuckValue:
        check_only(node, "this")
        value = self._date_of(node.this)
        name = type(node).__name__.lower()
        return _made(f"CAST({name}({value.text}) AS INTEGER)", pa.int32(), f"{name}({{}})", value)

    def _date_diff(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        end, start = self._date_of(node.this), self._date_of(node.expression)
        return _made(f"CAST(({end.text} - {start.text}) AS INTEGER)", pa.int32(), "datediff({}, {})", end, start)

    # -- nested values

    def _array(self, node: Node) -> DuckValue:
        check_only(node, "expressions")
        values = [self.value(each) for each in node.expressions]
        if not values:
            raise differs(node)
        kind, texts = self._together(node, values)
        return _made(f"[{', '.join(texts)}]", list_of(kind), None, *values)

    def _struct(self, node: Node) -> DuckValue:
        check_only(node, "expressions")
        if not all(isinstance(each, exp.PropertyEQ) for each in node.expressions):
            raise differs(node)
        values = {each.this.name: self.value(each.expression) for each in node.expressions}
        if len({name.lower() for name in values}) != len(node.expressions):
            raise differs(node)
        text = ", ".join(f"{quoted(name)}: {value.text}" for name, value in values.items())
        return _made("{" + text + "}", pa.struct([(n, v.type) for n, v in values.items()]), None, *values.values())

    def _map(self, node: Node) -> DuckValue:
        check_only(node, "keys", "values")
        listed = [node.args[name] for name in ("keys", "values")]
        if not all(isinstance(each, exp.Array) for each in listed):
            raise differs(node)
        keys, items = (self._array(each) for each in listed)
        return _made(f"MAP({keys.text}, {items.text})", pa.map_(keys.type.value_type, items.type.value_type), None)

    # -- aggregates and windows

    def _count(self, node: Node) -> DuckValue:
        check_only(node, "this", "big_int")
        if isinstance(node.this, exp.Star):
            return DuckValue("count(*)", pa.int64(), "count(1)", has_aggregate=True)
        if isinstance(node.this, exp.Distinct):
            check_only(node.this, "expressions")
            if len(node.this.expressions) != 1:
                raise differs(node)
            value = self.value(node.this.expressions[0])
            if not is_exact(value.type):
                raise differs(node, "not grouped alike")
            return _aggregate(f"count(DISTINCT {value.text})", pa.int64(), "count(DISTINCT {})", value)
        value = self.value(node.this)
        return _aggregate(f"count({value.text})", pa.int64(), "count({})", value)

    def _sum(self, node: Node) -> DuckValue:
        check_only(node, "this")
        value = self.value(node.this)
        if t.is_decimal(value.type):
            kind = pa.decimal128(min(38, value.type.precision + 10), value.type.scale)
        elif is_whole(value.type):
            kind = pa.int64()
        elif t.is_floating(value.type):
            kind, value = pa.float64(), replace(value, text=as_type(value, pa.float64()))
        else:
            raise differs(node)
        return _aggregate(f"CAST(sum({value.text}) AS {duckdb_text(kind)})", kind, "sum({})", value)

    def _avg(self, node: Node) -> DuckValue:
        value = self._number_of(node)
        return _aggregate(f"avg({as_type(value, pa.float64())})", pa.float64(), "avg({})", value)

    def _extreme(self, node: Node) -> DuckValue:
        check_only(node, "this")
        value = self.value(node.this)
        if not is_plain(value.type):
            raise differs(node, "not ordered alike")
        name = "min" if isinstance(node, exp.Min) else "max"
        return _aggregate(f"{name}({value.text})", value.type, f"{name}({{}})", value)

    def _filter(self, node: Node) -> DuckValue:
        check_only(node, "this", "expression")
        if not isinstance(node.this, _AGGREGATES) or not isinstance(node.this, exp.Count):
            raise differs(node)  # the casts of the others would come between
        value, when = self.value(node.this), self.condition(node.expression.this)
        return DuckValue(f"{value.text} FILTER (WHERE {when.text})", value.type, has_aggregate=True)

    def _window(self, node: Node) -> DuckValue:
        check_only(node, "this", "partition_by", "order", "over")
        function = type(node.this)
        order = node.args.get("order")
        if function not in _RANKINGS or order is None:
            raise differs(node)
        parts = [self.value(each) for each in node.args.get("partition_by") or ()]
        if not all(is_exact(each.type) for each in parts):
            raise differs(node, "not grouped alike")
        by = f"PARTITION BY {', '.join(each.text for each in parts)} " if parts else ""
        orders = ", ".join(self.ordered(each)[0] for each in order.expressions)
        return DuckValue(f"CAST({_RANKINGS[function]}() OVER ({by}ORDER BY {orders}) AS INTEGER)", pa.int32())

    def ordered(self, node: Node, position: tuple[int, DuckValue] | None = None) -> tuple[str, DuckValue]:
        """One of the values that rows are ordered by, in the order that Spark has them. `position`: a column's."""
        check_only(node, "this", "desc", "nulls_first")
        value = position[1] if position else self.value(node.this)
        if not is_plain(value.type) and not t.is_null(value.type):
            raise differs(node, "not ordered alike")
        text = str(position[0]) if position else f"({value.text})"
        way = "DESC" if node.args.get("desc") else "ASC"
        return f"{text} {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}", value


def _number(node: Node, text: str) -> DuckValue:
    digits = text.removeprefix("-")
    if digits.isdecimal():
        for kind in (pa.int32(), pa.int64()):
            bound = 1 << (kind.bit_width - 1)
            if -bound <= int(text) < bound:
                return DuckValue(f"CAST({literal_text(text)} AS {duckdb_text(kind)})", kind, text, text)
        raise differs(node)
    if re.fullmatch(r"\d*\.\d+|\d+\.", digits):
        number = Decimal(text).as_tuple()
        scale = -int(number.exponent)
        precision = max(len(number.digits), scale)
        found = decimal(precision, scale)
        if found is not None and Decimal(text) != 0:
            return DuckValue(f"CAST({literal_text(text)} AS {duckdb_text(found)})", found, text, text)
        raise differs(node)
    if re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d+", digits):
        return DuckValue(f"CAST({literal_text(text)} AS DOUBLE)", pa.float64(), None, text)
    raise differs(node)


def _as_decimal(value: DuckValue) -> pa.DataType | None:
    """The decimal that Spark makes of a side of an operation: of a whole constant, one with just its digits."""
    if value.literal is not None and is_whole(value.type):
        return pa.decimal128(len(value.literal.removeprefix("-").lstrip("0")) or 1, 0)
    return decimal_of(value.type)


def _as_date(value: DuckValue) -> DuckValue:
    """A text that is a date, as that date."""
    if value.type != pa.string():
        return value
    if value.literal is None or not is_date(value.literal):
        raise DiffersError(f"{value.text} (compared with a date)")
    return DuckValue(f"DATE {literal_text(value.literal)}", pa.date32())


def is_date(text: str) -> bool:
    """Whether it is a day as Spark writes it."""
    try:
        return bool(_DATE.fullmatch(text) and dt.date.fromisoformat(text))
    except ValueError:
        return False


def _cast_text(node: Node, text: str, kind: pa.DataType) -> DuckValue:
    if t.is_date(kind) and is_date(text):
        return DuckValue(f"DATE {literal_text(text)}", kind, None)
    if kind == pa.string() and _PLAIN_TEXT.fullmatch(text):
        return DuckValue(f"CAST({literal_text(text)} AS VARCHAR)", kind, None)
    if t.is_decimal(kind) and re.fullmatch(r"-?\d+(\.\d+)?", text):
        scale = len(text.partition(".")[2])
        if scale <= kind.scale and len(text.lstrip("-0").partition(".")[0]) <= kind.precision - kind.scale:
            return DuckValue(f"CAST({literal_text(text)} AS {duckdb_text(kind)})", kind, None)
    raise differs(node)


def _is_cast_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether both engines make the same of every value, but for those of which DuckDB makes nothing."""
    if is_whole(given):
        return is_whole(kind) or t.is_decimal(kind) or kind in (pa.float64(), pa.bool_(), pa.string())
    if t.is_boolean(given):
        return is_whole(kind) or kind == pa.string()
    if t.is_decimal(given):
        return bool(kind == pa.float64() and given.precision <= EXACT_DIGITS)
    return bool(t.is_floating(given) and t.is_floating(kind))


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
        kinds.DATE: pa.date32(),
    }.get(node.this)


def _unless_zero(divisor: str, text: str) -> str:
    return f"CASE WHEN {divisor} = 0 THEN error('division by zero') ELSE {text} END"


def _named(pattern: str | None, *values: DuckValue) -> str | None:
    names = [value.name for value in values]
    return None if pattern is None or None in names else pattern.format(*names)


def _made(text: str, kind: pa.DataType, name: str | None, *values: DuckValue) -> DuckValue:
    return DuckValue(text, kind, _named(name, *values), has_aggregate=any(value.has_aggregate for value in values))


def _aggregate(text: str, kind: pa.DataType, name: str, value: DuckValue) -> DuckValue:
    if value.has_aggregate:
        raise DiffersError(f"{text} (an aggregate of an aggregate)")
    return DuckValue(text, kind, _named(name, value), has_aggregate=True)


_COMPARISONS: Final = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_RANKINGS: Final = {exp.RowNumber: "row_number"}
_AGGREGATES: Final = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
_TRANSLATIONS: Final[Mapping[type, Callable[[Translator, Any], DuckValue]]] = {
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
    exp.Coalesce: Translator._coalesce,
    exp.Nullif: Translator._nullif,
    **dict.fromkeys(_ARITHMETIC, Translator._arithmetic),
    exp.Div: Translator._division,
    exp.Mod: Translator._remainder,
    exp.Abs: Translator._abs,
    exp.Floor: Translator._floor_or_ceil,
    exp.Ceil: Translator._floor_or_ceil,
    exp.Round: Translator._round,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Upper: Translator._letters,
    exp.Lower: Translator._letters,
    exp.Length: Translator._length,
    exp.Trim: Translator._trim,
    exp.Substring: Translator._substring,
    exp.Concat: Translator._concat,
    exp.DPipe: Translator._concat,
    exp.Year: Translator._date_part,
    exp.Month: Translator._date_part,
    exp.Day: Translator._date_part,
    exp.Quarter: Translator._date_part,
    exp.DateDiff: Translator._date_diff,
    exp.Array: Translator._array,
    exp.Struct: Translator._struct,
    exp.VarMap: Translator._map,
    exp.Map: Translator._map,
    exp.Count: Translator._count,
    exp.Sum: Translator._sum,
    exp.Avg: Translator._avg,
    exp.Min: Translator._extreme,
    exp.Max: Translator._extreme,
    exp.Filter: Translator._filter,
    exp.Window: Translator._window,
}
