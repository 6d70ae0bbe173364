"""What a list of allowed functions lets through: those whose every answer that was compared is Spark's.

Names of columns are not its concern: skep knows Spark's name of a column, or leaves a query to Spark that gives none.

A function is known by its name and by the kinds of its arguments as far as the text of a query shows them: literals,
casts, columns of tables. What is within the arguments is a function of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from benchmarks.engine_choice.compare import Judged, Verdict
from skep_sql.parsing.parse import parse
from skep_sql.parsing.statements import Node, Query
from skep_sql.parsing.written import function_name

RIGHT = (Verdict.EQUAL, Verdict.DIGITS, Verdict.NAMES)
PLAIN = (
    *(exp.Identifier, exp.Literal, exp.Column, exp.Alias, exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Where),
    *(exp.Paren, exp.Null, exp.Boolean, exp.Star, exp.Tuple, exp.Group, exp.Order, exp.Ordered, exp.Join, exp.With),
    *(exp.CTE, exp.Subquery, exp.Having, exp.Limit, exp.Var, exp.DataType, exp.DataTypeParam, exp.Values, exp.Lambda),
    *(exp.If, exp.WindowSpec, exp.Aliases, exp.Dot, exp.ColumnDef, exp.HavingMax, exp.Schema),
)


TYPED = (exp.Func, exp.Binary, exp.Unary, exp.Between, exp.In, exp.Bracket)
KINDS = {  # of casts, as Arrow names them
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "boolean": "bool",
    "date": "date32",
    "decimal": "decimal128",
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamp",
}


def query_of(text: str) -> exp.Query:
    """The tree of a query, as skep parses it."""
    statement = parse(text)
    if not isinstance(statement, Query):
        raise TypeError(f"no query: {text}")
    return statement.tree


def features(text: str, columns: Mapping[str, pa.DataType], *, by_types: bool) -> frozenset[str]:
    """The functions, operators and clauses of a query that an allow-list decides over."""
    return frozenset(_features(query_of(text), columns, by_types))


def _features(tree: Node, columns: Mapping[str, pa.DataType], by_types: bool) -> Iterator[str]:
    for node in tree.walk():
        if isinstance(node, PLAIN):
            continue
        name = function_name(node) or (node.name.lower() if isinstance(node, exp.Anonymous) else node.key)
        if isinstance(node, exp.Cast):
            name = f"cast to {_kind(node, columns)}"  # sqlglot reads Spark's casts and those that try as the same
        if by_types and isinstance(node, TYPED):
            arguments = (each for each in node.iter_expressions() if not isinstance(each, exp.DataType))
            name += f"({', '.join(_kind(each, columns) for each in arguments)})"
        yield name


def _kind(node: Node, columns: Mapping[str, pa.DataType]) -> str:
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else "int32" if node.this.isdecimal() else "decimal128"
    if isinstance(node, (exp.Paren, exp.Neg, exp.Alias)):
        return _kind(node.this, columns)
    if isinstance(node, exp.Cast):
        kind = re.split(r"[(<]", node.to.sql("spark").lower())[0]
        return KINDS.get(kind, kind)
    if isinstance(node, exp.Column):
        found = columns.get(node.name.lower())
        return "column" if found is None else re.split(r"[(<\[]", str(found))[0]
    return "()" if isinstance(node, exp.Func) else node.key


@dataclass(frozen=True)
class AllowList:
    """`allowed`: what was answered as Spark does, in every query compared. `wrong`: what was not, somewhere."""

    allowed: frozenset[str]
    wrong: frozenset[str]


def allow_list(
    judgements: Iterable[Judged], found: Mapping[str, frozenset[str]], owners: Mapping[str, Sequence[str]]
) -> AllowList:
    """Of functions whose every answer is right. A wrong example is its function's; of another query that is wrong, the
    function with the smallest share of right answers, until no wrong query is let through."""
    right: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    wrong_queries = []
    for each in judgements:
        used = found.get(each.query, frozenset())
        if each.verdict in RIGHT:
            right.update(used)
        elif each.verdict is Verdict.WRONG:
            failed.update(used)
            wrong_queries.append(each.query)
    wrong: set[str] = set()
    for query in wrong_queries:
        names = set(owners.get(query, ()))
        wrong |= {each for each in found.get(query, frozenset()) if each.partition("(")[0] in names}
    for query in sorted(wrong_queries, key=lambda query: len(found.get(query, ()))):
        used = found.get(query, frozenset())
        if used and not used & wrong and used <= right.keys():
            wrong.add(min(used, key=lambda name: (right[name] / (right[name] + failed[name]), right[name], name)))
    return AllowList(frozenset(right.keys() - wrong), frozenset(wrong))


def let_through(judgements: Iterable[Judged], found: Mapping[str, frozenset[str]], allowed: AllowList) -> list[Judged]:
    """The queries that the list gives to the engine."""
    return [each for each in judgements if each.query in found and found[each.query] <= allowed.allowed]
