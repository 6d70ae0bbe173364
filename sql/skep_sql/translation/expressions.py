"""Expressions of Spark's SQL for the embedded engine, with the types and names that Spark gives them.

Only what is known to mean the same is taken; everything else is `DiffersError`. Functions and operators are those of
`functions`, which were compared with Spark over values of all kinds. Where the engines differ for some values only (a
number that overflows, a division by zero), the engine fails for these, and the query is left to Spark, which knows
whether they are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep_format.schema.arrow import is_any_list, is_number
from skep_format.schema.types import quoted
from skep_sql.parsing.statements import Node
from skep_sql.parsing.written import is_read_alike
from skep_sql.spark_release import is_spark_3
from skep_sql.translation import aggregates
from skep_sql.translation.arithmetic import SIGNS, arithmetic, negated, rounded
from skep_sql.translation.calls import CALLS
from skep_sql.translation.casts import cast_of, type_named
from skep_sql.translation.constants import GivenArgument, is_plain_pattern
from skep_sql.translation.functions import found_function
from skep_sql.translation.literals import PLAIN_TEXT, as_date, as_number, as_time, cast_text, interval_of, number
from skep_sql.translation.plain_parse import SIGNS as SIGNS_OF_CALLS
from skep_sql.translation.plain_parse import called
from skep_sql.translation.spark_types import (
    LOCAL,
    UTC,
    cast,
    common,
    is_exact,
    is_plain,
    is_whole,
)
from skep_sql.translation.values import (
    VARIABLE,
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
    pattern_of,
)
from skep_table.query.filters.text import binds_otherwise

t = pa.types
_LONGEST: Final = 100_000  # what some functions are made of mentions their argument more than once
_NULL: Final = EngineValue("NULL", pa.null(), "NULL")


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
        self.is_ordered = is_ordered
        self.is_sorted = False
        self._names = names
        self._windows = windows or {}
        self.groups = groups
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

    def together(self, node: Node, values: Sequence[EngineValue]) -> tuple[pa.DataType, list[str]]:
        """Values in the type that Spark brings them to."""
        kind = common(value.type for value in values)
        if kind is None:
            raise differs(node, "types differ")
        return kind, [as_type(value, kind) for value in values]

    # -- functions and operators

    def _call(self, node: Node) -> EngineValue:
        name, nodes = called(node)
        if aggregates.is_aggregate(name):
            found = self._aggregate(node, name, nodes, in_window=False)
            return EngineValue(found.text(), found.type, found.name, has_aggregate=True)
        if name in CALLS:
            return CALLS[name](self, node, nodes)
        first, others = nodes[:1], nodes[1:]
        has_unit = name == "extract" or (name in _OF_UNITS and len(nodes) == 3)
        if has_unit and isinstance(first[0], exp.Column | exp.Var):
            unit = first[0].name
            values = [EngineValue(unit, pa.string(), unit, unit.lower())]
        else:
            values = [self.value(each) for each in first]
        values += [self.value(each) for each in others]
        return self.call_of(node, name, values)

    def call_of(self, node: Node, name: str, values: list[EngineValue]) -> EngineValue:
        """By the rules of arithmetic and of decimals, else by the table of functions."""
        if name in SIGNS and len(values) == 2:
            return arithmetic(node, name, *values)
        if name in _ROUNDING and values and t.is_decimal(values[0].type):
            return rounded(node, name, values)
        return self.known(node, name, values)

    def known(self, node: Node, name: str, values: Sequence[EngineValue]) -> EngineValue:
        """By the table of functions."""
        if name == "datediff" and len(values) == 2:
            return replace(self.known(node, "date_diff", values), name=named("datediff({}, {})", *values))
        if name == "^" and (values[0].text in values[1].text or values[1].text in values[0].text):
            raise differs(node, "of the same value")  # the engine takes it for zero, also of null
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
            if not PLAIN_TEXT.fullmatch(text) and (not is_read_alike(node) or "\0" in text):
                raise differs(node, "escapes")
            return EngineValue(literal_text(text), pa.string(), text, text)
        return number(node, text)

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
            return number(node, f"-{inner.this}")
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

    def _comparable(self, node: Node, *sides: Node, listed: bool = False) -> tuple[list[str], list[EngineValue]]:
        values = [self.value(side) for side in sides]
        if listed and _are_compared_as_texts(values):
            raise differs(node, "texts in a list for other values")
        for is_kind, read in ((t.is_timestamp, as_time), (t.is_date, as_date)):
            if any(is_kind(value.type) for value in values):
                values = [read(value) for value in values]
        if any(is_whole(value.type) for value in values):
            values = [as_number(value) for value in values]
        kind, texts = self.together(node, values)
        if not is_plain(kind) and not t.is_null(kind):
            raise differs(node, "not compared alike")
        return [comparable(text, kind) for text in texts], values

    def comparison(self, node: Node) -> EngineValue:
        """A comparison of two values."""
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
            self.comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())),
            self.comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())),
        ]
        return made(f"({parts[0].text} AND {parts[1].text})", pa.bool_(), "({} AND {})", *parts)

    def _in(self, node: Node) -> EngineValue:
        check_only(node, "this", "expressions", "query")
        query = node.args.get("query")
        if query is None:
            (left, *others), values = self._comparable(node, node.this, *node.expressions, listed=True)
            names = f"({{}} {pattern_of('IN ', len(others))})"
            return made(f"({left} IN ({', '.join(others)}))", pa.bool_(), names, *values)
        value = self.value(node.this)
        text, columns = self._names.subquery(query)
        if len(columns) != 1:
            raise differs(node)
        kind, (left, _) = self.together(node, [value, columns[0]])
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
        is_text = value.type == pa.string()
        if isinstance(node, exp.RegexpLike):
            if not is_text or pattern.literal is None or not is_plain_pattern(pattern.literal):
                raise differs(node, "a pattern")
            text, name = f"rlike({value.text}, {pattern.text})", "RLIKE({}, {})"
        else:
            if not is_text or pattern.literal is None or pattern.type != pa.string() or "\\" in pattern.literal:
                raise differs(node)
            text, name = f"({value.text} LIKE {pattern.text})", "{} LIKE {}"
        if node.args.get("negate"):
            text, name = f"(NOT {text})", f"(NOT {name})"
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
        kind, texts = self.together(node, values)
        whens = [f"WHEN {when.text} THEN {then}" for when, then in zip(conditions, texts, strict=False)]
        return made(f"CASE {' '.join(whens)} ELSE {texts[-1]} END", kind, None, *conditions, *values)

    def _cast(self, node: Node) -> EngineValue:
        check_only(node, "this", "to", "safe")
        kind, inner = type_named(node.args["to"]), node.this
        if kind is None:
            raise differs(node)
        if isinstance(inner, exp.Literal) and inner.is_string and (found := cast_text(str(inner.this), kind)):
            return found
        return cast_of(node, self.value(inner), kind)

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
            return self.known(node, "date_add" if sign == "+" else "date_sub", [left, right])
        if not is_number(left.type):
            return self.known(node, sign, [left, right])
        return arithmetic(node, sign, left, right)

    def _moved_by(self, node: Node, sign: str, value: EngineValue, interval: Node) -> EngineValue:
        count, unit = interval_of(interval)
        if (t.is_date(value.type) and unit in _OF_DAYS) or value.type in (UTC, LOCAL):
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

    def function(self, node: Node, kinds: Sequence[pa.DataType]) -> EngineValue:
        """A function of variables of these types."""
        if not isinstance(node, exp.Lambda) or len(node.expressions) != len(kinds):
            raise differs(node)
        names = [each.name for each in node.expressions]
        before = self._variables
        own = {name.lower(): EngineValue(quoted(name), kind, VARIABLE) for name, kind in zip(names, kinds, strict=True)}
        self._variables = {**before, **own}
        try:
            body = self.value(node.this)
        finally:
            self._variables = before
        if body.has_aggregate:
            raise differs(node)
        shown = named(f"lambdafunction({{}}, {', '.join([VARIABLE] * len(names))})", body)
        listed = ", ".join(map(quoted, names))
        return EngineValue(f"({listed}) -> {body.text}", body.type, shown)

    # -- aggregates and windows

    def _aggregate(self, node: Node, name: str, nodes: list[Node], *, in_window: bool) -> aggregates.Aggregate:
        if name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            return aggregates.Aggregate(("count(1)",), pa.int64(), "count(1)")
        if (name in aggregates.OF_ORDER and not in_window and not self.is_ordered) or (
            name == aggregates.OF_ANY_ORDER and not self.is_sorted
        ):
            raise differs(node, "by the order of rows")
        is_distinct = len(nodes) == 1 and isinstance(nodes[0], exp.Distinct)
        if is_distinct:
            check_only(nodes[0], "expressions")
            nodes = nodes[0].expressions
        values = [self.value(each) for each in nodes]
        if not in_window and any(value.has_aggregate for value in values):
            raise differs(node, "an aggregate of an aggregate")
        return aggregates.aggregate(node, name, values, is_distinct=is_distinct)

    def _filter(self, node: Node) -> EngineValue:
        check_only(node, "this", "expression")
        name, nodes = called(node.this)
        if not aggregates.is_aggregate(name):
            raise differs(node)
        found, when = self._aggregate(node.this, name, nodes, in_window=False), self.condition(node.expression.this)
        shown = None
        if found.name is not None and when.name is not None:
            shown = f"{found.name} FILTER (WHERE {when.name})"
        return EngineValue(found.text(f" FILTER (WHERE {when.text})"), found.type, shown, has_aggregate=True)

    def _window(self, node: Node) -> EngineValue:
        check_only(node, "this", "partition_by", "order", "spec", "over", "alias")
        name, nodes = called(node.this)
        spec = node
        if node.args.get("alias") is not None:
            found_spec = self._windows.get(node.alias.lower())
            if found_spec is None or any(node.args.get(each) for each in ("partition_by", "order", "spec")):
                raise differs(node)
            spec = found_spec
            check_only(spec, "this", "partition_by", "order", "spec")
        values: list[EngineValue] = []
        if aggregates.is_of_window(name):
            values = [] if name in aggregates.WITHOUT_ARGUMENTS else [self.value(each) for each in nodes]
            found = aggregates.of_window(node.this, name, values)
        elif aggregates.is_aggregate(name):
            found = self._aggregate(node.this, name, nodes, in_window=True)
        else:
            raise differs(node)
        parts = [self.value(each) for each in spec.args.get("partition_by") or ()]
        if not all(is_exact(each.type) for each in parts):
            raise differs(node, "not grouped alike")
        orders = [] if spec.args.get("order") is None else spec.args["order"].expressions
        ordered = [self.ordered(each) for each in orders]
        if aggregates.is_of_window(name) and not ordered:
            raise differs(node)
        suffix = aggregates.over(
            [each.text for each in parts], [text for text, _ in ordered], _frame(spec.args.get("spec"))
        )
        names = [each.name for each in parts]
        order = [named(f"{{}} {_way(each)}", value) for each, (_, value) in zip(orders, ordered, strict=True)]
        shown = None
        if spec.args.get("spec") is None and None not in [*names, *order]:
            shown = aggregates.window_name(
                name, found.name, values, [str(each) for each in names], [str(each) for each in order]
            )
        has_aggregate = any(each.has_aggregate for each in [*parts, *(value for _, value in ordered)])
        return EngineValue(found.text(suffix), found.type, shown, has_aggregate=has_aggregate)

    def ordered(self, node: Node, position: tuple[int, EngineValue] | None = None) -> tuple[str, EngineValue]:
        """One of the values that rows are ordered by, in the order that Spark has them. `position`: a column's."""
        check_only(node, "this", "desc", "nulls_first")
        value = position[1] if position else self.value(node.this)
        if not is_plain(value.type) and not t.is_null(value.type):
            raise differs(node, "not ordered alike")
        text = str(position[0]) if position else f"({comparable(value.text, value.type)})"
        if position and t.is_floating(value.type):
            text = comparable(f"c{position[0] - 1}", value.type)
        return f"{text} {_way(node)}", value


