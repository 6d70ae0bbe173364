"""Values in a query for the embedded engine: their text, and the types and names that Spark gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from sqlglot import ErrorLevel, exp

from skep_sql.parsing.statements import Node
from skep_sql.translation.spark_types import cast

_LONGEST_REASON: Final = 100
VARIABLE: Final = "namedlambdavariable()"
NAN: Final = "'NaN'"


class DiffersError(Exception):
    """A part of a query whose meaning is not known to be the same in both engines; the message shows it."""


@dataclass(frozen=True, slots=True)
class EngineValue:
    """An expression for the embedded engine. `name` is that of its column in Spark's answer, None where that is not
    known; `literal` is the text of a constant."""

    text: str
    type: pa.DataType
    name: str | None = None
    literal: str | None = None
    has_aggregate: bool = False


class NameScope(Protocol):
    """Where an expression finds its columns and subqueries."""

    def column(self, node: Node) -> EngineValue:
        """The column that a node names."""

    def subquery(self, query: Node) -> tuple[str, tuple[EngineValue, ...]]:
        """A query within the expression, and its columns."""


def differs(node: Node, why: str = "") -> DiffersError:
    """The error for a node that is left to Spark."""
    text = " ".join(node.sql("spark", unsupported_level=ErrorLevel.IGNORE).split())  # of which sqlglot would warn
    if len(text) > _LONGEST_REASON:
        text = f"{text[: _LONGEST_REASON - 1]}…"
    return DiffersError(f"{text} ({why})" if why else text)


def check_only(node: Node, *names: str) -> None:
    """DiffersError for a node with more to it than these arguments."""
    for name, value in node.args.items():
        if value not in (None, [], False) and name not in names:
            part = value[0] if isinstance(value, list) else value
            raise differs(part if isinstance(node, exp.Query | exp.Table) and hasattr(part, "sql") else node)


def as_type(value: EngineValue, kind: pa.DataType) -> str:
    """The value in another type, which holds it; the engine fails where it does not."""
    return value.text if value.type == kind else cast(value.text, kind)


def literal_text(text: str) -> str:
    """A text as the engine's SQL writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def named(pattern: str | None, *values: EngineValue) -> str | None:
    """The name of a column that is made of those of others, `{}` for each."""
    names = [value.name for value in values]
    return None if pattern is None or None in names else pattern.format(*names)


def pattern_of(name: str, count: int) -> str:
    """The name of a call with a `{}` for that of each argument."""
    return f"{name}({', '.join(['{}'] * count)})"


def failure(why: str, text: str, kind: pa.DataType) -> str:
    """An expression of a type for which the engine fails, with the value of another in its error."""
    found = cast(f"concat('{why}: ', CAST({text} AS string))", pa.int32())
    return cast(found, kind)


def made(text: str, kind: pa.DataType, name: str | None, *values: EngineValue) -> EngineValue:
    """An expression over others, whose names are the `{}` of its own."""
    has_aggregate = any(value.has_aggregate for value in values)
    return EngineValue(text, kind, named(name, *values), has_aggregate=has_aggregate)


def comparable(text: str, kind: pa.DataType) -> str:
    """A value such that equal ones are one: Spark has one zero and one NaN, the engine those of either sign."""
    if not pa.types.is_floating(kind):
        return text
    return f"(CASE WHEN isnan({text}) THEN {cast(NAN, kind)} ELSE {text} + {cast('0', kind)} END)"
