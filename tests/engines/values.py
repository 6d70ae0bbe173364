"""One spelling of values for all engines: driven by the Arrow type that skep reads a column with."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
_EXACT = Context(prec=76)


def spelled(value: Any, kind: pa.DataType) -> Any:
    """A value that compares and sorts: JSON values, decimals and times as text. Hive, Spark and (structs) Presto hand
    out nested values as JSON text."""
    if value is None:
        return None
    if pa.types.is_nested(kind) and isinstance(value, str | bytes):
        value = json.loads(value)
    if pa.types.is_struct(kind):
        values = dict(value) if isinstance(value, Mapping) else _by_position(value, kind)
        lower = {name.lower(): item for name, item in values.items()}
        return {field.name: spelled(lower.get(field.name.lower()), field.type) for field in kind}
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return sorted([spelled(key, kind.key_type), spelled(item, kind.item_type)] for key, item in pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [spelled(item, kind.value_type) for item in value]
    return _leaf(value, kind)


def _by_position(value: Sequence[Any], kind: pa.StructType) -> Row:
    if len(value) != kind.num_fields:
        raise ValueError(f"{value!r} is no {kind}")
    return {field.name: item for field, item in zip(kind, value, strict=True)}


def _leaf(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else str(value).lower() == "true"
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return _number(value, kind)
    if pa.types.is_decimal(kind):
        return format(_EXACT.quantize(Decimal(str(value)), Decimal(1).scaleb(-kind.scale)), "f")
    if pa.types.is_timestamp(kind):
        return _moment(value)
    if pa.types.is_date(kind):
        return value.isoformat()[:10] if isinstance(value, dt.date) else str(value)[:10]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: Any, kind: pa.DataType) -> str:
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if kind.bit_width == 32 and math.isfinite(number):
        number = struct.unpack("f", struct.pack("f", number))[0]
    return repr(number + 0.0)  # -0.0 as 0.0


def _moment(value: Any) -> str:
    """Microseconds of UTC; engines are started in UTC and hand out local times."""
    if isinstance(value, str):
        text = value.strip().replace(" UTC", "").replace("Z", "").replace("T", " ")
        whole, _, fraction = text.partition(".")
        moment = dt.datetime.fromisoformat(whole).replace(microsecond=int((fraction + "000000")[:6]))
    else:
        moment = value
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.timezone.utc).replace(tzinfo=None)
    return moment.isoformat(sep=" ", timespec="microseconds")


def rows_of(table: pa.Table) -> list[Row]:
    """What skep reads."""
    types = {field.name: field.type for field in table.schema}
    return [{name: spelled(value, types[name]) for name, value in row.items()} for row in table.to_pylist()]


def rows_answered(names: Sequence[str], rows: Sequence[Sequence[Any]], schema: pa.Schema) -> list[Row]:
    """What an engine answers, by the types that skep reads."""
    by_lower = {field.name.lower(): field for field in schema}
    fields = [by_lower[name.lower()] for name in names]
    return [{field.name: spelled(value, field.type) for field, value in zip(fields, row, strict=True)} for row in rows]


def difference(found: list[Row], expected: list[Row], most: int = 3) -> str:
    """Empty when both hold the same rows, as often; else the first that differ, column by column where it can be."""
    left, right = (
        sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows) for rows in (found, expected)
    )
    if left == right:
        return ""
    extra, missing = _minus(left, right), _minus(right, left)
    lines = [f"{len(found)} rows for {len(expected)}; {len(extra)} unexpected, {len(missing)} missing"]
    missing_by_key = {_key(json.loads(text)): json.loads(text) for text in missing}
    for text in extra[:most]:
        row = json.loads(text)
        other = missing_by_key.get(_key(row))
        if other is None:
            lines.append(f"unexpected {text[:400]}")
        else:
            wrong = {
                name: (row.get(name), other.get(name)) for name in {**other, **row} if row.get(name) != other.get(name)
            }
            lines.append(f"row {_key(row)}: (found, expected) {wrong}")
    lines += [f"missing {text[:400]}" for text in missing[:most]] if not extra else []
    return "\n".join(lines)


def _texts(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


def _key(row: Row) -> str:
    return str(row.get("_hoodie_record_key", row.get("id")))


def _minus(left: list[str], right: list[str]) -> list[str]:
    return sorted((Counter(left) - Counter(right)).elements())
