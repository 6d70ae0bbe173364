"""SQL predicates (`WHERE` without the word) parsed with sqlglot into a `Predicate`, checked against a table's columns.

Spark's dialect: text in single or double quotes, names bare or in backticks, `struct.member` for nested fields. A quote
within text is doubled, as the SQL standard and Spark 4 have it, or follows a backslash. Names are matched as written
first, then in any case. Literals take the type of what they are compared with, so `ship_date >= '2024-01-01'` compares
dates.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType  # type: ignore[attr-defined,unused-ignore]

from skep_format.errors import InputError, PredicateError, SchemaError, UnsupportedError
from skep_format.expressions import expression_of
from skep_format.expressions.regexes import Regex
from skep_format.schema.arrow import arrow_type, from_arrow_type
from skep_format.schema.types import parse_type
from skep_table.query.filters.functions import FunctionCall, format_of, function_call
from skep_table.query.filters.predicate import (
    NEGATED,
    SWAPPED,
    And,
    Applied,
    ArrowCall,
    Cast,
    ColumnRef,
    Comparison,
    Condition,
    IsIn,
    IsNull,
    Literal,
    Matches,
    Or,
    Predicate,
    Value,
    equal_to,
    is_nan,
)

Node = Any  # sqlglot's nodes: their base class has different names in different releases


BARE: Final = "skep_bare"
"""Of a function that was called without parentheses."""


def _unsigned_shift(this: Node, expression: Node) -> Node:
    return exp.Anonymous(this="shiftrightunsigned", expressions=[this, expression])


class SqlDialect(Spark):
    """Spark's SQL where `''` within a text is a quote; before release 4 Spark read two texts one after the other."""

    class Tokenizer(Spark.Tokenizer):
        """With `'` among the escapes."""

        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]
        HEX_STRINGS: ClassVar[list[Any]] = [*Spark.Tokenizer.HEX_STRINGS, ("X '", "'"), ("x '", "'")]
        KEYWORDS: ClassVar[dict[str, TokenType]] = {**Spark.Tokenizer.KEYWORDS, ">>>": TokenType.LLRR_ARROW}

    class Parser(Spark.Parser):  # type: ignore[misc,valid-type,unused-ignore]
        """All comparisons bind alike in Spark, from left to right: `p = q < w` compares `p = q` with `w`."""

        EQUALITY: ClassVar[dict[TokenType, Any]] = {}
        COMPARISON: ClassVar[dict[TokenType, Any]] = {**Spark.Parser.EQUALITY, **Spark.Parser.COMPARISON}
        FACTOR: ClassVar[dict[TokenType, Any]] = {**Spark.Parser.FACTOR, TokenType.LLRR_ARROW: _unsigned_shift}

        def parse(self, raw_tokens: list[Any], sql: str | None = None) -> list[Any]:
            """`window(…)` is a function; behind GROUP BY sqlglot takes the word for the clause WINDOW."""
            for token, following in itertools.pairwise(raw_tokens):
                if token.token_type is TokenType.WINDOW and following.token_type is TokenType.L_PAREN:
                    token.token_type = TokenType.VAR
            found: list[Any] = super().parse(raw_tokens, sql)
            return found

        def _parse_function_call(self, *given: Any, **named: Any) -> Any:
            """`current_user` without parentheses, which may be a column, has a place, too."""
            token = self._curr
            found = super()._parse_function_call(*given, **named)
            if isinstance(found, exp.CurrentUser) and "start" not in found.meta:
                found.update_positions(token)
                found.meta[BARE] = True
            return found


_COMPARISONS: Final[dict[type[Any], str]] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_ARITHMETIC: Final[dict[type[Any], str]] = {
    exp.Add: "add_checked",
    exp.Sub: "subtract_checked",
    exp.Mul: "multiply_checked",
    exp.Div: "divide",
}
_ISO: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"([ T](?P<time>\d\d:\d\d:\d\d)(\.(?P<fraction>\d{1,6}))?(?P<zone>Z|[+-]\d\d:\d\d)?)?"
)
# What the reader looks at in the nodes of conditions.
_HONOURED: Final = frozenset(
    ["this", "expression", "expressions", "low", "high", "query", "negate", "to", "table", "db", "catalog", "is_string"]
)


