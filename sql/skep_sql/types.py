"""Column types as Spark's SQL writes them, from and to the neutral schema."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.schema.arrow import arrow_type, from_arrow_type, is_any_list
from skep_format.schema.types import DataType, ListType, MapType, StructType, parse_type, spark_name, type_text
from skep_sql.parsing.statements import ColumnSpec

t = pa.types


def arrow_text(kind: pa.DataType, column: str) -> str:
    """The same of an Arrow type."""
    return type_text(from_arrow_type(kind, column))


def given_text(kind: pa.DataType, column: str) -> str:
    """As Spark writes the type of what a query answers, which need not be one that a table holds."""
    return nested_name(kind, lambda plain: _OF_QUERIES.get(plain) or arrow_text(plain, column))


def nested_name(
    kind: pa.DataType, plain: Callable[[pa.DataType], str], named: Callable[[str], str] = lambda name: name
) -> str:
    """A type with the names that `plain` has for those within it; `named` spells the members of structs."""
    if is_any_list(kind):
        return f"array<{nested_name(kind.value_type, plain, named)}>"
    if t.is_map(kind):
        return f"map<{nested_name(kind.key_type, plain, named)},{nested_name(kind.item_type, plain, named)}>"
    if t.is_struct(kind):
        return f"struct<{','.join(f'{named(field.name)}:{nested_name(field.type, plain, named)}' for field in kind)}>"
    return plain(kind)


_OF_QUERIES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.duration("us"): "interval day to second",
}


def tree_text(columns: Iterable[tuple[str, str]]) -> str:
    """Names and types as Spark prints a schema: a line for each column, and for what is in it."""
    lines = ["root"]
    for name, text in columns:
        kind: DataType | str = text
        with contextlib.suppress(SchemaError):  # of another engine: as it is written
            kind = text if "(" in text and "<" not in text else parse_type(text, name)
        lines += _branch(f"{name}: ", kind, " (nullable = true)", " |")
    return "\n".join(lines) + "\n"


def _branch(name: str, kind: DataType | str, note: str, prefix: str) -> Iterator[str]:
    inner = f"{prefix}    |"
    match kind:
        case StructType():
            yield f"{prefix}-- {name}struct{note}"
            for field in kind.fields:
                yield from _branch(f"{field.name}: ", field.type, f" (nullable = {str(field.nullable).lower()})", inner)
        case ListType():
            yield f"{prefix}-- {name}array{note}"
            yield from _branch(
                "element: ", kind.element, f" (containsNull = {str(kind.element_nullable).lower()})", inner
            )
        case MapType():
            yield f"{prefix}-- {name}map{note}"
            yield f"{inner}-- key: string"
            holds_null = str(kind.value_nullable).lower()
            yield from _branch("value: ", kind.value, f" (valueContainsNull = {holds_null})", inner)
        case _:
            yield f"{prefix}-- {name}{kind if isinstance(kind, str) else spark_name(kind)}{note}"


def arrow_field(column: ColumnSpec) -> pa.Field:
    """A column as it is declared. SchemaError for a type that tables don't have."""
    metadata = {"comment": column.comment} if column.comment else None
    return pa.field(column.name, arrow_type(parse_type(column.type, column.name)), column.nullable, metadata)
