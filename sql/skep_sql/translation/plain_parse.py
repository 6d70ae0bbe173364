"""Queries parsed with every function as it was called.

sqlglot takes functions of one meaning, in one of the dialects, for the same; their arguments change places. What is
translated needs the names and arguments of Spark.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from skep_sql.parsing.written import as_written, spark_text
from skep_sql.translation.values import DiffersError

_OF_GRAMMAR: Final = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION")


class _Plain(Spark):
    class Parser(Spark.Parser):  # type: ignore[misc,name-defined,valid-type,unused-ignore]
        FUNCTIONS: ClassVar[Any] = {}
        FUNCTION_PARSERS: ClassVar[Any] = {
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in _OF_GRAMMAR if name in Spark.Parser.FUNCTION_PARSERS
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[Any] = {
            name: Spark.Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")
        }


def parsed_plainly(query: exp.Query) -> exp.Query:
    """The query with functions that sqlglot knows as `Anonymous`, in the names and places in which Spark gets them."""
    text = spark_text(query)
    try:
        tree = parse_one(text, dialect=_Plain)
    except SqlglotError as error:
        raise DiffersError(str(error).partition("\n")[0]) from error
    as_written(tree, text)
    if not isinstance(tree, exp.Query):
        raise DiffersError(text)
    return tree