def parse_predicate(where: str | Node, schema: pa.Schema) -> Predicate:
    """The predicate that a text, or the condition of a parsed statement, means over columns of `schema`.

    Raises PredicateError for what does not parse, an unknown column, a comparison of kinds that don't compare, and
    every function or construct that is not supported.
    """
    node, text = (_parsed(where), where) if isinstance(where, str) else (where, where.sql(SqlDialect))
    reader = _Reader(text, schema)
    condition = reader.condition(node)
    return Predicate(condition, text, reader.may_differ)


def _parsed(text: str) -> Node:
    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE {text}", read=SqlDialect)
    except SqlglotError as error:
        raise PredicateError(f"filter {text!r} does not parse: {parse_reason(error)}", predicate=text) from error
    where = tree.args.get("where") if isinstance(tree, exp.Select) else None
    if where is None or set(_given(tree)) - {"expressions", "where"}:
        raise PredicateError(f"filter {text!r} is more than one predicate", predicate=text)
    return where.this


def parse_reason(error: SqlglotError) -> str:
    """What sqlglot found, in one line, without its marks for a terminal and the names of its classes."""
    for found in getattr(error, "errors", ()):
        where = f" near {found['highlight']!r}" if found.get("highlight") else ""
        return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", found["description"].rstrip(".")) + where
    return str(error).partition("\n")[0]


def _given(tree: Node) -> list[str]:
    return [name for name, value in tree.args.items() if value not in (None, [], False)]


