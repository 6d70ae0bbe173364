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

from skep_sql.parsing.statements import Node
from skep_sql.parsing.written import as_written, spark_text
from skep_sql.translation.values import DiffersError, check_only, differs

SUFFIX: Final = "skep_suffix"  # of a cast of a number: whether it is written 1L; None where that is not known
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
    has_suffix = re.search(r"\d[lsy]\b", text, re.IGNORECASE) is not None
    has_cast = re.search(r"cast\s*\(\s*-?\d", text, re.IGNORECASE) is not None
    for each in tree.find_all(exp.Cast):
        each.meta[SUFFIX] = None if has_suffix and has_cast else has_suffix
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise DiffersError(text)
    return tree


def called(node: Node) -> tuple[str, list[Node]]:
    """The name by which a function was called, in lower case, or the sign of an operator; and its arguments."""
    if isinstance(node, exp.Anonymous):
        if node.args.get("quoted") or not isinstance(node.this, str):
            raise differs(node)
        name, nodes = node.name.lower(), list(node.expressions)
        if name == "position" and len(nodes) == 1 and isinstance(nodes[0], exp.In) and nodes[0].args.get("field"):
            return "locate", [nodes[0].this, nodes[0].args["field"]]  # POSITION(a IN b)
        return name, nodes
    if type(node) in SIGNS:
        check_only(node, "this", "expression", "typed", "safe", "coalesce")
        return SIGNS[type(node)], [node.this] if isinstance(node, exp.Unary) else [node.left, node.right]
    if isinstance(node, exp.Substring):
        check_only(node, "this", "start", "length")
        return "substring", _given(node, "this", "start", "length")
    if isinstance(node, exp.Trim):
        check_only(node, "this", "expression", "position")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
        signs = node.args.get("expression")
        if signs is not None and name == "trim":
            raise differs(node)
        return name, [node.this] if signs is None else [signs, node.this]
    if isinstance(node, exp.Overlay):
        return "overlay", _given(node, "this", "expression", "from_", "for_")
    if isinstance(node, exp.Extract):
        check_only(node, "this", "expression")
        return "extract", [node.this, node.expression]
    raise differs(node)


def _given(node: Node, *names: str) -> list[Node]:
    return [each for name in names if (each := node.args.get(name)) is not None]


SIGNS: Final = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.Neg: "-",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.BitwiseNot: "~", exp.DPipe: "||",
}  # fmt: skip
