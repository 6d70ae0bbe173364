"""Rows in golden spelling as Arrow tables, with the types that a Spark DDL text names."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_table(rows: list[dict[str, Any]], ddl: str) -> pa.Table:
    schema = arrow_schema(ddl)
    columns = [
        pa.array([value_of(row.get(field.name), field.type) for row in rows], type=field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def arrow_schema(ddl: str) -> pa.Schema:
    return pa.schema([(name.strip("`"), type_of(kind)) for name, _, kind in (p.partition(" ") for p in parts(ddl))])


def type_of(text: str) -> pa.DataType:
    name, _, inside = text.strip().rstrip(")").partition("(")
    if name == "decimal":
        return pa.decimal128(*map(int, inside.split(",")))
    name, opened, inside = text.strip().partition("<")
    if not opened:
        return PLAIN[name]
    arguments = list(parts(inside.removesuffix(">")))
    match name:
        case "array":
            return pa.list_(type_of(arguments[0]))
        case "map":
            return pa.map_(type_of(arguments[0]), type_of(arguments[1]))
        case "struct":
            return pa.struct([(part.partition(":")[0], type_of(part.partition(":")[2])) for part in arguments])
    raise ValueError(text)


def parts(text: str) -> Iterator[str]:
    """The pieces between the commas that are in no brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def value_of(spelt: Any, kind: pa.DataType) -> Any:
    if spelt is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(spelt.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [value_of(item, kind.value_type) for item in spelt]
    if pa.types.is_map(kind):
        return [(value_of(name, kind.key_type), value_of(item, kind.item_type)) for name, item in spelt.items()]
    if pa.types.is_decimal(kind):
        return Decimal(spelt)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(spelt)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(spelt.replace("Z", "+00:00"))
    if pa.types.is_binary(kind):
        return base64.b64decode(spelt)
    return SPECIAL.get(spelt, spelt) if pa.types.is_floating(kind) else spelt
