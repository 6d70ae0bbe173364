"""What the WHERE of a query implies for one of its tables, as a filter by which skep's reader leaves out files.

Only conditions that skep and Spark take alike are put to the table, and Spark still checks all of them: a column
compared with constants of its own type. A condition on a row of the table has to hold for every row of the answer that
the row is part of, also where the query joins.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep_table.query.sql import SqlDialect

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN_TEXT: Final = re.compile(r"[^'\"\\\x00-\x1f]*")
_COMPARISONS: Final = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_WHOLE: Final = ("joins", "laterals", "pivots", "sample", "match", "when", "version", "rows_from")

Node = Any  # sqlglot's nodes: their base class has different names in different releases


def filter_on(table: exp.Table, schema: pa.Schema) -> str | None:
    """The filter on the columns of `schema` that the query around `table` implies; None where it implies nothing."""
    select = _select_of(table)
    if select is None:
        return None
    where = select.args.get("where")
    found = [_rebuilt(part, table, select, schema) for part in _parts(where.this)] if where is not None else []
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


def _rebuilt(node: Node, table: exp.Table, select: exp.Select, schema: pa.Schema) -> Node | None:
    """The condition over the table's bare columns; None where skep might take it in another way than Spark.

    None of these is true of null: where an outer join finds no row of the table, the answer has none either.
    """

    def column_of(each: Node) -> pa.Field | None:
        return _column(each, table, select, schema)

    if isinstance(node, exp.Paren):
        inner = _rebuilt(node.this, table, select, schema)
        return None if inner is None else exp.paren(inner)
    if isinstance(node, (exp.And, exp.Or)):
        left = _rebuilt(node.left, table, select, schema)
        right = _rebuilt(node.right, table, select, schema)
        if left is None or right is None:
            # One side of an AND is implied by both.
            return (left or right) if isinstance(node, exp.And) else None
        return exp.paren(type(node)(this=left, expression=right))
    if isinstance(node, _COMPARISONS):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            field = column_of(side)
            value = None if field is None else _constant(other, field.type)
            if field is not None and value is not None:
                sides = (_named(field), value) if side is node.left else (value, _named(field))
                return type(node)(this=sides[0], expression=sides[1])
        return None
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        return _with_constants(node, column_of(node.this), ("low", "high"))
    if isinstance(node, exp.In) and not node.args.get("query") and not node.args.get("unnest"):
        return _with_constants(node, column_of(node.this), ("expressions",))
    return None


def _with_constants(node: Node, field: pa.Field | None, names: tuple[str, ...]) -> Node | None:
    given: dict[str, Any] = {}
    for name in names:
        asked = node.args.get(name)
        listed = asked if isinstance(asked, list) else [asked]
        values = [None if field is None else _constant(each, field.type) for each in listed]
        if not values or any(value is None for value in values):
            return None
        given[name] = values if isinstance(asked, list) else values[0]
    return None if field is None else type(node)(this=_named(field), **given)


def _named(field: pa.Field) -> Node:
    return exp.column(exp.to_identifier(field.name, quoted=True))


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


def _constant(node: Node, kind: pa.DataType) -> Node | None:
    """A constant of exactly a column's type; None where Spark or skep would convert one of the two."""
    t = pa.types
    if t.is_date32(kind):
        text = node.this if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE else node
        fits = isinstance(text, exp.Literal) and text.is_string and _is_date(text.this)
        return text.copy() if fits else None
    if t.is_string(kind):
        fits = isinstance(node, exp.Literal) and node.is_string and bool(_PLAIN_TEXT.fullmatch(node.this))
        return node.copy() if fits else None
    if t.is_int32(kind) or t.is_int64(kind):
        number = node.this if isinstance(node, exp.Neg) else node
        if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdecimal():
            return None
        return node.copy() if int(number.this) < 1 << (kind.bit_width - 1) else None
    return None


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and dt.date.fromisoformat(text))
    except ValueError:
        return False
