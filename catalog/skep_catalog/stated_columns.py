"""The columns of a table by its entry in the metastore: Spark's schema in its parameters, else Hive's types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from skep_catalog.entities import TableEntry
from skep_catalog.entries import SCHEMA_PARTS
from skep_format.errors import FormatError, SchemaError
from skep_format.schema.types import DataType, Field, ListType, MapType, Schema, StructType, parse_type

_WHOLE: Final = SCHEMA_PARTS.removesuffix(".")


def stated_schema(table: TableEntry) -> Schema:
    """The columns, those of partitions last, under the Avro name that Hudi gives them.

    SchemaError for a type that no table of Hudi has, FormatError for a schema of Spark's that is not whole.
    """
    text = _text_of_spark(table)
    try:
        fields = _fields_of_hive(table) if text is None else _fields_of_spark(table, text)
    except SchemaError as error:
        column, found = error.fields["column"], error.fields["found"]
        message = f"table {table.full_name}, {error.message}"
        raise SchemaError(message, table=table.full_name, column=column, found=found) from error
    if not fields:
        raise SchemaError(f"table {table.full_name} has no columns in the metastore", table=table.full_name)
    return Schema(fields, table.name, f"hoodie.{table.database}")


def _text_of_spark(table: TableEntry) -> str | None:
    found = table.parameters
    if _WHOLE in found:
        return found[_WHOLE]
    number = found.get(f"{SCHEMA_PARTS}numParts")
    if number is None:
        return None
    try:
        return "".join(found[f"{SCHEMA_PARTS}part.{at}"] for at in range(int(number)))
    except (KeyError, ValueError) as error:
        raise _broken(table, f"{error} is missing, of {number} parts") from error


def _fields_of_spark(table: TableEntry, text: str) -> tuple[Field, ...]:
    try:
        return _struct(json.loads(text), "").fields
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SchemaError):
            raise
        raise _broken(table, str(error)) from error


def _fields_of_hive(table: TableEntry) -> tuple[Field, ...]:
    columns = (*table.storage.columns, *table.partition_keys)
    return tuple(
        Field(each.name, parse_type(each.type, each.name, of_hive=True), True, each.comment or None) for each in columns
    )


def _broken(table: TableEntry, why: str) -> FormatError:
    return FormatError.of_table(table.full_name, f"the schema of Spark in its parameters can't be read: {why}")


def _struct(node: Mapping[str, Any], path: str) -> StructType:
    fields = []
    for each in node["fields"]:
        name, comment = each["name"], each.get("metadata", {}).get("comment")
        kind = _of_spark(each["type"], f"{path}.{name}" if path else name)
        fields.append(Field(name, kind, bool(each["nullable"]), comment))
    return StructType(tuple(fields))


def _of_spark(node: Any, path: str) -> DataType:
    if isinstance(node, str):
        return parse_type(node, path, of_hive=True)
    match node["type"]:
        case "struct":
            return _struct(node, path)
        case "array":
            return ListType(_of_spark(node["elementType"], f"{path}.element"), bool(node["containsNull"]))
        case "map" if node["keyType"] == "string":
            return MapType(_of_spark(node["valueType"], f"{path}.value"), bool(node["valueContainsNull"]))
    return parse_type(json.dumps(node), path)
