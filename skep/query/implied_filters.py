"""What the WHERE of a query implies for one of its tables, as a filter by which skep's reader leaves out files.

Only conditions that skep and Spark take alike are put to the table, and Spark still checks all of them: a column, or an
expression over one, compared with constants of its own type. A condition on a row of the table has to hold for every
row of the answer that the row is part of, also where the query joins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep_format.errors import SkepError
from skep_format.expressions import expression_of
from skep_format.schema.arrow import arrow_type, from_arrow_type
from skep_sql.translation.expressions import is_date
from skep_table.query.filters.functions import function_call
from skep_table.query.filters.text import SqlDialect

_PLAIN_TEXT: Final = re.compile(r"[^'\"\\\x00-\x1f]*")
_COMPARISONS: Final = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_ASCII: Final = re.compile(r"[\x20-\x7e]*")
_WHOLE: Final = ("joins", "laterals", "pivots", "sample", "match", "when", "version", "rows_from")

Node = Any  # sqlglot's nodes: their base class has different names in different releases


@dataclass(frozen=True, slots=True)
class _Side:
    """A column of the table, or an expression over one, as the filter writes it. `type` is that of its values.

    `equal_only`: its values are not in the same order for all engines.
    """

    node: Node
    type: pa.DataType
    equal_only: bool = False


def filter_on(table: exp.Table, schema: pa.Schema, *, in_utc: bool = False) -> str | None:
    """The filter on the columns of `schema` that the query around `table` implies; None where it implies nothing.

    `in_utc`: the session's time zone is UTC, so that expressions over times have the same values as skep's.
    """
    select = _select_of(table)
    if select is None:
        return None
    where = select.args.get("where")
    side_of = partial(_side, table=table, select=select, schema=schema, in_utc=in_utc)
    found = [_rebuilt(part, side_of) for part in _parts(where.this)] if where is not None else []
    known = [part for part in found if part is not None]
    return exp.and_(*known, copy=False).sql(SqlDialect) if known else None


def _select_of(table: exp.Table) -> exp.Select | None:
    """The SELECT whose WHERE sees the rows of the table as they are; None where something lies between."""
    clause = table.parent
    select = clause.parent if isinstance(clause, (exp.From, exp.Join)) else None
    if not isinstance(select, exp.Select) or any(table.args.get(name) for name in _WHOLE):
        return None
    joins = select.args.get("joins") or []
    if any((join.kind or "").upper() in ("SEMI", "ANTI") or join.method for join in joins):
        return None
    return select


def _parts(condition: Node) -> Iterator[Node]:
    """The conditions that AND combines."""
    if isinstance(condition, exp.Paren):
        yield from _parts(condition.this)
    elif isinstance(condition, exp.And):
        yield from _parts(condition.left)
        yield from _parts(condition.right)
    else:
        yield condition


def _rebuilt(node: Node, side_of: Callable[[Node], _Side | None]) -> Node | None:
    """The condition over the table's bare columns; None where skep might take it in another way than Spark.

    None of these is true of null: where an outer join finds no row of the table, the answer has none either.
    """
    if isinstance(node, exp.Paren):
        inner = _rebuilt(node.this, side_of)
        return None if inner is None else exp.paren(inner)
    if isinstance(node, (exp.And, exp.Or)):
        left, right = (_rebuilt(each, side_of) for each in (node.left, node.right))
        if left is None or right is None:
            # One side of an AND is implied by both.
            return (left or right) if isinstance(node, exp.And) else None
        return exp.paren(type(node)(this=left, expression=right))
    if isinstance(node, _COMPARISONS):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            side = side_of(one)
            value = None if side is None else _constant(other, side)
            if side is not None and value is not None and (isinstance(node, exp.EQ) or not side.equal_only):
                sides = (side.node, value) if one is node.left else (value, side.node)
                return type(node)(this=sides[0], expression=sides[1])
        return None
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        side = side_of(node.this)
        return None if side is None or side.equal_only else _with_constants(node, side, ("low", "high"))
    if isinstance(node, exp.In) and not node.args.get("query") and not node.args.get("unnest"):
        return _with_constants(node, side_of(node.this), ("expressions",))
    return None


def _with_constants(node: Node, side: _Side | None, names: tuple[str, ...]) -> Node | None:
    given: dict[str, Any] = {}
    for name in names:
        asked = node.args.get(name)
        listed = asked if isinstance(asked, list) else [asked]
        values = [None if side is None else _constant(each, side) for each in listed]
        if not values or any(value is None for value in values):
            return None
        given[name] = values if isinstance(asked, list) else values[0]
    return None if side is None else type(node)(this=side.node, **given)


def _named(field: pa.Field) -> Node:
    return exp.column(exp.to_identifier(field.name, quoted=True))


def _side(node: Node, table: exp.Table, select: exp.Select, schema: pa.Schema, *, in_utc: bool) -> _Side | None:
    """What a node is of the table, where skep has the same values for it as Spark."""
    field = _column(node, table, select, schema)
    if field is not None:
        return _Side(_named(field), field.type)
    called = function_call(node)
    field = None if called is None else _column(called.argument, table, select, schema)
    if called is None or field is None or not all(_PLAIN_TEXT.fullmatch(each) for each in called.options.values()):
        return None  # settings of Spark decide what a backslash in a text means
    try:
        kind = from_arrow_type(field.type, field.name)
        expression = expression_of(called.function, called.options, kind)
    except SkepError:
        return None
    if expression.zoned and not in_utc:
        return None
    rebuilt = node.copy()
    rebuilt.find(exp.Column).replace(_named(field))
    return _Side(rebuilt, arrow_type(expression.result), equal_only=not expression.keeps_order)


def _column(node: Node, table: exp.Table, select: exp.Select, schema: pa.Schema) -> pa.Field | None:
    """The column of the table that a node means without doubt."""
    if not isinstance(node, exp.Column) or node.args.get("db") or node.args.get("catalog"):
        return None
    if node.table:
        if node.table.lower() != table.alias_or_name.lower():
            return None
    elif select.args.get("joins") or select.args.get("laterals"):
        return None
    fields = [field for field in schema if field.name.lower() == node.name.lower()]
    return fields[0] if len(fields) == 1 else None


def _constant(node: Node, side: _Side) -> Node | None:
    """A constant of exactly a column's type; None where Spark or skep would convert one of the two."""
    t, kind = pa.types, side.type
    if t.is_date32(kind):
        text = node.this if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE else node
        fits = isinstance(text, exp.Literal) and text.is_string and is_date(text.this)
        return text.copy() if fits else None
    if t.is_string(kind):
        plain = _ASCII if side.equal_only else _PLAIN_TEXT
        fits = isinstance(node, exp.Literal) and node.is_string and bool(plain.fullmatch(node.this))
        return node.copy() if fits else None
    if t.is_int32(kind) or t.is_int64(kind):
        number = node.this if isinstance(node, exp.Neg) else node
        if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdecimal():
            return None
        return node.copy() if int(number.this) < 1 << (kind.bit_width - 1) else None
    return None
