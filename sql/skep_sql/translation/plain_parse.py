"""Queries parsed with every function as it was called.

sqlglot takes functions of one meaning, in one of the dialects, for the same; their arguments change places. What is
translated needs the names and arguments of Spark.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from skep_sql.parsing.written import as_written, spark_text
from skep_sql.translation.values import DiffersError

_ALWAYS: Final = ("CAST", "TRY_CAST", "EXTRACT")
_OF_WORDS: Final = ("TRIM", "SUBSTRING", "SUBSTR", "OVERLAY")  # substring(a FROM 2): of a call the name would be lost


def _parsers(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: Spark.Parser.FUNCTION_PARSERS[name] for name in names if name in Spark.Parser.FUNCTION_PARSERS}


class _Plain(Spark):
    class Parser(Spark.Parser):  # type: ignore[misc,name-defined,valid-type,unused-ignore]
        FUNCTIONS: ClassVar[Any] = {}
        FUNCTION_PARSERS: ClassVar[Any] = _parsers(_ALWAYS)
        NO_PAREN_FUNCTION_PARSERS: ClassVar[Any] = {
            name: Spark.Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")
        }


class _OfWords(_Plain):
    class Parser(_Plain.Parser):
        FUNCTION_PARSERS: ClassVar[Any] = _parsers((*_ALWAYS, *_OF_WORDS))


def parsed_plainly(query: exp.Query) -> exp.Query:
    """The query with functions that sqlglot knows as `Anonymous`, in the names and places in which Spark gets them."""
    text = spark_text(query)
    try:
        try:
            tree = parse_one(text, dialect=_Plain)
        except SqlglotError:
            tree = parse_one(text, dialect=_OfWords)
    except SqlglotError as error:
        raise DiffersError(str(error).partition("\n")[0]) from error
    as_written(tree, text)
    for node in tree.find_all(exp.Extract):  # whose unit sqlglot writes in capitals
        spelled = set(re.findall(rf"\bextract\s*\(\s*({re.escape(node.name)})\b", text, re.IGNORECASE))
        if len(spelled) == 1:
            node.set("this", exp.Var(this=spelled.pop()))
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise DiffersError(text)
    return tree