class _Reader:
    """Walks sqlglot's tree. Negations are pushed down to the leaves on the way."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text = text
        self.schema = schema
        self.may_differ = False  # from Spark, for some values

    def fail(self, reason: str, column: str | None = None) -> PredicateError:
        error = PredicateError(f"filter {self.text!r}: {reason}", predicate=self.text, column=column)
        error.is_unsupported = column is None
        return error

    # Conditions

    def condition(self, node: Node, negated: bool = False) -> Condition:
        self.check_arguments(node)
        if isinstance(node, exp.Paren):
            return self.condition(node.this, negated)
        if isinstance(node, exp.Not):
            return self.condition(node.this, not negated)
        if isinstance(node, (exp.And, exp.Or)):
            parts = (self.condition(node.left, negated), self.condition(node.right, negated))
            return And(parts) if isinstance(node, exp.And) is not negated else Or(parts)
        if type(node) in _COMPARISONS:
            function = _COMPARISONS[type(node)]
            return self.comparison(NEGATED[function] if negated else function, node.left, node.right)
        if isinstance(node, exp.Between):
            low = self.comparison("less" if negated else "greater_equal", node.this, node.args["low"])
            high = self.comparison("greater" if negated else "less_equal", node.this, node.args["high"])
            return Or((low, high)) if negated else And((low, high))
        if isinstance(node, exp.Is):
            return self.is_(node, negated)
        if isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ)):
            return self.null_safe(node, isinstance(node, exp.NullSafeNEQ) is not negated)
        if isinstance(node, exp.In):
            return self.is_in(node, negated)
        if isinstance(node, (exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)):
            return self.like(node, negated)
        value = self.value(node)
        if not pa.types.is_boolean(value.type) and not pa.types.is_null(value.type):
            raise self.fail(f"{node.sql('spark')} is {_named(value.type)}, not a condition")
        return _truth(value, not negated)

    def check_arguments(self, node: Node) -> None:
        """Refuses modifiers (BETWEEN SYMMETRIC and the like) that would otherwise be ignored."""
        ignored = set(_given(node)) - _HONOURED
        if ignored:
            raise self.fail(f"{node.sql('spark')} is not supported in filters")

    def is_(self, node: exp.Is, negated: bool) -> Condition:
        right = node.expression
        if isinstance(right, exp.Not):
            negated, right = not negated, right.this
        argument = self.value(node.this)
        if isinstance(right, exp.Null):
            return IsNull(argument, negated)
        if isinstance(right, exp.Boolean):
            # `x is true` is never null: not true means false or null.
            if not negated:
                return And((_truth(argument, right.this is True), IsNull(argument, negated=True)))
            return Or((_truth(argument, right.this is not True), IsNull(argument)))
        raise self.fail(f"IS {right.sql('spark')} is not supported")

    def null_safe(self, node: exp.Binary, negated: bool) -> Condition:
        left, right = self.comparable(node.left, node.right)
        if negated:
            one_null = Or((And((IsNull(left), IsNull(right, True))), And((IsNull(left, True), IsNull(right)))))
            return Or((one_null, And((IsNull(left, True), IsNull(right, True), _compared("not_equal", left, right)))))
        same = And((IsNull(left, True), IsNull(right, True), _compared("equal", left, right)))
        return Or((same, And((IsNull(left), IsNull(right)))))

    def comparison(self, function: str, left: Node, right: Node) -> Condition:
        return _compared(function, *self.comparable(left, right))

    def is_in(self, node: exp.In, negated: bool) -> Condition:
        if node.args.get("query") is not None or not node.expressions:
            raise self.fail("IN takes a list of values")
        argument = self.value(node.this)
        sides = [self.fitted(argument, self.value(item), node) for item in node.expressions]
        if any(isinstance(item, exp.Literal) and item.is_string for item in node.expressions):
            # Spark compares texts with a list of texts: a date is that of its text, a time or a number any of several
            family = _family(argument.type)
            texts = (str(item.this) for item in node.expressions if isinstance(item, exp.Literal) and item.is_string)
            are_days = family == "date" and all(len(text) == len("2026-01-01") for text in texts)
            self.may_differ |= not (family == "text" or are_days)
        if any(not isinstance(item, Literal) or is_nan(item) or side != sides[0][0] for side, item in sides):
            same = [_compared("not_equal" if negated else "equal", side, item) for side, item in sides]
            return And(tuple(same)) if negated else Or(tuple(same))
        scalars = [item.value for _, item in sides if isinstance(item, Literal)]
        present = [value.as_py() for value in scalars if value.is_valid]
        kind = next((value.type for value in scalars if value.is_valid), argument.type)
        values = equal_to(pa.array(present, kind), sides[0][0].type)
        return IsIn(sides[0][0], values, or_null=len(present) < len(scalars), negated=negated)

    def like(self, node: Node, negated: bool) -> Condition:
        escape = "\\"
        if isinstance(node, exp.Escape):
            escape, node = self.text_of(node.expression), node.this
            self.check_arguments(node)
            if len(escape) != 1:
                raise self.fail("ESCAPE takes one character")
        negated = negated is not bool(node.args.get("negate"))  # NOT LIKE
        argument = self.value(node.this)
        if _family(argument.type) != "text":
            raise self.fail(f"{node.this.sql('spark')} is {_named(argument.type)}; LIKE takes text")
        pattern = self.text_of(node.expression)
        if isinstance(node, exp.RegexpLike):
            known = Regex.parse(pattern)
            self.may_differ |= known is None  # what Java's regular expressions have otherwise
            return Matches(argument, pattern if known is None else known.text, "", negated)
        regex, prefix = _like_regex(pattern, escape, self)
        if isinstance(node, exp.ILike):
            self.may_differ = True  # letters outside of ASCII
            return Matches(argument, f"(?i){regex}", "", negated)
        return Matches(argument, regex, prefix, negated)

    def text_of(self, node: Node) -> str:
        if not (isinstance(node, exp.Literal) and node.is_string):
            raise self.fail(f"{node.sql('spark')} is not a text literal")
        return str(node.this)

    # Values

    def value(self, node: Node) -> Value:
        if isinstance(node, exp.Paren):
            return self.value(node.this)
        if isinstance(node, (exp.Column, exp.Dot)):
            return self.column(node)
        if isinstance(node, (exp.Cast, exp.TsOrDsToDate, exp.Date)):  # TryCast, Spark's lenient cast, is a Cast
            return self.cast(node)
        if isinstance(node, exp.Literal):
            return Literal(pa.scalar(node.this) if node.is_string else _number(str(node.this), self))
        if isinstance(node, exp.Boolean):
            return Literal(pa.scalar(bool(node.this)))
        if isinstance(node, exp.Null):
            return Literal(pa.scalar(None))
        if isinstance(node, exp.HexString):
            return Literal(pa.scalar(bytes.fromhex(str(node.this)), pa.binary()))
        if isinstance(node, exp.Neg):
            inner = self.value(node.this)
            if isinstance(inner, Literal) and not pa.types.is_string(inner.type):
                return Literal(pa.scalar(-inner.value.as_py()))
            self.number(inner, node)
            self.may_differ |= not pa.types.is_floating(inner.type)
            return ArrowCall("negate_checked", (inner,), inner.type)
        if type(node) in _ARITHMETIC:
            return self.arithmetic(node)
        called = function_call(node)
        if called is not None:
            return self.applied(called, node)
        raise self.fail(f"{node.sql('spark')} is not supported in filters")

    def column(self, node: exp.Column | exp.Dot) -> ColumnRef:
        names = [part.name for part in node.parts]
        field = self.field(names[0], [self.schema.field(i) for i in range(len(self.schema.names))], "")
        path, kind = [field.name], field.type
        for name in names[1:]:
            if not pa.types.is_struct(kind):
                raise self.fail(f"{'.'.join(path)} is {_named(kind)} and has no member {name}", column=".".join(names))
            member = self.field(name, [kind.field(i) for i in range(kind.num_fields)], ".".join(path) + ".")
            path.append(member.name)
            kind = member.type
        return ColumnRef(tuple(path), kind)

    def field(self, name: str, fields: list[pa.Field], inside: str) -> pa.Field:
        exact = [field for field in fields if field.name == name]
        found = exact or [field for field in fields if field.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        known = ", ".join(field.name for field in fields)
        what = "is ambiguous" if found else "is no column of the table"
        raise self.fail(f"{inside}{name} {what}; there are: {known}", column=f"{inside}{name}")

    def cast(self, node: Node) -> Value:
        argument = self.value(node.this)
        kind = self.cast_type(node.args["to"]) if isinstance(node, exp.Cast) else pa.date32()
        by_format = node.args.get("format") is not None
        if by_format and pa.types.is_string(argument.type):
            return self.applied(FunctionCall("to_date", node.this, {"format": format_of(node)}), node)
        # to dates texts and moments are converted as Spark has it, all else as Arrow has it
        is_moment = pa.types.is_timestamp(argument.type) and argument.type.tz is not None
        from_text = _family(argument.type) == "text" and not pa.types.is_null(argument.type)
        if pa.types.is_date(kind) and not isinstance(argument, Literal) and (is_moment or from_text):
            return self.applied(FunctionCall("to_date", node.this), node)
        if not isinstance(argument, Literal):
            self.may_differ |= not _is_cast_alike(argument.type, kind)
            return argument if argument.type == kind else Cast(argument, kind)
        if pa.types.is_string(argument.type) and pa.types.is_temporal(kind):
            return Literal(_temporal(argument.value.as_py(), kind, self))
        self.may_differ |= not (_is_cast_alike(argument.type, kind) or _is_whole_number(argument.value.as_py()))
        try:
            return Literal(argument.value.cast(kind))
        except pa.ArrowException as error:
            raise self.fail(f"{node.sql('spark')} is no {_named(kind)}") from error

    def cast_type(self, kind: exp.DataType) -> pa.DataType:
        named = kind.sql("spark")
        try:
            known = arrow_type(parse_type(named, named))
        except SchemaError as error:
            raise self.fail(f"a cast to {named} is not supported") from error
        if known.num_fields:
            raise self.fail(f"a cast to {named} is not supported")
        return known

    def arithmetic(self, node: Node) -> Value:
        self.may_differ = True  # what overflows, and divisions by zero
        left, right = self.comparable(node.args["this"], node.args["expression"])
        for side in (left, right):
            self.number(side, node)
        if isinstance(node, exp.Div) or pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
            left, right = (side if side.type == pa.float64() else Cast(side, pa.float64()) for side in (left, right))
            kind = pa.float64()
        elif pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
            raise self.fail(f"{node.sql('spark')}: cast decimals to double to compute with them")
        else:
            left, right = (side if side.type == pa.int64() else Cast(side, pa.int64()) for side in (left, right))
            kind = pa.int64()
        return ArrowCall(_ARITHMETIC[type(node)], (left, right), kind)

    def number(self, value: Value, node: Node) -> None:
        if _family(value.type) != "number":
            raise self.fail(f"{node.sql('spark')} computes with {_named(value.type)}")

    def applied(self, called: FunctionCall, node: Node) -> Value:
        argument = self.value(called.argument)
        try:
            kind = from_arrow_type(argument.type, node.sql("spark"))
            return Applied(expression_of(called.function, called.options, kind), argument)
        except (InputError, SchemaError, UnsupportedError) as error:
            raise self.fail(f"{node.sql('spark')} is not supported in filters: {error.message}") from error

    # Two sides that compare

    def comparable(self, left: Node, right: Node) -> tuple[Value, Value]:
        if binds_otherwise(left) or binds_otherwise(right):
            raise self.fail("a condition within a comparison needs parentheses")
        one, other = self.value(left), self.value(right)
        if isinstance(one, Literal) and not isinstance(other, Literal):
            other, one = self.fitted(other, one, left)
            return one, other
        return self.fitted(one, other, right)

    def fitted(self, value: Value, other: Value, where: Node) -> tuple[Value, Value]:
        """Both as types that Arrow compares without loss; a literal `other` takes the type of `value`."""
        kind = value.type
        if isinstance(other, Literal):
            if not other.value.is_valid:
                return value, Literal(pa.scalar(None, kind))
            return self.with_literal(value, other.value, where)
        if _family(kind) == _family(other.type) == "number":
            return self.numbers(value, other)
        if _family(kind) == _family(other.type) and _family(kind) is not None:
            return value, other
        if {_family(kind), _family(other.type)} == {"date", "timestamp"}:
            target = kind if _family(kind) == "timestamp" else other.type
            sides = (side if side.type == target else Cast(side, target) for side in (value, other))
            return next(sides), next(sides)
        raise self.fail(f"{_named(kind)} does not compare with {_named(other.type)} in {where.sql('spark')}")

    def numbers(self, one: Value, other: Value) -> tuple[Value, Value]:
        kinds = [one.type, other.type]
        if pa.float64() in kinds and any(map(pa.types.is_integer, kinds)):
            sides = [side if pa.types.is_floating(side.type) else Cast(side, pa.float64()) for side in (one, other)]
            return sides[0], sides[1]
        self.may_differ |= kinds[0] != kinds[1] and not all(map(pa.types.is_integer, kinds))
        return one, other

    def with_literal(self, value: Value, literal: pa.Scalar, where: Node) -> tuple[Value, Value]:
        kind, given = value.type, literal.as_py()
        family = _family(kind)
        if family == "number":
            if isinstance(given, str):
                self.may_differ |= not (_is_whole_number(given) and pa.types.is_integer(kind))
                given = _number(given, self, where).as_py()
            if isinstance(given, (int, float, Decimal)) and not isinstance(given, bool):
                return _with_number(value, given)
        elif family == "text" and isinstance(given, str):
            return value, Literal(pa.scalar(given, kind))
        elif family == "boolean" and isinstance(given, bool):
            return value, Literal(literal)
        elif family == "binary" and isinstance(given, (bytes, str)):
            return value, Literal(pa.scalar(given.encode() if isinstance(given, str) else given, pa.binary()))
        elif family in ("date", "timestamp"):
            if isinstance(given, str):
                literal = _temporal(given, kind, self)
            if literal.type == kind:
                return value, Literal(literal)
            if _family(literal.type) == "timestamp" and family == "date":
                return Cast(value, literal.type), Literal(literal)
            # a column in milliseconds has no microseconds
            if _family(literal.type) == "timestamp" and literal.cast(kind, safe=False).cast(literal.type) != literal:
                finer = pa.timestamp(literal.type.unit, kind.tz)
                return Cast(value, finer), Literal(literal.cast(finer))
            if _family(literal.type) in ("date", "timestamp"):
                return value, Literal(literal.cast(kind))
        raise self.fail(f"{_named(kind)} does not compare with {given!r}")


def _compared(function: str, one: Value, other: Value) -> Comparison:
    if isinstance(one, Literal) and not isinstance(other, Literal):
        return Comparison(SWAPPED.get(function, function), other, one)
    return Comparison(function, one, other)


def _truth(value: Value, wanted: bool) -> Comparison:
    value = Literal(pa.scalar(None, pa.bool_())) if pa.types.is_null(value.type) else value
    return Comparison("equal", value, Literal(pa.scalar(wanted)))


def binds_otherwise(operand: Node) -> bool:
    """Whether sqlglot makes this an operand of a comparison, which to Spark is an operand of it: `a = b IN (1)`."""
    return isinstance(operand, (exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Between, exp.Is))


def _is_cast_alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow's casts have the values of Spark's."""
    t = pa.types
    if given == wanted or t.is_null(given):
        return True
    if t.is_signed_integer(given) and t.is_signed_integer(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if t.is_string(wanted) or t.is_large_string(wanted):
        return bool(t.is_signed_integer(given) or t.is_boolean(given) or t.is_string(given) or t.is_large_string(given))
    if t.is_floating(wanted):
        return bool(t.is_float32(given) or (t.is_signed_integer(given) and t.is_float64(wanted)))
    return bool((t.is_date(given) or t.is_timestamp(given)) and (t.is_date(wanted) or t.is_timestamp(wanted)))


def _is_whole_number(given: object) -> bool:
    """A text that all engines read as the same number, in whichever way they compare texts with numbers."""
    return isinstance(given, str) and bool(re.fullmatch(r"0|-?[1-9]\d{0,17}", given))


_FAMILIES: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_null),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date,),
    "timestamp": (pa.types.is_timestamp,),
    "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
}


