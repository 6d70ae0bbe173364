"""What the WHERE of a query implies for one of its tables, as a condition by which skep's reader leaves out files.

Only what skep and Spark take alike is put to the table, and Spark still checks all of it. A condition on a row of the
table has to hold for every row of the answer that the row is part of, also where the query joins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep_format.errors import PredicateError
from skep_table.query.filters.predicate import Predicate
from skep_table.query.filters.text import parse_predicate

_PLAIN_TEXT: Final = re.compile(r"[^'\"\\\x00-\x1f]*")  # settings of Spark decide what a backslash in a text means
_WHOLE: Final = ("joins", "laterals", "pivots", "sample", "match", "when", "version", "rows_from")

Node = Any  # sqlglot's nodes: their base class has different names in different releases


def filter_on(table: exp.Table, schema: pa.Schema, *, in_utc: bool = False) -> Predicate | None:
    """The condition on the columns of `schema` that the query around `table` implies; None where it implies nothing.

    `in_utc`: the session's time zone is UTC, so that times have the same values as skep's.
    """
    select = _select_of(table)
    where = None if select is None else select.args.get("where")
    if select is None or where is None:
        return None
    joins = bool(select.args.get("joins") or select.args.get("laterals"))
    alias = table.alias_or_name.lower()
    no_row = pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)

    def bare(node: Node) -> Node:
        """A column of the table by its name alone. LookupError for what may be another's."""
        if not isinstance(node, exp.Column):
            return node
        first, *members = node.parts
        is_named = bool(members) and first.name.lower() == alias
        if is_named:
            first, *members = members
        names = [each for each in schema.names if each.lower() == first.name.lower()]
        if len(names) != 1 or (joins and not is_named):
            raise LookupError(first.name)
        column = exp.column(exp.to_identifier(names[0], quoted=True))
        return exp.Dot.build([column, *members]) if members else column

    def own(node: Node) -> Node | None:
        try:
            found = node.transform(bare)
            predicate = parse_predicate(found, schema)
            # Where an outer join finds no row of the table, the answer may have one all the same.
            holds_of_none = joins and predicate.mask(no_row)[0].as_py() is True
        except (PredicateError, LookupError):
            return None
        texts = (str(each.this) for each in found.find_all(exp.Literal) if each.is_string)
        certain = predicate.is_certain(in_utc=in_utc) and all(map(_PLAIN_TEXT.fullmatch, texts))
        return found if certain and not holds_of_none else None

    found = _implied(where.this, own)
    return None if found is None else replace(parse_predicate(found, schema), is_implied=True)


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


def _implied(node: Node, own: Callable[[Node], Node | None]) -> Node | None:
    """What is left of a condition of the leaves that `own` takes."""
    if isinstance(node, exp.Paren):
        inner = _implied(node.this, own)
        return None if inner is None else exp.paren(inner)
    if isinstance(node, (exp.And, exp.Or)):
        left, right = (_implied(each, own) for each in (node.left, node.right))
        if left is None or right is None:
            return (left or right) if isinstance(node, exp.And) else None
        return type(node)(this=left, expression=right)
    return own(node)