def _way(node: Node) -> str:
    return f"{'DESC' if node.args.get('desc') else 'ASC'} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"


def _are_compared_as_texts(listed: Sequence[EngineValue]) -> bool:
    """Whether Spark compares a value with a list as texts, though not all of them are, and may find other rows so.

    A date equals the text of a day, which is what `as_date` takes.
    """
    others = [value for value in listed if value.type != pa.string() and not t.is_null(value.type)]
    has_texts = any(value.type == pa.string() for value in listed)
    return has_texts and not all(t.is_date(other.type) for other in others)


def _kinds_of_null(values: Sequence[EngineValue]) -> list[pa.DataType]:
    """The types that a null without one may get among these arguments, in the order in which they are tried."""
    if not any(t.is_null(each.type) for each in values):
        return [pa.null()]
    others = [each.type for each in values if not t.is_null(each.type)]
    elements = [each.value_type for each in others if is_any_list(each)]
    return list(dict.fromkeys([*elements, *others, pa.string(), pa.int32()]))


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
_ROUNDING: Final = ("round", "floor", "ceil", "ceiling")
_OF_UNITS: Final = ("extract", "dateadd", "date_add", "datediff", "date_diff")
_OF_DAYS: Final = ("year", "quarter", "month", "week", "day")
_TRANSLATIONS: Final[Mapping[type, Callable[[Translator, Any], EngineValue]]] = {
    **dict.fromkeys((exp.Anonymous, exp.Substring, exp.Trim, exp.Overlay, exp.Extract), Translator._call),
    **dict.fromkeys(SIGNS_OF_CALLS, Translator._call),
    **dict.fromkeys((exp.Add, exp.Sub), Translator._moved),
    **dict.fromkeys((exp.Column, exp.Identifier, exp.Dot), Translator._column),
    exp.Paren: Translator._paren,
    exp.Literal: Translator._literal,
    exp.HexString: Translator._bytes,
    exp.Boolean: Translator._boolean,
    exp.Null: Translator._null,
    exp.Neg: Translator._neg,
    **dict.fromkeys((exp.And, exp.Or), Translator._logic),
    exp.Not: Translator._not,
    **dict.fromkeys(_COMPARISONS, Translator.comparison),
    exp.Is: Translator._is,
    exp.Between: Translator._between,
    exp.In: Translator._in,
    exp.Exists: Translator._exists,
    exp.Subquery: Translator._scalar,
    **dict.fromkeys((exp.Like, exp.RegexpLike), Translator._like),
    exp.Case: Translator._case,
    exp.If: Translator._if,
    **dict.fromkeys((exp.Cast, exp.TryCast), Translator._cast),
    exp.Bracket: Translator._element,
    exp.Filter: Translator._filter,
    exp.Window: Translator._window,
}