def _family(kind: pa.DataType) -> str | None:
    return next((name for name, are in _FAMILIES.items() if any(is_of(kind) for is_of in are)), None)


def _named(kind: pa.DataType) -> str:
    return str(kind) if kind.num_fields == 0 else str(kind).partition("<")[0]


def _number(text: str, reader: _Reader, where: Node | None = None) -> pa.Scalar:
    try:
        if re.fullmatch(r"[+-]?\d+", text.strip()):
            value = int(text)
            fits = -(2**63) <= value < 2**63
            return pa.scalar(value) if fits else pa.scalar(Decimal(value), pa.decimal256(76, 0))
        if re.search(r"[eEnNfF]", text):
            return pa.scalar(float(text))
        return pa.scalar(Decimal(text))
    except (ValueError, InvalidOperation, pa.ArrowException) as error:
        where_text = f" in {where.sql('spark')}" if where is not None else ""
        raise reader.fail(f"{text!r} is not a number{where_text}") from error


def _with_number(value: Value, number: float | Decimal) -> tuple[Value, Value]:
    """A numeric value and a number, neither rounded: decimals wide enough for both where integers don't do."""
    kind = value.type
    if pa.types.is_floating(kind):
        return value, Literal(pa.scalar(float(number), pa.float64()))
    if isinstance(number, float):
        return Cast(value, pa.float64()), Literal(pa.scalar(number))
    exact = Decimal(number)
    digits = max(0, -int(exact.normalize().as_tuple().exponent))
    if pa.types.is_integer(kind):
        if digits == 0 and -(2**63) <= exact < 2**63:
            return value, Literal(pa.scalar(int(exact)))
        wide = pa.decimal256(76, digits)
        return Cast(value, wide), Literal(pa.scalar(exact, wide))
    if digits <= kind.scale and abs(exact) < Decimal(10) ** (kind.precision - kind.scale):
        return value, Literal(pa.scalar(exact, kind))
    wide = pa.decimal256(76, max(digits, kind.scale))
    return Cast(value, wide), Literal(pa.scalar(exact, wide))


