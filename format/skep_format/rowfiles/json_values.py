"""What a value of JSON becomes in a column of a type, or that it is none: the rules, for files, messages and all else.

They are those of Hudi's converter (MercifulJsonConverter of 1.x). Where that would cut a value, wrap it around or make
another one of it, the value does not fit here. `docs/stream.md` has them as a table.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

from skep_format.schema import types
from skep_format.schema.reconcile import spell
from skep_format.schema.types import DataType, Field, StructType

_EPOCH: Final = date(1970, 1, 1)
_SHOWN: Final = 80  # characters of a value in an error
_DIGITS: Final = 18  # that any long holds, less the first
_MICROS_OF_DAY: Final = 86_400_000_000
_CLOCK: Final = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_FLOATING: Final = re.compile(rf"[\0- ]*([+-]?(?:NaN|Infinity)|({_DECIMAL.pattern})[fFdD]?)[\0- ]*", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(_CLOCK, re.ASCII)
_TIMESTAMP: Final = re.compile(
    rf"({_DATE.pattern})(?:[T ]{_CLOCK}(Z|[+-]\d\d:?[0-5]\d(?::?[0-5]\d)?)?)?", re.ASCII | re.IGNORECASE
)


class UnfitValueError(ValueError):
    """A value that its column does not take. `column` is its path, `found` the value's JSON, cut short."""

    def __init__(self, message: str, column: str, found: str | None = None, expected: str | None = None) -> None:
        super().__init__(message)
        self.column, self.found, self.expected = column, found, expected


def parsed(text: str) -> Any:
    """A value of JSON, of which numbers with a fraction or an exponent are decimals. ValueError for what is none."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except InvalidOperation:
        raise ValueError("a number has an exponent beyond all ranges") from None


def members(row: Mapping[str, Any], fields: tuple[Field, ...], within: str = "") -> dict[str, Any]:
    """The values of an object by the columns, as Arrow takes them. UnfitValueError for one that does not fit.

    Names that are no columns are passed over.
    """
    return {
        field.name: _value(row.get(field.name), field.type, field.nullable, within + field.name) for field in fields
    }


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value")


def _value(value: Any, kind: DataType, nullable: bool, path: str) -> Any:
    if value is None:
        if nullable:
            return None
        raise UnfitValueError(f"column {path} is required, and has no value", path)
    match kind:
        case StructType() if isinstance(value, Mapping):
            return members(value, kind.fields, f"{path}.")
        case types.ListType() if isinstance(value, list):
            return [_value(each, kind.element, kind.element_nullable, f"{path}.element") for each in value]
        case types.MapType() if isinstance(value, Mapping):
            return [
                (_text(key, kind), _value(each, kind.value, kind.value_nullable, f"{path}.value"))
                for key, each in value.items()
            ]
    try:
        return _CONVERTERS[type(kind)](value, kind)
    except (KeyError, ValueError, TypeError, ArithmeticError, struct.error):
        found = _shown(value)
        raise UnfitValueError(f"column {path}: {found} is no {spell(kind)}", path, found, spell(kind)) from None


def _json(value: Any) -> str:
    """A value as compact JSON, in which numbers have the digits that they have."""
    match value:
        case Mapping():
            return "{" + ",".join(f"{_json(key)}:{_json(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    """For an error."""
    text = _json(value).encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _boolean(value: Any, _kind: DataType) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _integer(value: Any) -> int:
    """A whole number that 64 bits hold, or its text."""
    match value:
        case bool():
            raise ValueError
        case int():
            found = value
        case Decimal() if not value:
            found = 0
        case Decimal() if value.adjusted() <= _DIGITS and value == value.to_integral_value():
            found = int(value)
        case str() if _WHOLE.fullmatch(value):
            found = int(value)
        case _:
            raise ValueError
    return _within(found, 64)


def _within(value: int, bits: int) -> int:
    if not -1 << bits - 1 <= value < 1 << bits - 1:
        raise ValueError
    return value


def _whole(value: Any, kind: DataType) -> int:
    return _within(_integer(value), kind.bits if isinstance(kind, types.IntType) else 64)


def _floating(value: Any, kind: DataType) -> float:
    """A number within the range of the column; NaN and Infinity are texts, as in Java."""
    match value:
        case bool():
            raise ValueError
        case int() | Decimal():
            found, is_finite = float(value), True
        case str() if matched := _FLOATING.fullmatch(value):
            found, is_finite = float(matched[2] or matched[1]), matched[2] is not None
        case _:
            raise ValueError
    if is_finite:
        if abs(found) == float("inf"):
            raise ValueError
        if isinstance(kind, types.FloatType):
            struct.pack("<f", found)  # OverflowError beyond its range
    return found


def _decimal(value: Any, kind: DataType) -> Decimal:
    """A number, its text, or, of Avro's fixed, the list of the bytes of the unscaled one, that needs no rounding."""
    assert isinstance(kind, types.DecimalType)
    match value:
        case bool():
            raise ValueError
        case int() | Decimal():
            found = Decimal(value)
        case str() if _DECIMAL.fullmatch(value):
            found = Decimal(value)
        case list() if kind.fixed_size:
            unscaled = int.from_bytes(_octets(value, kind.fixed_size), "big", signed=True)
            found = Decimal(unscaled).scaleb(-kind.scale, Context(prec=kind.fixed_size * 3))
        case _:
            raise ValueError
    exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    return found.quantize(Decimal((0, (1,), -kind.scale)), context=exact)


