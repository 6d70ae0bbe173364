"""Files of JSON lines as Arrow tables, by a schema: what Hudi's converter takes is taken, and errors name the line.

Arrow reads a file whose values are of the schema's kinds. Another file is read line by line: numbers as texts, times
as texts, maps, and whatever is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from skep_stream.rejected import Place, Rejected
from skep_table.errors import InputError
from skep_table.schema.arrow import to_arrow
from skep_table.schema.reconcile import spell
from skep_table.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    EnumType,
    Field,
    FixedType,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    Schema,
    StringType,
    StructType,
    TimestampType,
    TimeType,
)

_BLOCK_BYTES: Final = 16 << 20  # a line has to fit
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file."""

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}, line {self.number}"


def json_rows(name: str, data: bytes, schema: Schema, rejected: Rejected | None = None) -> pa.Table:
    """The rows of one file, in the schema's columns; other fields are left out, as Hudi does.

    InputError names file, line and column of the first value that does not fit; with `rejected` such lines are left
    out and added there.
    """
    rows = _read_by_arrow(data, schema)
    if rows is None or _lacks_required(rows, schema):
        return _read_by_line(name, data, schema, rejected)
    return rows


def json_values(
    texts: pa.Array, schema: Schema, place_of: Callable[[int], Place], rejected: Rejected | None = None
) -> tuple[pa.Table, pa.Array | None]:
    """As `json_rows`, of texts of one object each, without line ends; `place_of` is called with the number of a text.

    Also which texts are rows, where not all of them are.
    """
    parts = (pa.scalar(each, pa.large_binary()) for each in (b"\n", b""))
    lines = pc.binary_join_element_wise(texts.cast(pa.large_binary()), *parts)
    rows = _read_by_arrow(_buffer(lines), schema)
    if rows is not None and rows.num_rows == len(texts) and not _lacks_required(rows, schema):
        return rows, None
    numbered = ((number, text) for number, text in enumerate(texts.to_pylist()) if text.strip())
    rows, kept = _read_each(numbered, schema, place_of, rejected)
    return rows, pa.array(kept, pa.int64())


