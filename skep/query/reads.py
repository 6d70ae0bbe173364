"""What a query reads of its relations, whichever engine answers it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from sqlglot import exp

from skep.query.implied_filters import filter_on
from skep.query.path_rows import ParquetRows
from skep.query.rows import EMBEDDED_BYTES, Rows, columns_among
from skep_sql.parsing.statements import Node
from skep_sql.parsing.written import names_used
from skep_sql.protocols import Relation


def reads(relations: Mapping[str, Relation]) -> list[Rows]:
    """The reads of tables among the relations."""
    return list({id(each): each for each in relations.values() if isinstance(each, Rows)}.values())


def bytes_read(relations: Mapping[str, Relation]) -> int:
    """About how many bytes of files are read. Lists the tables."""
    return sum(rows.bytes_read() for rows in reads(relations))


def why_big(found: int, most: int) -> str | None:
    """Why a query that reads so many bytes is left to Spark; None where it is not."""
    return f"it reads {found} bytes, more than {EMBEDDED_BYTES.key}" if found > most else None


def rows_needed(query: exp.Query) -> int | None:
    """How many rows of its one table a query needs at most, whichever they are; None where that is not known."""
    parts = _given(query)
    if not _is_of_one_table(query, "limit", "offset"):
        return None
    bounds = [query.args[name].expression for name in ("limit", "offset") if name in parts]
    plain = all(isinstance(node, _PLAIN) for each in query.expressions for node in each.walk())
    if "limit" not in parts or not plain or not all(isinstance(each, exp.Literal) and each.is_int for each in bounds):
        return None
    return sum(int(each.this) for each in bounds)


def is_whole(query: exp.Query) -> bool:
    """Whether a query is all columns of all rows of its one table."""
    return _is_of_one_table(query) and len(query.expressions) == 1 and query.expressions[0] == exp.Star()


def _is_of_one_table(query: exp.Query, *more: str) -> bool:
    """Whether a query has nothing but expressions and one table as it is, and perhaps `more`."""
    if not isinstance(query, exp.Select) or not _given(query) <= {"expressions", "from", "from_", *more}:
        return False
    source = query.args.get("from_") or query.args.get("from")
    return source is not None and isinstance(source.this, exp.Table) and not _given(source.this) - {"this", "alias"}


def _given(node: Node) -> set[str]:
    return {name for name, part in node.args.items() if part}


_PLAIN: Final = (exp.Column, exp.Star, exp.Alias, exp.Identifier)


def reads_needed(query: exp.Query, relations: Mapping[str, Relation], *, in_utc: bool = False) -> dict[str, Relation]:
    """The relations, of reads the columns and rows that the query can need. Equal reads are one object.

    `in_utc`: the engine takes times in UTC.
    """
    used = names_used(query)
    nodes: dict[str, list[exp.Table]] = defaultdict(list)
    for node in query.find_all(exp.Table):
        nodes[node.name].append(node)
    needed: dict[str, Relation] = {}
    known: dict[tuple[int, str], Relation] = {}
    for name, relation in relations.items():
        needed[name] = relation
        if isinstance(relation, Rows):
            where = filter_on(nodes[name][0], relation.schema, in_utc=in_utc) if len(nodes[name]) == 1 else None
            needed[name] = known.setdefault((id(relation), str(where)), relation.narrowed(used).filtered(where))
        elif isinstance(relation, ParquetRows):
            needed[name] = relation.narrowed(used)
        elif isinstance(relation, pa.Table) and used is not None:
            needed[name] = known.setdefault(
                (id(relation), ""), relation.select(columns_among(relation.schema.names, used))
            )
    return needed
