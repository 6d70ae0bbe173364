"""Expressions of Spark's SQL for the embedded engine, with the types and names that Spark gives them.

Only what is known to mean the same is taken; everything else is `DiffersError`. Functions and operators are those of
`functions`, which were compared with Spark over values of all kinds. Where the engines differ for some values only (a
number that overflows, a division by zero), the engine fails for these, and the query is left to Spark, which knows
whether they are an error.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import permutations
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep_format.schema.arrow import is_any_list
from skep_sql.parsing.statements import Node
from skep_sql.parsing.written import is_read_alike
from skep_sql.spark_release import is_spark_3
from skep_sql.translation.aggregates import (
    OF_ANY_ORDER,
    OF_ORDER,
    Aggregate,
    aggregate,
    is_aggregate,
    is_of_window,
    of_window,
    window_name,
)
from skep_sql.translation.arithmetic import SIGNS, arithmetic, negated, rounded
from skep_sql.translation.constants import GivenArgument, is_plain_pattern
from skep_sql.translation.functions import found_function
from skep_sql.translation.spark_types import (
    LOCAL,
    UTC,
    cast,
    common,
    decimal,
    is_exact,
    is_plain,
    is_whole,
    list_of,
    narrowed,
    quoted,
    sql_name,
)
from skep_sql.translation.values import (
    DiffersError,
    EngineValue,
    NameScope,
    as_type,
    check_only,
    comparable,
    differs,
    literal_text,
    made,
    named,
)
from skep_table.query.filters.text import binds_otherwise

t = pa.types
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f\x7f]*')
_LONGEST: Final = 100_000  # what some functions are made of mentions their argument more than once
_NULL: Final = EngineValue("NULL", pa.null(), "NULL")
_VARIABLE: Final = "namedlambdavariable()"


class Translator:
    """Translates the expressions of one SELECT.

    `windows`: those that its WINDOW clause names; `groups`: what its GROUP BY has sets of; `is_ordered`: its rows
    have no order of their own that an aggregate would follow.
    """

    def __init__(
        self,
        names: NameScope,
        windows: Mapping[str, Node] | None = None,
        groups: Sequence[Node] = (),
        *,
        is_ordered: bool = False,
    ) -> None:
        self._is_ordered = is_ordered
        self._is_sorted = False
        self._names = names
        self._windows = windows or {}
        self._groups = groups
        self._variables: Mapping[str, EngineValue] = {}

    def value(self, node: Node | None) -> EngineValue:
        """DiffersError for what is left to Spark; None is an argument that a call lacks."""
        if node is None:
            raise DiffersError("an argument is missing")
        translate = _TRANSLATIONS.get(type(node))
        if translate is None:
            raise differs(node)
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

    def _together(self, node: Node, values: Sequence[EngineValue]) -> tuple[pa.DataType, list[str]]:
        """Values in the type that Spark brings them to."""
        kind = common(value.type for value in values)
        if kind is None:
            raise differs(node, "types differ")
        return kind, [as_type(value, kind) for value in values]

    # -- functions and operators

    def _call(self, node: Node) -> EngineValue:
        name, nodes = _called(node)
        if is_aggregate(name):
            found = self._aggregate(node, name, nodes, in_window=False)
            return EngineValue(found.text(), found.type, found.name, has_aggregate=True)
        if name in _CALLS:
            return _CALLS[name](self, node, nodes)
        first, others = nodes[:1], nodes[1:]
        has_unit = name == "extract" or (name in _OF_UNITS and len(nodes) == 3)
        if has_unit and isinstance(first[0], exp.Column | exp.Var):
            unit = first[0].name
            values = [EngineValue(unit, pa.string(), unit, unit.lower())]
        else:
            values = [self.value(each) for each in first]
        values += [self.value(each) for each in others]
        return self._call_of(node, name, values)

    def _call_of(self, node: Node, name: str, values: list[EngineValue]) -> EngineValue:
        if name in SIGNS and len(values) == 2:
            return arithmetic(node, name, *values)
        if name in _ROUNDING and values and t.is_decimal(values[0].type):
            return rounded(node, name, values)
        return self._known(node, name, values)

    def _known(self, node: Node, name: str, values: Sequence[EngineValue]) -> EngineValue:
        """By the table of functions."""
        if name == "datediff" and len(values) == 2:
            return replace(self._known(node, "date_diff", values), name=named("datediff({}, {})", *values))
        found, typed = None, values
        for kind in _kinds_of_null(values):
            typed = [
                replace(each, text=cast("NULL", kind), type=kind) if t.is_null(each.type) else each for each in values
            ]
            found = found_function(name, [GivenArgument(each.type, each.literal) for each in typed])
            if found is not None:
                break
        if found is None:
            raise differs(node)
        kind = found.type or typed[0].type
        texts = [value.text for value in typed]
        if name == "extract":
            text = f"extract({texts[0]} FROM {texts[1]})"
        elif name[0].isalpha() and name != "div":
            text = f"{name}({', '.join(texts)})"
        else:
            text = f"({texts[0]} {name} {texts[1]})" if len(texts) == 2 else f"({name} {texts[0]})"
        return made(cast(text, kind) if found.is_cast else text, kind, found.name, *values)

    # -- columns and constants

    def _column(self, node: Node) -> EngineValue:
        root = node
        while isinstance(root, exp.Dot):
            root = root.this
        if isinstance(root, exp.Identifier):
            if not isinstance(node, exp.Dot):
                return self._variable(node)
            return member(self._column(node.this), node.expression, node)
        if isinstance(node, exp.Dot) and not isinstance(root, exp.Column):
            return member(self.value(node.this), node.expression, node)
        if isinstance(root, exp.Column) and not root.table and root.name.lower() in self._variables:
            if isinstance(node, exp.Column):
                return self._variable(node)
            return member(self._column(node.this), node.expression, node)
        return self._names.column(node)

    def _variable(self, node: Node) -> EngineValue:
        found = self._variables.get(node.name.lower())
        if found is None:
            raise differs(node)
        return found

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

    def _bytes(self, node: Node) -> EngineValue:
        digits = str(node.this).upper()
        if len(digits) % 2:
            raise differs(node)
        return EngineValue(f"X'{digits}'", pa.binary(), f"X'{digits}'")

    def _boolean(self, node: Node) -> EngineValue:
        word = "true" if node.this else "false"
        return EngineValue(word, pa.bool_(), word, word)

    def _null(self, _node: Node) -> EngineValue:
        return _NULL

    def _neg(self, node: Node) -> EngineValue:
        check_only(node, "this")
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return _number(node, f"-{inner.this}")
        return negated(node, self.value(inner))

    # -- conditions

    def _logic(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        left, right = self.condition(node.left), self.condition(node.right)
        word = "AND" if isinstance(node, exp.And) else "OR"
        return made(f"({left.text} {word} {right.text})", pa.bool_(), f"({{}} {word} {{}})", left, right)

    def _not(self, node: Node) -> EngineValue:
        check_only(node, "this")
        if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            value = self.value(node.this.this)
            return made(f"({value.text} IS NOT NULL)", pa.bool_(), "({} IS NOT NULL)", value)
        value = self.condition(node.this)
        return made(f"(NOT {value.text})", pa.bool_(), "(NOT {})", value)

    def _comparable(self, node: Node, *sides: Node) -> tuple[list[str], list[EngineValue]]:
        values = [self.value(side) for side in sides]
        for is_kind, read in ((t.is_timestamp, _as_time), (t.is_date, _as_date)):
            if any(is_kind(value.type) for value in values):
                values = [read(value) for value in values]
        if any(is_whole(value.type) for value in values):
            values = [_as_number(value) for value in values]
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
        if any(t.is_decimal(one.type) and one.literal and is_whole(other.type) for one, other in permutations(values)):
            shown = None  # Spark compares with a whole number instead
        return made(f"({left} {sign} {right})", pa.bool_(), shown, *values)

    def _is(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return made(f"({value.text} IS NULL)", pa.bool_(), "({} IS NULL)", value)
        if isinstance(node.expression, exp.Boolean) and t.is_boolean(value.type):
            word = "true" if node.expression.this else "false"
            return made(f"({value.text} <=> {word})", pa.bool_(), f"({{}} <=> {word})", value)
        raise differs(node)

    def _between(self, node: Node) -> EngineValue:
        check_only(node, "this", "low", "high")
        parts = [
            self._comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())),
            self._comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())),
        ]
        return made(f"({parts[0].text} AND {parts[1].text})", pa.bool_(), "({} AND {})", *parts)

    def _in(self, node: Node) -> EngineValue:
        check_only(node, "this", "expressions", "query")
        query = node.args.get("query")
        if query is None:
            (left, *others), values = self._comparable(node, node.this, *node.expressions)
            names = f"({{}} IN ({', '.join(['{}'] * len(others))}))"
            return made(f"({left} IN ({', '.join(others)}))", pa.bool_(), names, *values)
        value = self.value(node.this)
        text, columns = self._names.subquery(query)
        if len(columns) != 1:
            raise differs(node)
        kind, (left, _) = self._together(node, [value, columns[0]])
        if not is_exact(kind):
            raise differs(node, "not compared alike")
        found = f"SELECT {as_type(replace(columns[0], text='c0'), kind)} FROM ({text}) AS q"
        return made(f"({left} IN ({found}))", pa.bool_(), None, value)

    def _exists(self, node: Node) -> EngineValue:
        check_only(node, "this")
        text, _ = self._names.subquery(node.this)
        return EngineValue(f"EXISTS ({text})", pa.bool_())

    def _scalar(self, node: Node) -> EngineValue:
        check_only(node, "this")
        text, columns = self._names.subquery(node.this)
        if len(columns) != 1:
            raise differs(node)
        return EngineValue(f"({text})", columns[0].type, "scalarsubquery()")

    def _like(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression", "negate")
        value, pattern = self.value(node.this), self.value(node.expression)
        if (
            value.type != pa.string()
            or pattern.literal is None
            or pattern.type != pa.string()
            or "\\" in pattern.literal
        ):
            raise differs(node)
        text, name = f"({value.text} LIKE {pattern.text})", "{} LIKE {}"
        if node.args.get("negate"):
            text, name = f"(NOT {text})", "(NOT {} LIKE {})"
        return made(text, pa.bool_(), name, value, pattern)

    def _matches(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression", "negate")
        value, pattern = self.value(node.this), self.value(node.expression)
        if value.type != pa.string() or pattern.literal is None or not is_plain_pattern(pattern.literal):
            raise differs(node, "a pattern")
        text, name = f"rlike({value.text}, {pattern.text})", "RLIKE({}, {})"
        if node.args.get("negate"):
            text, name = f"(NOT {text})", "(NOT RLIKE({}, {}))"
        return made(text, pa.bool_(), name, value, pattern)

    # -- choices

    def _case(self, node: Node) -> EngineValue:
        check_only(node, "this", "ifs", "default")
        conditions, values = [], []
        for each in node.args["ifs"]:
            when = exp.EQ(this=node.this.copy(), expression=each.this.copy()) if node.this else each.this
            conditions.append(self.condition(when))
            values.append(self.value(each.args["true"]))
        default = node.args.get("default")
        values.append(self.value(default) if default is not None else _NULL)
        parts = ["WHEN {} THEN {}"] * len(conditions) + (["ELSE {}"] if default is not None else [])
        pairs = [each for pair in zip(conditions, values, strict=False) for each in pair]
        shown = [*pairs, values[-1]] if default is not None else pairs
        return replace(self._chosen(node, conditions, values), name=named(f"CASE {' '.join(parts)} END", *shown))

    def _if(self, node: Node) -> EngineValue:
        check_only(node, "this", "true", "false")
        other = node.args.get("false")
        when, then = self.condition(node.this), self.value(node.args["true"])
        values = [then, _NULL if other is None else self.value(other)]
        return replace(self._chosen(node, [when], values), name=named("(IF({}, {}, {}))", when, *values))

    def _chosen(self, node: Node, conditions: list[EngineValue], values: list[EngineValue]) -> EngineValue:
        kind, texts = self._together(node, values)
        whens = [f"WHEN {when.text} THEN {then}" for when, then in zip(conditions, texts, strict=False)]
        return made(f"CASE {' '.join(whens)} ELSE {texts[-1]} END", kind, None, *conditions, *values)

    def _first_known(self, node: Node, nodes: list[Node]) -> EngineValue:
        values = [self.value(each) for each in nodes]
        kind, texts = self._together(node, values)
        if not values:
            raise differs(node)
        name = f"{_called(node)[0]}({', '.join(['{}'] * len(values))})"
        return made(f"COALESCE({', '.join(texts)})", kind, name, *values)

    def _nullif(self, node: Node, nodes: list[Node]) -> EngineValue:
        if len(nodes) != 2:
            raise differs(node)
        one, other = nodes
        same, value = self._comparison(exp.EQ(this=one.copy(), expression=other.copy())), self.value(one)
        text = f"CASE WHEN {same.text} THEN NULL ELSE {value.text} END"
        found = made(text, value.type, None, same, value)
        return replace(found, name=named("nullif({}, {})", value, self.value(other)))

    def _nvl2(self, node: Node, nodes: list[Node]) -> EngineValue:
        if len(nodes) != 3:
            raise differs(node)
        values = [self.value(each) for each in nodes]
        kind, texts = self._together(node, values[1:])
        text = f"CASE WHEN {values[0].text} IS NOT NULL THEN {texts[0]} ELSE {texts[1]} END"
        return made(text, kind, "nvl2({}, {}, {})", *values)

    def _moment(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Whole seconds since 1970, of times before it, too."""
        name, values = _called(node)[0], [self.value(each) for each in nodes]
        if len(values) != 1 or values[0].type != UTC:
            return self._known(node, name, values)
        if name == "unix_timestamp":  # cuts off the fraction, which of times before 1970 is later
            text = f"(unix_micros({values[0].text}) div 1000000L)"
            return made(text, pa.int64(), "unix_timestamp({}, yyyy-MM-dd HH:mm:ss)", *values)
        return made(_seconds(values[0].text), pa.int64(), f"{name}({{}})", *values)

    def _between_times(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Whole units between two times."""
        unit = nodes[0].name.lower() if len(nodes) == 3 and isinstance(nodes[0], exp.Column | exp.Var) else ""
        if unit not in _MICROSECONDS:
            raise differs(node)
        one, other = (self.value(each) for each in nodes[1:])
        if one.type != UTC or other.type != UTC:
            raise differs(node)
        text = f"((unix_micros({other.text}) - unix_micros({one.text})) div {_MICROSECONDS[unit]}L)"
        return made(text, pa.int64(), f"timestampdiff({nodes[0].name}, {{}}, {{}})", one, other)

    def _added_time(self, node: Node, nodes: list[Node]) -> EngineValue:
        """A time and a constant number of units."""
        unit = nodes[0].name.lower() if len(nodes) == 3 and isinstance(nodes[0], exp.Column | exp.Var) else ""
        if unit not in _UNITS:
            raise differs(node)
        number, value = (self.value(each) for each in nodes[1:])
        if number.type != pa.int32() or number.literal is None or value.type != UTC:
            raise differs(node)
        text = f"({value.text} + INTERVAL '{number.literal}' {unit.upper()})"
        return made(text, UTC, f"timestampadd({nodes[0].name}, {{}}, {{}})", number, value)

    def _round(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Doubles are rounded half up on the digits that Spark shows of them."""
        values = [self.value(each) for each in nodes]
        if not values or values[0].type != pa.float64():
            return self._call_of(node, "round", values)
        digits = values[1].literal if len(values) == 2 else "0"
        if len(values) > 2 or digits is None or not digits.isdecimal() or int(digits) > _PLAIN_SCALE:
            raise differs(node)
        value = values[0].text
        found = cast(cast(double_text(values[0]), pa.decimal128(38, int(digits))), pa.float64())
        large = cast(f"concat('a large number is rounded: ', CAST({value} AS string))", pa.float64())
        text = f"CASE WHEN abs({value}) < 1e15 THEN {found} WHEN {value} IS NOT NULL THEN {large} END"
        return made(text, pa.float64(), f"round({{}}, {digits})", values[0])

    def _element_at(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Beyond its end an array has null, by ANSI's rules an error."""
        values = [self.value(each) for each in nodes]
        if len(values) != 2 or not is_any_list(values[0].type) or not is_whole(values[1].type) or not is_spark_3():
            return self._known(node, "element_at", values)
        text = f"try_element_at({values[0].text}, {as_type(values[1], pa.int32())})"
        return made(text, values[0].type.value_type, "element_at({}, {})", *values)

    def _to_json(self, node: Node, nodes: list[Node]) -> EngineValue:
        values = [self.value(each) for each in nodes]
        if len(values) != 1 or not _has_plain_json(values[0].type):
            raise differs(node)
        return made(f"to_json({values[0].text})", pa.string(), "to_json({})", *values)

    def _sorted(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Of a sorted list it does not matter in which order its elements came."""
        before = self._is_ordered, self._is_sorted
        self._is_ordered = self._is_sorted = True
        try:
            values = [self.value(each) for each in nodes]
        finally:
            self._is_ordered, self._is_sorted = before
        return self._known(node, "sort_array", values)

    def _sequence(self, node: Node, nodes: list[Node]) -> EngineValue:
        if len(nodes) != 3 or not isinstance(nodes[2], exp.Interval):
            return self._known(node, "sequence", [self.value(each) for each in nodes])
        start, stop = (self.value(each) for each in nodes[:2])
        number, unit = _interval(nodes[2])
        if not (t.is_date(start.type) and t.is_date(stop.type)) or unit not in ("day", "week", "month", "year"):
            raise differs(node)
        text = f"sequence({start.text}, {stop.text}, INTERVAL '{number}' {unit.upper()})"
        return made(
            text, list_of(pa.date32()), f"sequence({{}}, {{}}, INTERVAL '{number}' {unit.upper()})", start, stop
        )

    def _size(self, node: Node, nodes: list[Node]) -> EngineValue:
        """That of null is -1, by ANSI's rules null."""
        values = [self.value(each) for each in nodes]
        if len(values) != 1 or not (is_any_list(values[0].type) or t.is_map(values[0].type)):
            raise differs(node)
        text = f"size({values[0].text})"
        return made(f"coalesce({text}, -1)" if is_spark_3() else text, pa.int32(), f"{_called(node)[0]}({{}})", *values)

    def _contains(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Whether a list has a value; null where it has not, but null."""
        values = [self.value(each) for each in nodes]
        if len(values) != 2 or not is_any_list(values[0].type) or values[0].type.value_type != values[1].type:
            raise differs(node)
        listed, value = (each.text for each in values)
        if not is_exact(values[1].type):
            raise differs(node, "not compared alike")
        has, null = f"array_contains({listed}, {value})", f"exists({listed}, x -> x IS NULL)"
        return made(f"({has} OR nullif({null}, true))", pa.bool_(), "array_contains({}, {})", *values)

    def _isnan(self, node: Node, nodes: list[Node]) -> EngineValue:
        values = [self.value(each) for each in nodes]
        if len(values) != 1 or not t.is_floating(values[0].type):
            raise differs(node)
        return made(f"coalesce(isnan({values[0].text}), false)", pa.bool_(), "isnan({})", *values)

    # -- casts

    def _cast(self, node: Node) -> EngineValue:
        check_only(node, "this", "to", "safe")
        kind, inner = type_named(node.args["to"]), node.this
        if kind is None:
            raise differs(node)
        if isinstance(inner, exp.Literal) and inner.is_string and (found := _cast_text(str(inner.this), kind)):
            return found
        value = self.value(inner)
        word = "TRY_CAST" if node.args.get("safe") else "CAST"
        name = None if value.name is None else f"{word}({value.name} AS {sql_name(kind).upper()})"
        if t.is_decimal(value.type) and value.literal is not None and kind == pa.float64():
            return EngineValue(f"{value.literal}D", kind, name)
        if value.type == kind:
            return replace(value, literal=None)
        if t.is_null(value.type):
            return replace(value, text=as_type(value, kind), type=kind, literal=None, name=None)
        if is_whole(value.type) and value.literal is not None and is_whole(kind):  # 1L, 2S
            return replace(value, text=as_type(value, kind), type=kind, name=value.literal)
        gives_null = node.args.get("safe") or is_spark_3()
        if value.type == pa.string() and is_whole(kind) and gives_null:
            return replace(value, text=_whole_number(value.text, kind), type=kind, literal=None, name=name)
        if t.is_floating(value.type) and kind in (pa.int32(), pa.int64()) and is_spark_3():
            return replace(value, text=_cut_off(value.text, kind), type=kind, literal=None, name=name)
        if value.type == UTC and kind == pa.int64():
            return replace(value, text=_seconds(value.text), type=kind, name=name)
        if t.is_decimal(value.type) and kind == pa.string() and value.type.scale <= _PLAIN_SCALE:
            return replace(value, text=cast(value.text, kind), type=kind, literal=None, name=name)
        if t.is_floating(value.type) and t.is_decimal(kind):  # by its shortest text, as Spark rounds it
            text = narrowed(cast(double_text(value), pa.decimal128(38, 18)), kind, or_null=gives_null)
            return replace(value, text=text, type=kind, name=name)
        is_known = found_function(f"cast to {sql_name(kind)}", [GivenArgument(value.type)]) is not None
        if not is_known and not _is_cast_alike(value.type, kind):
            raise differs(node)
        is_wider = common((value.type, kind)) == kind
        text = cast(value.text, kind) if is_wider else narrowed(value.text, kind)
        return replace(value, text=text, type=kind, literal=None, name=name)

    # -- intervals

    def _moved(self, node: Node) -> EngineValue:
        """A sum or difference; of dates and times, too."""
        check_only(node, "this", "expression")
        sign = "+" if isinstance(node, exp.Add) else "-"
        if isinstance(node.right, exp.Interval):
            return self._moved_by(node, sign, self.value(node.left), node.right)
        if isinstance(node.left, exp.Interval) and sign == "+":
            return self._moved_by(node, sign, self.value(node.right), node.left)
        left, right = self.value(node.left), self.value(node.right)
        if t.is_date(left.type) and right.type in (pa.int8(), pa.int16(), pa.int32()):
            return self._known(node, "date_add" if sign == "+" else "date_sub", [left, right])
        if not (is_whole(left.type) or t.is_floating(left.type) or t.is_decimal(left.type)):
            return self._known(node, sign, [left, right])
        return arithmetic(node, sign, left, right)

    def _moved_by(self, node: Node, sign: str, value: EngineValue, interval: Node) -> EngineValue:
        count, unit = _interval(interval)
        months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
        if (t.is_date(value.type) and (months or unit in ("day", "week"))) or value.type == UTC or value.type == LOCAL:
            kind = value.type
        elif t.is_date(value.type):
            value, kind = replace(value, text=cast(value.text, UTC)), UTC
        else:
            raise differs(node)
        return EngineValue(
            cast(f"({value.text} {sign} INTERVAL '{count}' {unit.upper()})", kind), kind, None,
            has_aggregate=value.has_aggregate,
        )  # fmt: skip

    # -- nested values

    def _array(self, node: Node, nodes: list[Node]) -> EngineValue:
        values = [self.value(each) for each in nodes]
        if not values:
            raise differs(node)
        kind, texts = self._together(node, values)
        name = f"array({', '.join(['{}'] * len(values))})"
        return made(f"array({', '.join(texts)})", list_of(kind), name, *values)

    def _named_struct(self, node: Node, nodes: list[Node]) -> EngineValue:
        values = [self.value(each) for each in nodes]
        names = [value.literal for value in values[::2]]
        if None in names or len(values) % 2 or len({(name or "").lower() for name in names}) != len(names):
            raise differs(node)
        kind = pa.struct([(name, value.type) for name, value in zip(names, values[1::2], strict=True)])
        text = f"named_struct({', '.join(value.text for value in values)})"
        return made(text, kind, f"named_struct({', '.join(['{}'] * len(values))})", *values)

    def _struct(self, node: Node, nodes: list[Node]) -> EngineValue:
        values, fields = [], []
        for at, each in enumerate(nodes, 1):
            is_alias = isinstance(each, exp.Alias)
            value = self.value(each.this if is_alias else each)
            if is_alias:
                fields.append(each.alias)
            else:
                fields.append(each.name if isinstance(each, exp.Column | exp.Dot) else f"col{at}")
            values.append(replace(value, name=f"{value.name} AS {each.alias}") if is_alias and value.name else value)
        if len({each.lower() for each in fields}) != len(fields) or not fields:
            raise differs(node)
        kind = pa.struct([(name, value.type) for name, value in zip(fields, values, strict=True)])
        parts = (f"{literal_text(name)}, {value.text}" for name, value in zip(fields, values, strict=True))
        text = f"named_struct({', '.join(parts)})"
        return made(text, kind, f"struct({', '.join(['{}'] * len(values))})", *values)

    def _map(self, node: Node, nodes: list[Node]) -> EngineValue:
        values = [self.value(each) for each in nodes]
        if len(values) % 2 or not values:
            raise differs(node)
        literals = [value.literal for value in values[::2]]
        if None in literals or len(set(literals)) != len(literals):
            raise differs(node, "keys that may be equal")
        key, keys = self._together(node, values[::2])
        item, items = self._together(node, values[1::2])
        text = ", ".join(f"{one}, {other}" for one, other in zip(keys, items, strict=True))
        return made(f"map({text})", pa.map_(key, item), f"map({', '.join(['{}'] * len(values))})", *values)

    def _element(self, node: Node) -> EngineValue:
        check_only(node, "this", "expressions", "offset", "safe")
        value = self.value(node.this)
        (inner,) = node.expressions
        key = self.value(inner)
        if is_any_list(value.type) and is_whole(key.type):
            kind = value.type.value_type
            at = as_type(key, pa.int32()) if key.type != pa.int64() else key.text
            # Beyond its end an array has null; by ANSI's rules it is an error, as in the engine.
            text = f"get({value.text}, {at})" if is_spark_3() else f"{value.text}[{at}]"
        elif t.is_map(value.type) and key.type == value.type.key_type:
            kind, text = value.type.item_type, f"try_element_at({value.text}, {key.text})"
        else:
            raise differs(node)
        return made(text, kind, "{}[{}]", value, key)

    # -- functions of functions

    def _lambda(self, node: Node, kinds: Sequence[pa.DataType]) -> EngineValue:
        if not isinstance(node, exp.Lambda) or len(node.expressions) != len(kinds):
            raise differs(node)
        names = [each.name for each in node.expressions]
        before = self._variables
        own = {
            name.lower(): EngineValue(quoted(name), kind, _VARIABLE) for name, kind in zip(names, kinds, strict=True)
        }
        self._variables = {**before, **own}
        try:
            body = self.value(node.this)
        finally:
            self._variables = before
        if body.has_aggregate:
            raise differs(node)
        shown = named(f"lambdafunction({{}}, {', '.join([_VARIABLE] * len(names))})", body)
        listed = ", ".join(map(quoted, names))
        return EngineValue(f"({listed}) -> {body.text}", body.type, shown)

    def _over_elements(self, node: Node, nodes: list[Node]) -> EngineValue:
        name = _called(node)[0]
        if len(nodes) != 2:
            raise differs(node)
        value = self.value(nodes[0])
        if not is_any_list(value.type):
            raise differs(node)
        element = value.type.value_type
        is_indexed = isinstance(nodes[1], exp.Lambda) and len(nodes[1].expressions) == 2
        if is_indexed and name not in ("transform", "filter"):
            raise differs(node)
        function = self._lambda(nodes[1], [element, pa.int32()] if is_indexed else [element])
        if name != "transform" and not t.is_boolean(function.type):
            raise differs(node)
        kind = {"transform": list_of(function.type), "filter": value.type}.get(name, pa.bool_())
        return made(f"{name}({value.text}, {function.text})", kind, f"{name}({{}}, {{}})", value, function)

    def _reduced(self, node: Node, nodes: list[Node]) -> EngineValue:
        name = _called(node)[0]
        if len(nodes) not in (3, 4):
            raise differs(node)
        value, start = self.value(nodes[0]), self.value(nodes[1])
        if not is_any_list(value.type):
            raise differs(node)
        merge = self._lambda(nodes[2], [start.type, value.type.value_type])
        if merge.type != start.type:
            raise differs(node)
        parts = [value, start, merge]
        if len(nodes) == 4:
            parts.append(self._lambda(nodes[3], [start.type]))
        identity = EngineValue("", pa.null(), f"lambdafunction({_VARIABLE}, {_VARIABLE})")
        shown = named(f"{name}({', '.join(['{}'] * 4)})", *(parts if len(parts) == 4 else [*parts, identity]))
        kind = parts[-1].type if len(parts) == 4 else start.type
        return EngineValue(f"aggregate({', '.join(each.text for each in parts)})", kind, shown)

    def _over_entries(self, node: Node, nodes: list[Node]) -> EngineValue:
        name = _called(node)[0]
        if len(nodes) != 2:
            raise differs(node)
        value = self.value(nodes[0])
        if not t.is_map(value.type):
            raise differs(node)
        function = self._lambda(nodes[1], [value.type.key_type, value.type.item_type])
        if name == "map_filter" and t.is_boolean(function.type):
            kind = value.type
        elif name == "transform_values":
            kind = pa.map_(value.type.key_type, function.type)
        else:
            raise differs(node)
        return made(f"{name}({value.text}, {function.text})", kind, f"{name}({{}}, {{}})", value, function)

    # -- aggregates and windows

    def _aggregate(self, node: Node, name: str, nodes: list[Node], *, in_window: bool) -> Aggregate:
        if name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            return Aggregate(("count(1)",), pa.int64(), "count(1)")
        if (name in OF_ORDER and not in_window and not self._is_ordered) or (
            name == OF_ANY_ORDER and not self._is_sorted
        ):
            raise differs(node, "by the order of rows")
        is_distinct = len(nodes) == 1 and isinstance(nodes[0], exp.Distinct)
        if is_distinct:
            check_only(nodes[0], "expressions")
            nodes = nodes[0].expressions
        values = [self.value(each) for each in nodes]
        if not in_window and any(value.has_aggregate for value in values):
            raise differs(node, "an aggregate of an aggregate")
        return aggregate(node, name, values, is_distinct=is_distinct)

    def _grouping(self, node: Node, nodes: list[Node]) -> EngineValue:
        """Of GROUP BY with sets: whether a column is not among those of the row's set; for all columns, as bits."""
        name = _called(node)[0]
        values = [self.value(each) for each in nodes]
        shown = named(f"{name}({', '.join(['{}'] * len(values))})", *values)
        if name == "grouping":
            if len(values) != 1:
                raise differs(node)
            text, kind = f"grouping({values[0].text})", pa.int8()
        else:
            listed = values or [self.value(each) for each in self._groups]
            parts = (f"(grouping({value.text}) * {1 << at})" for at, value in enumerate(reversed(listed)))
            text, kind = " + ".join(parts), pa.int64()
            if not listed:
                raise differs(node)
        return EngineValue(cast(f"({text})", kind), kind, shown, has_aggregate=True)

    def _filter(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        name, nodes = _called(node.this)
        if not is_aggregate(name):
            raise differs(node)
        found, when = self._aggregate(node.this, name, nodes, in_window=False), self.condition(node.expression.this)
        shown = None
        if found.name is not None and when.name is not None:
            shown = f"{found.name} FILTER (WHERE {when.name})"
        return EngineValue(found.text(f" FILTER (WHERE {when.text})"), found.type, shown, has_aggregate=True)

    def _window(self, node: Node) -> EngineValue:
        check_only(node, "this", "partition_by", "order", "spec", "over", "alias")
        name, nodes = _called(node.this)
        spec = node
        if node.args.get("alias") is not None:
            found_spec = self._windows.get(node.alias.lower())
            if found_spec is None or any(node.args.get(each) for each in ("partition_by", "order", "spec")):
                raise differs(node)
            spec = found_spec
            check_only(spec, "this", "partition_by", "order", "spec")
        values: list[EngineValue] = []
        if is_of_window(name):
            values = [] if name in ("rank", "dense_rank", "percent_rank") else [self.value(each) for each in nodes]
            found = of_window(node.this, name, values)
        elif is_aggregate(name):
            found = self._aggregate(node.this, name, nodes, in_window=True)
        else:
            raise differs(node)
        parts = [self.value(each) for each in spec.args.get("partition_by") or ()]
        if not all(is_exact(each.type) for each in parts):
            raise differs(node, "not grouped alike")
        orders = [] if spec.args.get("order") is None else spec.args["order"].expressions
        texts = [self.ordered(each) for each in orders]
        if is_of_window(name) and not texts:
            raise differs(node)
        clauses = [
            f"PARTITION BY {', '.join(each.text for each in parts)}" if parts else "",
            f"ORDER BY {', '.join(text for text, _ in texts)}" if texts else "",
            _frame(spec.args.get("spec")),
        ]
        over = " ".join(each for each in clauses if each)
        has_aggregate = any(each.has_aggregate for each in parts) or any(v.has_aggregate for _, v in texts)
        shown = None
        ordered = [
            named(f"{{}} {text.rpartition(' NULLS ')[0].rpartition(' ')[2]} NULLS {text.rpartition(' ')[2]}", value)
            for text, value in texts
        ]
        if spec.args.get("spec") is None and None not in [*ordered, *(each.name for each in parts)]:
            shown = window_name(name, found.name, values, [str(each.name) for each in parts], [str(o) for o in ordered])
        return EngineValue(found.text(f" OVER ({over})"), found.type, shown, has_aggregate=has_aggregate)

    def ordered(self, node: Node, position: tuple[int, EngineValue] | None = None) -> tuple[str, EngineValue]:
        """One of the values that rows are ordered by, in the order that Spark has them. `position`: a column's."""
        check_only(node, "this", "desc", "nulls_first")
        value = position[1] if position else self.value(node.this)
        if not is_plain(value.type) and not t.is_null(value.type):
            raise differs(node, "not ordered alike")
        text = str(position[0]) if position else f"({comparable(value.text, value.type)})"
        if position and t.is_floating(value.type):
            text = comparable(f"c{position[0] - 1}", value.type)
        way = "DESC" if node.args.get("desc") else "ASC"
        return f"{text} {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}", value


def _kinds_of_null(values: Sequence[EngineValue]) -> list[pa.DataType]:
    """The types that a null without one may get among these arguments, in the order in which they are tried."""
    if not any(t.is_null(each.type) for each in values):
        return [pa.null()]
    others = [each.type for each in values if not t.is_null(each.type)]
    elements = [each.value_type for each in others if is_any_list(each)]
    return list(dict.fromkeys([*elements, *others, pa.string(), pa.int32()]))


def double_text(value: EngineValue) -> str:
    """A float or double as the shortest text that is its value."""
    return cast(value.text, pa.string())


def _whole_number(text: str, kind: pa.DataType) -> str:
    """A text as a whole number; null where it has no digit, or one too many. Others are an error: they are Spark's."""
    error = cast(f"concat('a text that is left to Spark: ', {text})", kind)
    digits = f"CASE WHEN rlike({text}, '[0-9]') THEN {error} END"
    return f"CASE WHEN rlike({text}, '^-?[0-9]{{1,18}}$') THEN TRY_CAST({text} AS {sql_name(kind)}) ELSE {digits} END"


def _cut_off(text: str, kind: pa.DataType) -> str:
    """A double as a whole number: the nearest one where it is too large, as Java has it."""
    most = (1 << (kind.bit_width - 1)) - 1
    bounds = ((f">= {most}D", str(most)), (f"<= -{most}D", str(-most - 1)))
    whens = " ".join(f"WHEN {text} {bound} THEN {cast(literal_text(value), kind)}" for bound, value in bounds)
    return f"CASE WHEN isnan({text}) THEN {cast('0', kind)} {whens} ELSE {cast(text, kind)} END"


def _seconds(text: str) -> str:
    return f"(unix_micros({text}) div 1000000L - CASE WHEN unix_micros({text}) % 1000000L < 0L THEN 1L ELSE 0L END)"


_MICROSECONDS: Final = {
    "week": 604_800_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
}  # fmt: skip


def _has_plain_json(kind: pa.DataType) -> bool:
    """Whether each value of the type has one text in JSON, in both engines."""
    if is_any_list(kind):
        return _has_plain_json(kind.value_type)
    if t.is_map(kind):
        return kind.key_type == pa.string() and _has_plain_json(kind.item_type)
    if t.is_struct(kind):
        return all(_has_plain_json(each.type) for each in kind)
    return kind in (pa.bool_(), pa.int32(), pa.int64(), pa.string(), pa.date32())


def member(value: EngineValue, field: Node, node: Node) -> EngineValue:
    """A member of a struct; of each struct in an array."""
    if not t.is_struct(value.type) or not isinstance(field, exp.Identifier):
        raise differs(node)
    found = [each for each in value.type if each.name.lower() == field.name.lower()]
    if len(found) != 1:
        raise differs(node)
    name = None if value.name is None else f"{value.name}.{field.name}"
    return EngineValue(f"{value.text}.{quoted(found[0].name)}", found[0].type, name, has_aggregate=value.has_aggregate)


def _frame(spec: Node | None) -> str:
    if spec is None:
        return ""
    check_only(spec, "kind", "start", "start_side", "end", "end_side")
    if str(spec.args["kind"]).upper() != "ROWS":
        raise differs(spec)
    sides = [_side(spec, name) for name in ("start", "end") if spec.args.get(name) is not None]
    if len(sides) == 1:
        return f"ROWS {sides[0]}"
    return f"ROWS BETWEEN {sides[0]} AND {sides[1]}"


def _side(spec: Node, name: str) -> str:
    value, side = spec.args[name], spec.args.get(f"{name}_side") or ""
    if isinstance(value, str):
        return f"{value} {side}".strip().upper()
    if isinstance(value, exp.Literal) and not value.is_string and value.this.isdecimal():
        return f"{value.this} {str(side).upper()}"
    raise differs(spec)


def _called(node: Node) -> tuple[str, list[Node]]:
    """The name by which a function was called, in lower case, or the sign of an operator; and its arguments."""
    if isinstance(node, exp.Anonymous):
        if node.args.get("quoted") or not isinstance(node.this, str):
            raise differs(node)
        name, nodes = node.name.lower(), list(node.expressions)
        if name == "position" and len(nodes) == 1 and isinstance(nodes[0], exp.In) and nodes[0].args.get("field"):
            return "locate", [nodes[0].this, nodes[0].args["field"]]  # POSITION(a IN b)
        return name, nodes
    if type(node) in _SIGNS:
        check_only(node, "this", "expression", "typed", "safe", "coalesce")
        return _SIGNS[type(node)], [node.this] if isinstance(node, exp.Unary) else [node.left, node.right]
    if isinstance(node, exp.Substring):
        check_only(node, "this", "start", "length")
        parts = [each for name in ("this", "start", "length") if (each := node.args.get(name)) is not None]
        return "substring", parts
    if isinstance(node, exp.Trim):
        check_only(node, "this", "expression", "position")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
        signs = node.args.get("expression")
        if signs is not None and name == "trim":
            raise differs(node)
        return name, [node.this] if signs is None else [signs, node.this]
    if isinstance(node, exp.Overlay):
        parts = [node.args.get(each) for each in ("this", "expression", "from_", "for_")]
        return "overlay", [each for each in parts if each is not None]
    if isinstance(node, exp.Extract):
        check_only(node, "this", "expression")
        return "extract", [node.this, node.expression]
    raise differs(node)


def _interval(node: Node) -> tuple[int, str]:
    """A whole number of one unit."""
    check_only(node, "this", "unit")
    unit = node.args.get("unit")
    text = str(node.this.this) if isinstance(node.this, exp.Literal) else ""
    if unit is None:
        text, _, word = text.strip().partition(" ")
    else:
        word = unit.name if isinstance(unit, exp.Var) else ""
    word = word.strip().lower().removesuffix("s")
    if not re.fullmatch(r"-?\d{1,9}", text) or word not in _UNITS:
        raise differs(node)
    return int(text), word


_PLAIN_SCALE: Final = 6  # to which a decimal's text has no exponent
_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _number(node: Node, text: str) -> EngineValue:
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


def _as_date(value: EngineValue) -> EngineValue:
    """A text that is a date, as that date."""
    if value.type != pa.string():
        return value
    if value.literal is None or not is_date(value.literal):
        raise DiffersError(f"{value.text} (compared with a date)")
    return EngineValue(cast(literal_text(value.literal), pa.date32()), pa.date32(), None)


def _as_number(value: EngineValue) -> EngineValue:
    """A text that is a whole number, as that number, as Spark compares it with one."""
    if value.type == pa.string() and value.literal is not None and re.fullmatch(r"-?\d{1,9}", value.literal):
        return EngineValue(str(int(value.literal)), pa.int32(), value.name, value.literal)
    return value


def _as_time(value: EngineValue) -> EngineValue:
    """A text that is a date or a time of day in UTC, as that time."""
    if value.type == pa.string() and value.literal is not None:
        found = _cast_text(value.literal, UTC)
        if found is not None:
            return replace(found, name=value.literal)
    if value.type == pa.string():
        raise DiffersError(f"{value.text} (compared with a time)")
    return value


def is_date(text: str) -> bool:
    """Whether it is a day as Spark writes it."""
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
    if t.is_date(kind) and is_date(text):
        return EngineValue(cast(literal_text(text), kind), kind, f"DATE '{text}'")
    if t.is_timestamp(kind) and (is_date(text) or _is_time(text)):
        whole = text if _is_time(text) else f"{text} 00:00:00"
        word = "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
        shown = whole.rstrip("0").rstrip(".") if "." in whole else whole
        return EngineValue(cast(literal_text(whole), kind), kind, f"{word} '{shown}'")
    if kind == pa.string() and _PLAIN_TEXT.fullmatch(text):
        return EngineValue(literal_text(text), kind, text)
    if is_whole(kind) and re.fullmatch(r"-?\d{1,18}", text) and abs(int(text)) < 1 << (kind.bit_width - 1):
        return EngineValue(cast(literal_text(str(int(text))), kind), kind, f"CAST({text} AS {sql_name(kind).upper()})")
    if t.is_decimal(kind) and re.fullmatch(r"-?\d+(\.\d+)?", text):
        scale = len(text.partition(".")[2])
        if scale <= kind.scale and len(text.lstrip("-0").partition(".")[0]) <= kind.precision - kind.scale:
            name = f"CAST({text} AS {sql_name(kind).upper()})"
            return EngineValue(cast(literal_text(text), kind), kind, name)
    return None


def type_named(node: Node) -> pa.DataType | None:
    """The type of a cast; None for one that is left to Spark."""
    kinds = exp.DataType.Type
    if node.this == kinds.DECIMAL:
        given = [int(part.name) for part in node.expressions]
        return pa.decimal128(*(given[0], given[1] if len(given) > 1 else 0)) if given else pa.decimal128(10, 0)
    if node.this in (kinds.ARRAY, kinds.LIST) and len(node.expressions) == 1:
        inner = type_named(node.expressions[0])
        return None if inner is None else list_of(inner)
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
        kinds.TIMESTAMP: UTC,
        kinds.TIMESTAMPTZ: UTC,
        kinds.TIMESTAMPLTZ: UTC,
        kinds.TIMESTAMPNTZ: LOCAL,
    }.get(node.this)


def _is_cast_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether both engines make the same of every value, but for those of which the embedded one makes an error."""
    if is_whole(given):
        return is_whole(kind) or t.is_decimal(kind) or kind in (pa.float64(), pa.bool_(), pa.string())
    if t.is_boolean(given):
        return is_whole(kind) or kind == pa.string()
    if t.is_decimal(given):
        return bool(kind == pa.float64() and given.precision <= 15)
    return bool(t.is_floating(given) and t.is_floating(kind))


_COMPARISONS: Final = {
    exp.EQ: ("=", "({} = {})"),
    exp.NEQ: ("<>", "(NOT ({} = {}))"),
    exp.LT: ("<", "({} < {})"),
    exp.LTE: ("<=", "({} <= {})"),
    exp.GT: (">", "({} > {})"),
    exp.GTE: (">=", "({} >= {})"),
    exp.NullSafeEQ: ("<=>", "({} <=> {})"),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", None),
}
_SIGNS: Final = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.Neg: "-",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.BitwiseNot: "~", exp.DPipe: "||",
}  # fmt: skip
_ROUNDING: Final = ("round", "floor", "ceil", "ceiling")
_OF_UNITS: Final = ("extract", "timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff")
_CALLS: Final[Mapping[str, Callable[[Translator, Node, list[Node]], EngineValue]]] = {
    "array": Translator._array,
    "named_struct": Translator._named_struct,
    "struct": Translator._struct,
    "map": Translator._map,
    "nullif": Translator._nullif,
    "nvl2": Translator._nvl2,
    **dict.fromkeys(("size", "cardinality"), Translator._size),
    "array_contains": Translator._contains,
    "isnan": Translator._isnan,
    **dict.fromkeys(("unix_timestamp", "unix_seconds"), Translator._moment),
    "timestampdiff": Translator._between_times,
    "timestampadd": Translator._added_time,
    "round": Translator._round,
    "element_at": Translator._element_at,
    "to_json": Translator._to_json,
    "sort_array": Translator._sorted,
    "sequence": Translator._sequence,
    **dict.fromkeys(("coalesce", "nvl", "ifnull"), Translator._first_known),
    **dict.fromkeys(("transform", "filter", "exists", "forall"), Translator._over_elements),
    **dict.fromkeys(("aggregate", "reduce"), Translator._reduced),
    **dict.fromkeys(("map_filter", "transform_values"), Translator._over_entries),
    **dict.fromkeys(("grouping", "grouping_id"), Translator._grouping),
}
_TRANSLATIONS: Final[Mapping[type, Callable[[Translator, Any], EngineValue]]] = {
    exp.Anonymous: Translator._call,
    **dict.fromkeys(_SIGNS, Translator._call),
    exp.Add: Translator._moved,
    exp.Sub: Translator._moved,
    exp.Substring: Translator._call,
    exp.Trim: Translator._call,
    exp.Overlay: Translator._call,
    exp.Extract: Translator._call,
    exp.Column: Translator._column,
    exp.Identifier: Translator._column,
    exp.Dot: Translator._column,
    exp.Paren: Translator._paren,
    exp.Literal: Translator._literal,
    exp.HexString: Translator._bytes,
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
    exp.RegexpLike: Translator._matches,
    exp.Case: Translator._case,
    exp.If: Translator._if,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Bracket: Translator._element,
    exp.Filter: Translator._filter,
    exp.Window: Translator._window,
}
