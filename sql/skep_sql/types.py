"""Column types as Spark's SQL writes them, from and to the neutral schema."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pyarrow as pa

from skep_format.errors import InputError, SchemaError
from skep_format.schema.arrow import from_arrow_type, is_any_list
from skep_format.schema.types import DataType, ListType, MapType, StructType, type_text
from skep_sql.parsing.statements import ColumnSpec
from skep_table.query.filters.text import parse_columns

t = pa.types


def arrow_text(kind: pa.DataType, column: str) -> str:
    """The same of an Arrow type."""
    return type_text(from_arrow_type(kind, column))


def given_text(kind: pa.DataType, column: str) -> str:
    """As Spark writes the type of what a query answers, which need not be one that a table holds."""
    if t.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{given_text(field.type, column)}' for field in kind)}>"
    if is_any_list(kind):
        return f"array<{given_text(kind.value_type, column)}>"
    if t.is_map(kind):
        return f"map<{given_text(kind.key_type, column)},{given_text(kind.item_type, column)}>"
    return _OF_QUERIES.get(kind) or arrow_text(kind, column)


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
        kind = None
        if "<" in text:
            with contextlib.suppress(InputError):  # of another engine: as it is written
                kind = column_type(ColumnSpec(name, text))
        lines += _branch(f"{name}: ", text if kind is None else kind, " (nullable = true)", " |")
    return "\n".join(lines) + "\n"


_IN_TREES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


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
            text = kind if isinstance(kind, str) else type_text(kind)
            yield f"{prefix}-- {name}{_IN_TREES.get(text, text)}{note}"


def column_type(column: ColumnSpec) -> DataType:
    """The neutral type of a column as it is declared; raises as `arrow_field` does."""
    return from_arrow_type(arrow_field(column).type, column.name)


def arrow_field(column: ColumnSpec) -> pa.Field:
    """A column as it is declared. InputError for an unknown type, SchemaError for a map whose keys are no texts."""
    quoted = column.name.replace("`", "``")
    try:
        kind = parse_columns(f"`{quoted}` {column.type}").field(0).type
    except InputError as error:
        raise InputError(
            f"column {column.name}: unknown type {column.type}", column=column.name, found=column.type
        ) from error
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        raise SchemaError(f"column {column.name}: keys of maps are strings in Hudi's tables", column=column.name)
    metadata = {"comment": column.comment} if column.comment else None
    return pa.field(column.name, kind, column.nullable, metadata)
