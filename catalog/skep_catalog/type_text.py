"""Schemas as the metastore's readers want them: Hive's type text, and Spark's JSON in pieces.

Hive's types follow Hudi's sync tool, which uses the types of the Parquet files: bytes and shorts are int, times of day
are numbers, timestamps are `timestamp` (or `bigint`, by option).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from skep_catalog.entities import Column
from skep_format.errors import SchemaError
from skep_format.schema.types import (
    DataType,
    Field,
    ListType,
    MapType,
    StructType,
    TimestampType,
    TimeType,
    spark_name,
    type_text,
)


def hive_columns(fields: Sequence[Field], *, timestamps: bool = True, comments: bool = True) -> tuple[Column, ...]:
    """`timestamps`: as Hive's `timestamp`, else as `bigint`. SchemaError for names that differ only in case."""
    _check_names([field.name for field in fields], "columns ")
    return tuple(
        Column(
            field.name,
            hive_type(field.type, timestamps=timestamps, path=field.name),
            (field.doc or "") if comments else "",
        )
        for field in fields
    )


def _check_names(names: Sequence[str], what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise SchemaError(
                f"{what}{other} and {name} differ only in case: Hive can't distinguish them", column=name, found=other
            )


def _spelt(name: str) -> str:
    """Hive's type parser stops at a dash."""
    return name.replace("-", "_")


def hive_type(kind: DataType, *, timestamps: bool = True, path: str = "") -> str:
    """Hive's text for a type, as in a table's DDL. SchemaError for fields below `path` that Hive can't distinguish."""
    _check_members(kind, path)

    def own(kind: DataType) -> str | None:
        match kind:
            case TimestampType():
                return "timestamp" if timestamps else "bigint"
            case TimeType():
                return "int" if kind.unit == "ms" else "bigint"
        return None

    return type_text(kind, own, lambda name: _spelt(name).lower())


def _check_members(kind: DataType, path: str) -> None:
    match kind:
        case ListType(element=inner) | MapType(value=inner):
            _check_members(inner, path)
        case StructType(fields=fields):
            _check_names([_spelt(field.name) for field in fields], f"in column {path}: fields ")
            for field in fields:
                _check_members(field.type, f"{path}.{field.name}")


def spark_schema(fields: Sequence[Field], *, comments: bool = True) -> str:
    """The JSON of Spark's StructType."""
    return json.dumps(_spark_struct(fields, comments=comments), separators=(",", ":"), ensure_ascii=False)


def _spark_struct(fields: Sequence[Field], *, comments: bool) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _spark_type(field.type, comments=comments),
                "nullable": field.nullable,
                "metadata": {"comment": field.doc} if comments and field.doc else {},
            }
            for field in fields
        ],
    }


def _spark_type(kind: DataType, *, comments: bool) -> Any:
    match kind:
        case ListType(element=element, element_nullable=nullable):
            return {"type": "array", "elementType": _spark_type(element, comments=comments), "containsNull": nullable}
        case MapType(value=value, value_nullable=nullable):
            inner = _spark_type(value, comments=comments)
            return {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": nullable}
        case StructType(fields=fields):
            return _spark_struct(fields, comments=comments)
        case TimeType(unit=unit):
            return "integer" if unit == "ms" else "long"  # what Hudi's reader for Spark makes of it; Spark has no type
    return spark_name(kind)


def pieces(text: str, length: int) -> list[str]:
    """Metastores hold at most 4000 characters in a parameter: the schema goes in pieces."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def same_type(one: str, other: str) -> bool:
    """Whether two Hive type texts mean the same: case and blanks don't count."""
    return "".join(one.split()).lower() == "".join(other.split()).lower()