def _buffer(values: pa.Array) -> Any:
    """The bytes of all values, which follow one another."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    return values.buffers()[2][int(offsets[0]) : int(offsets[-1])]


def _read_by_arrow(data: Any, schema: Schema) -> pa.Table | None:
    """None where a value is of another kind than its column."""
    wanted = to_arrow(schema)
    stored = [_stored(field.type) for field in schema.fields]
    if None in stored:
        return None
    read_as = pa.schema([pa.field(field.name, kind) for field, kind in zip(wanted, stored, strict=True)])
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=arrow_json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)  # Arrow takes any bytes for text
        columns = [table.column(field.name).cast(field.type) for field in wanted]
    except pa.ArrowException:
        return None
    return pa.Table.from_arrays(columns, schema=wanted)


def _stored(kind: DataType) -> pa.DataType | None:
    """The type that Arrow reads the JSON of a column as; None where it reads none."""
    match kind:
        case BooleanType() | IntType() | LongType() | DoubleType() | StringType():
            return to_arrow(Schema((Field("v", kind),))).field(0).type
        case FloatType():
            return pa.float32()
        case TimestampType():
            return pa.int64()
        case DateType():
            return pa.int32()
        case ListType():
            element = _stored(kind.element)
            return None if element is None or isinstance(kind.element, (TimestampType, DateType)) else pa.list_(element)
        case StructType():
            members = [(field.name, _stored(field.type)) for field in kind.fields]
            unread = any(found is None for _, found in members)
            timed = any(isinstance(field.type, (TimestampType, DateType)) for field in kind.fields)
            required = any(not field.nullable for field in kind.fields)  # which only the reader of lines checks
            return None if unread or timed or required else pa.struct(members)
    return None


def _lacks_required(rows: pa.Table, schema: Schema) -> bool:
    return any(
        not field.nullable and column.null_count for field, column in zip(schema.fields, rows.columns, strict=True)
    )


def _read_by_line(name: str, data: bytes, schema: Schema, rejected: Rejected | None) -> pa.Table:
    return _read_each(_lines(name, data), schema, partial(Line, name), rejected)[0]


def _read_each(
    lines: Iterable[tuple[int, str]], schema: Schema, place_of: Callable[[int], Place], rejected: Rejected | None
) -> tuple[pa.Table, list[int]]:
    """The rows, and the numbers of their lines."""
    wanted = to_arrow(schema)
    columns: dict[str, list[Any]] = {field.name: [] for field in schema.fields}
    kept: list[int] = []
    for number, line in lines:
        try:
            row = _row(line, schema)
        except (ValueError, TypeError, InvalidOperation) as error:
            place = place_of(number)
            if rejected is None:
                raise InputError(f"{place}: {error}", path=place.source, line=place.number) from error
            rejected.add(place.source, place.number, line, str(error))
            continue
        kept.append(number)
        for field, values in columns.items():
            values.append(row[field])
    try:
        arrays = [pa.array(columns[field.name], field.type) for field in wanted]
    except pa.ArrowException as error:
        source = place_of(kept[0]).source
        raise InputError(f"{source}: a value can't be held by its column: {error}", path=source) from error
    return pa.Table.from_arrays(arrays, schema=wanted), kept


def _lines(name: str, data: bytes) -> Iterator[tuple[int, str]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {line}: this is not in UTF-8", path=name, line=line) from error
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _row(line: str, schema: Schema) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    if not isinstance(row, Mapping):
        raise ValueError("each line is to hold one JSON object")
    return _members(row, schema.fields, "")


def _members(row: Mapping[str, Any], fields: tuple[Field, ...], within: str) -> dict[str, Any]:
    return {
        field.name: _value(row.get(field.name), field.type, field.nullable, within + field.name) for field in fields
    }


def _value(value: Any, kind: DataType, nullable: bool, path: str) -> Any:
    if value is None:
        if nullable:
            return None
        raise ValueError(f"column {path} is required, and has no value")
    match kind:
        case StructType() if isinstance(value, Mapping):
            return _members(value, kind.fields, f"{path}.")
        case ListType() if isinstance(value, list):
            return [_value(each, kind.element, kind.element_nullable, f"{path}.element") for each in value]
        case MapType() if isinstance(value, Mapping):
            return [(key, _value(each, kind.value, kind.value_nullable, path)) for key, each in value.items()]
    convert: Callable[[Any, DataType], Any] = _CONVERTERS.get(type(kind), _text)
    try:
        return convert(value, kind)
    except (ValueError, TypeError, ArithmeticError):
        raise ValueError(f"column {path}: {json.dumps(value, default=str)} is no {spell(kind)}") from None


def _boolean(value: Any, _kind: DataType) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _whole(value: Any, kind: DataType) -> int:
    bits = kind.bits if isinstance(kind, IntType) else 64
    found = int(value)
    if (
        isinstance(value, bool)
        or (not isinstance(value, str) and found != value)
        or not -1 << bits - 1 <= found < 1 << bits - 1
    ):
        raise ValueError
    return found


def _number(value: Any, _kind: DataType) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


def _decimal(value: Any, kind: DataType) -> Decimal:
    assert isinstance(kind, DecimalType)
    found = Decimal(str(value))
    exact = found.quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(value, bool) or exact != found:
        raise ValueError
    return exact


def _text(value: Any, _kind: DataType) -> str:
    """Numbers and booleans become texts, as in Hudi; objects and lists do not."""
    if isinstance(value, (Mapping, list)):
        raise ValueError
    return value if isinstance(value, str) else json.dumps(value, default=str).strip('"')


def _symbol(value: Any, kind: DataType) -> str:
    assert isinstance(kind, EnumType)
    if value not in kind.symbols:
        raise ValueError
    return str(value)


def _bytes(value: Any, _kind: DataType) -> bytes:
    return str(value).encode()


def _date(value: Any, _kind: DataType) -> int:
    days = value if isinstance(value, int) else (date.fromisoformat(value) - _EPOCH).days
    return int(days)


def _time(value: Any, kind: DataType) -> int:
    """Numbers are in the unit of the column; texts are ISO times, in UTC where they name no zone."""
    assert isinstance(kind, TimestampType)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    zoned = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
    since = zoned if kind.utc else found.replace(tzinfo=timezone.utc)
    return (since - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(
        microseconds=1 if kind.unit == "us" else 1000
    )


_CONVERTERS: Final[Mapping[type, Callable[[Any, DataType], Any]]] = {
    BooleanType: _boolean,
    IntType: _whole,
    LongType: _whole,
    FloatType: _number,
    DoubleType: _number,
    DecimalType: _decimal,
    EnumType: _symbol,
    StringType: _text,
    BinaryType: _bytes,
    DateType: _date,
    FixedType: _bytes,
    TimeType: _whole,
    TimestampType: _time,
}
