"""The columns of a table by its entry in the metastore: Spark's schema in its parameters, else Hive's types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from skep_catalog.entities import TableEntry
from skep_catalog.entries import SCHEMA_PARTS
from skep_format.errors import FormatError, SchemaError
from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    Schema,
    StringType,
    StructType,
    TimestampType,
)

_WHOLE: Final = SCHEMA_PARTS.removesuffix(".")
_SHARED: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "decimal": DecimalType(10, 0),
}
_OF_SPARK: Final = {
    **_SHARED,
    "byte": IntType(8),
    "short": IntType(16),
    "integer": IntType(),
    "long": LongType(),
    "timestamp_ntz": TimestampType(utc=False),
}
_OF_HIVE: Final = {
    **_SHARED,
    "tinyint": IntType(8),
    "smallint": IntType(16),
    "int": IntType(),
    "integer": IntType(),
    "bigint": LongType(),
    "double precision": DoubleType(),
    "numeric": DecimalType(10, 0),
    "timestamp with local time zone": TimestampType(),
}
_SIZED: Final = re.compile(
    r"(?P<name>decimal|numeric|varchar|char)\s*\(\s*(?P<first>\d+)\s*(,\s*(?P<second>\d+)\s*)?\)"
)


def stated_schema(table: TableEntry) -> Schema:
    """The columns, those of partitions last, under the Avro name that Hudi gives them.

    SchemaError for a type that no table of Hudi has, FormatError for a schema of Spark's that is not whole.
    """
    text = _text_of_spark(table)
    fields = _fields_of_spark(table, text) if text is not None else _fields_of_hive(table)
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
        return _struct(json.loads(text), table.full_name, "").fields
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SchemaError):
            raise
        raise _broken(table, str(error)) from error


def _broken(table: TableEntry, why: str) -> FormatError:
    return FormatError(
        f"table {table.full_name}: the schema of Spark in its parameters can't be read: {why}", table=table.full_name
    )


def _struct(node: Mapping[str, Any], table: str, path: str) -> StructType:
    fields = []
    for each in node["fields"]:
        name, comment = each["name"], each.get("metadata", {}).get("comment")
        kind = _of_spark(each["type"], table, f"{path}.{name}" if path else name)
        fields.append(Field(name, kind, bool(each["nullable"]), comment))
    return StructType(tuple(fields))


def _of_spark(node: Any, table: str, path: str) -> DataType:
    if isinstance(node, str):
        return _OF_SPARK.get(node) or _sized(node) or _refuse(table, path, node)
    match node["type"]:
        case "struct":
            return _struct(node, table, path)
        case "array":
            return ListType(_of_spark(node["elementType"], table, f"{path}.element"), bool(node["containsNull"]))
        case "map" if node["keyType"] == "string":
            return MapType(_of_spark(node["valueType"], table, f"{path}.value"), bool(node["valueContainsNull"]))
    return _refuse(table, path, json.dumps(node))


def _fields_of_hive(table: TableEntry) -> tuple[Field, ...]:
    columns = (*table.storage.columns, *table.partition_keys)
    return tuple(
        Field(each.name, _of_hive(each.type.strip(), table.full_name, each.name), True, each.comment or None)
        for each in columns
    )


def _of_hive(text: str, table: str, path: str) -> DataType:
    name, bracket, rest = text.partition("<")
    kind, within = name.strip().lower(), rest.strip()
    if not bracket:
        return _OF_HIVE.get(kind) or _sized(kind) or _refuse(table, path, text)
    parts = _parts(within[:-1]) if within.endswith(">") else []
    if kind == "array" and len(parts) == 1:
        return ListType(_of_hive(parts[0], table, f"{path}.element"))
    if kind == "map" and len(parts) == 2 and isinstance(_OF_HIVE.get(parts[0]) or _sized(parts[0]), StringType):
        return MapType(_of_hive(parts[1], table, f"{path}.value"))
    members = [part.partition(":") for part in parts]
    if kind == "struct" and members and all(colon for _, colon, _ in members):
        return StructType(
            tuple(Field(name.strip(), _of_hive(of.strip(), table, f"{path}.{name.strip()}")) for name, _, of in members)
        )
    return _refuse(table, path, text)


def _parts(text: str) -> list[str]:
    """What commas divide that are within no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _sized(text: str) -> DataType | None:
    found = _SIZED.fullmatch(text)
    if found is None:
        return None
    if found["name"] not in ("decimal", "numeric"):
        return StringType()
    precision, scale = int(found["first"]), int(found["second"] or 0)
    return DecimalType(precision, scale) if 0 < precision <= 38 and scale <= precision else None


def _refuse(table: str, path: str, found: str) -> NoReturn:
    raise SchemaError(
        f"table {table}, column {path}: Hudi has no type for {found}", table=table, column=path, found=found
    )