def _temporal(text: str, kind: pa.DataType, reader: _Reader) -> pa.Scalar:
    """Dates and times from ISO text; a time without a zone is UTC. A date may have a time behind it, as in Spark."""
    found = _ISO.fullmatch(text.strip())
    try:
        if pa.types.is_date(kind) and found is not None:
            return pa.scalar(dt.date.fromisoformat(found["date"]), kind)
        if pa.types.is_date(kind) or found is None:
            raise ValueError(text)
        fraction = (found["fraction"] or "").ljust(6, "0")
        zone = (found["zone"] or "+00:00").replace("Z", "+00:00")
        moment = dt.datetime.fromisoformat(f"{found['date']}T{found['time'] or '00:00:00'}.{fraction}{zone}")
    except ValueError as error:
        raise reader.fail(f"{text!r} is no {'date' if pa.types.is_date(kind) else 'timestamp'}") from error
    micros = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(microseconds=1)
    exact = pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", kind.tz))
    # A column in milliseconds is compared in microseconds when the literal has them.
    return exact if micros % 1000 else exact.cast(kind)


def _like_regex(pattern: str, escape: str, reader: _Reader) -> tuple[str, str]:
    """A LIKE pattern as a regular expression, and the plain text it begins with."""
    parts: list[str] = []
    wild = False
    prefix = ""
    characters = iter(pattern)
    for character in characters:
        if character in "%_" and character != escape:
            wild = True
            parts.append(".*" if character == "%" else ".")
            continue
        if character == escape:
            character = next(characters, "")
            reader.may_differ |= character not in ("%", "_", escape)  # an error in Spark
            if not character:
                raise reader.fail(f"the LIKE pattern {pattern!r} ends in its escape character")
        parts.append(re.escape(character))
        if not wild:
            prefix += character
    return f"(?s)\\A{''.join(parts)}\\z", prefix
