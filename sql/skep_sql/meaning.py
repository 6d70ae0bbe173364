"""Which queries mean the same to Spark and to DuckDB. What is not known to is left to Spark.

Left out on purpose: division and remainder (types, zero), casts to whole numbers of anything with a fraction (Spark
cuts off, DuckDB rounds) and to text (how numbers are written), `||` and concat (types), everything with a time zone.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

_SAME: Final = frozenset(
    [
        "Select",
        "From",
        "Where",
        "Join",
        "Group",
        "Having",
        "Order",
        "Ordered",
        "Limit",
        "Offset",
        "Distinct",
        "Subquery",
        "Paren",
        "With",
        "CTE",
        "Union",
        "Except",
        "Intersect",
        "Table",
        "TableAlias",
        "Identifier",
        "Alias",
        "Column",
        "Star",
        "Literal",
        "Null",
        "Boolean",
        "Neg",
        "Values",
        "Tuple",
        "Anonymous",
        "And",
        "Or",
        "Not",
        "EQ",
        "NEQ",
        "GT",
        "GTE",
        "LT",
        "LTE",
        "NullSafeEQ",
        "NullSafeNEQ",
        "Is",
        "In",
        "Between",
        "Exists",
        "Case",
        "If",
        "Coalesce",
        "Nullif",
        "Add",
        "Sub",
        "Mul",
        "Upper",
        "Lower",
        "Length",
        "Abs",
        "Count",
        "Sum",
        "Min",
        "Max",
        "Avg",
        "RowNumber",
        "Window",
        "WindowSpec",
        "Array",
        "Struct",
        "PropertyEQ",
        "Map",
        "Dot",
        "DataType",
        "Cast",
        "TryCast",
        "Qualify",
    ]
)
_LITERAL_CASTS: Final = {"DATE", "INT", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN"}
_OWN_FUNCTIONS: Final = ("skep_target", "skep_source")


def differs(query: exp.Query) -> str | None:
    """The first part of a query whose meaning is not known to be the same; None when all of it is."""
    for node in query.walk():
        name = type(node).__name__
        if name not in _SAME:
            return str(node.sql("spark"))
        if isinstance(node, exp.Cast) and not _is_plain_literal(node):
            return str(node.sql("spark"))
        if isinstance(node, exp.Anonymous) and node.name.lower() not in _OWN_FUNCTIONS:
            return str(node.sql("spark"))
        if isinstance(node, exp.Order) and any(each.args.get("with_fill") for each in node.expressions):
            return str(node.sql("spark"))
    return None


def _is_plain_literal(node: exp.Cast) -> bool:
    """A typed literal, such as 1L or DATE'2026-01-01'."""
    kind, inner = node.to.this, node.this
    inner = inner.this if isinstance(inner, exp.Neg) else inner
    named = str(getattr(kind, "value", kind)).upper()
    if not isinstance(inner, exp.Literal) or named not in _LITERAL_CASTS:
        return False
    if named == "DATE":
        return bool(inner.is_string)
    return not inner.is_string and (named in ("DOUBLE", "FLOAT") or str(inner.this).isdigit())