def _text(value: Any, _kind: DataType) -> str:
    """Of other values than texts their JSON. ValueError for halves of surrogate pairs, which no text in UTF-8 has."""
    found = value if isinstance(value, str) else _json(value)
    found.encode()
    return found


def _symbol(value: Any, kind: DataType) -> str:
    assert isinstance(kind, types.EnumType)
    found = _text(value, kind)
    if found not in kind.symbols:
        raise ValueError
    return found


def _fixed(value: Any, kind: DataType) -> bytes:
    """A text of so many bytes, or a list of them."""
    assert isinstance(kind, types.FixedType)
    if isinstance(value, list):
        return _octets(value, kind.size)
    if not isinstance(value, str) or len(value.encode()) != kind.size:
        raise ValueError
    return value.encode()


def _octets(values: list[Any], size: int) -> bytes:
    """Bytes as Java's, which are signed, or unsigned."""
    if len(values) != size or any(isinstance(each, bool) or not isinstance(each, int) for each in values):
        raise ValueError
    return bytes(each + 256 if -128 <= each < 0 else each for each in values)


def _date(value: Any, _kind: DataType) -> int:
    """A number of days, or its text, or a date of ISO 8601."""
    if isinstance(value, str) and _DATE.fullmatch(value):
        return (date.fromisoformat(value) - _EPOCH).days
    return _within(_integer(value), 32)


def _time(value: Any, kind: DataType) -> int:
    """A number in the unit of the column, or its text, or a time of ISO 8601: of one day."""
    assert isinstance(kind, types.TimeType)
    parts = _TIME.fullmatch(value) if isinstance(value, str) else None
    found = _in_unit(_micros_of_day(*parts.groups()), kind.unit) if parts else _integer(value)
    if not 0 <= found < _in_unit(_MICROS_OF_DAY, kind.unit):
        raise ValueError
    return found


def _timestamp(value: Any, kind: DataType) -> int:
    """A number in the unit of the column, or its text, or a time of ISO 8601: without a zone in UTC, or local."""
    assert isinstance(kind, types.TimestampType)
    parts = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        return _integer(value)
    day, hour, minute, second, fraction, zone = parts.groups()
    if zone and not kind.utc:
        raise ValueError
    days = (date.fromisoformat(day) - _EPOCH).days
    local = days * _MICROS_OF_DAY + (_micros_of_day(hour, minute, second, fraction) if hour else 0)
    return _in_unit(local - _offset(zone), kind.unit)


def _micros_of_day(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    """ValueError for a time that no day has. Of a fraction that is finer the rest is cut, as in Hudi."""
    found = time(int(hour), int(minute), int(second or 0))
    seconds = (found.hour * 60 + found.minute) * 60 + found.second
    return seconds * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])


def _offset(zone: str | None) -> int:
    """In µs."""
    if zone in (None, "Z", "z"):
        return 0
    assert zone is not None
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return (-seconds if zone[0] == "-" else seconds) * 1_000_000


def _in_unit(micros: int, unit: str) -> int:
    return micros if unit == "us" else micros // 1000


_CONVERTERS: Final[Mapping[type, Callable[[Any, DataType], Any]]] = {
    types.BooleanType: _boolean,
    types.IntType: _whole,
    types.LongType: _whole,
    types.FloatType: _floating,
    types.DoubleType: _floating,
    types.DecimalType: _decimal,
    types.EnumType: _symbol,
    types.StringType: _text,
    types.UuidType: _text,
    types.BinaryType: lambda value, kind: _text(value, kind).encode(),
    types.FixedType: _fixed,
    types.DateType: _date,
    types.TimeType: _time,
    types.TimestampType: _timestamp,
}
"""Of lists, maps and records, which are here not, other values are refused."""
