"""Queries over rows that come with them: of a stream's transformers, of pulls, of validators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skep.query.spark import SparkHolder
from skep_format.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from skep_sql.protocols import Relation


class Queries:
    """Answers queries: Sail in this process where they mean the same to it, else Spark."""

    def __init__(self, spark: SparkHolder) -> None:
        self._spark = spark

    def query(self, text: str, relations: Mapping[str, Relation]) -> pa.Table:
        """The rows of the answer. InputError for what is no query, and for one that does not fit its relations."""
        from sqlglot import exp

        from skep.query.engines import LakeEngine

        query = query_of(text)
        named = {table.name.lower() for table in query.find_all(exp.Table)}
        used = {name: rows for name, rows in relations.items() if name.lower() in named}
        return LakeEngine(self._spark).rows(query, used)


def query_of(text: str) -> exp.Query:
    """The query that a text is. InputError for another statement."""
    from skep_sql.parsing.parse import parse
    from skep_sql.parsing.statements import Query

    statement = parse(text)
    if not isinstance(statement, Query):
        raise InputError("a query is expected", found=text, expected="SELECT …")
    return statement.tree
