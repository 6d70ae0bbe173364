"""Spark's rules for the types of expressions, over Arrow types, and these types as SQL writes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from typing import Final

import pyarrow as pa

from skep_format.schema.arrow import is_any_list
from skep_format.schema.types import divided, quoted
from skep_sql.types import nested_name

t = pa.types
MOST_DIGITS: Final = 38
EXACT_DIGITS: Final = 15  # of a decimal whose nearest double every engine finds
UTC: Final = pa.timestamp("us", "UTC")
LOCAL: Final = pa.timestamp("us")

_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    UTC: "timestamp",
    LOCAL: "timestamp_ntz",
    pa.null(): "void",
    pa.duration("us"): "interval day to second",
}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()} | {"day_interval": pa.duration("us")}


def spark_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which Spark hands a column over; None for one that only Spark is left to convert."""
    if kind in _NAMES or t.is_decimal128(kind):
        return kind
    if t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if t.is_dictionary(kind):
        return spark_type(kind.value_type)
    if is_any_list(kind):
        inner = spark_type(kind.value_type)
        return None if inner is None else list_of(inner)
    if t.is_map(kind):
        key, item = spark_type(kind.key_type), spark_type(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if t.is_struct(kind):
        fields = [(field.name, spark_type(field.type)) for field in kind]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    return None


def list_of(kind: pa.DataType) -> pa.DataType:
    """An array as Spark names its elements."""
    return pa.list_(pa.field("element", kind))


def sql_name(kind: pa.DataType) -> str:
    """A type as Spark's SQL writes it."""
    return nested_name(
        kind, lambda k: f"decimal({k.precision},{k.scale})" if t.is_decimal(k) else _NAMES[k], named=quoted
    )


@cache
def named_kind(text: str) -> pa.DataType:
    """The type that the table of functions names so. KeyError for one that it has no types for."""
    name, bracket, within = text.partition("<")
    if not bracket:
        if name.startswith("decimal("):
            return pa.decimal128(*map(int, name[8:-1].split(",")))
        return _KINDS[name]
    parts = divided(within[:-1], "")
    if name == "array":
        return list_of(named_kind(parts[0]))
    if name == "map":
        return pa.map_(named_kind(parts[0]), named_kind(parts[1]))
    return pa.struct([(part.partition(":")[0], named_kind(part.partition(":")[2])) for part in parts])


def kind_of(kind: pa.DataType) -> str:
    """The name of a type in the table of functions: decimals of all digits are one kind."""
    return nested_name(kind, _plain_kind)


def _plain_kind(kind: pa.DataType) -> str:
    return "decimal" if t.is_decimal(kind) else "day_interval" if t.is_duration(kind) else _NAMES.get(kind, str(kind))


def cast(text: str, kind: pa.DataType) -> str:
    """An expression in another type. The engine fails for values that it does not hold."""
    return f"CAST({text} AS {sql_name(kind)})"


def narrowed(text: str, kind: pa.DataType, *, or_null: bool = False) -> str:
    """As `cast`, of values that may be too large: the engine removes a mere cast from what is compared."""
    found = cast(text, kind)
    return f"greatest({'TRY_' if or_null else ''}{found}, NULL)"


def is_whole(kind: pa.DataType) -> bool:
    """Whether it is a type of whole numbers."""
    return bool(t.is_signed_integer(kind))


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of the type compare alike in both engines."""
    return (kind in _NAMES and not t.is_null(kind)) or bool(t.is_decimal(kind))


def is_exact(kind: pa.DataType) -> bool:
    """Whether equal values of the type are the same value, as zeros of both signs are not: what rows are grouped by."""
    return is_plain(kind) and not t.is_floating(kind)


def decimal_of(kind: pa.DataType) -> pa.DataType | None:
    """The decimal that holds each value of a type of whole numbers; a decimal itself."""
    if t.is_decimal(kind):
        return kind
    digits = {8: 3, 16: 5, 32: 10, 64: 20}
    return pa.decimal128(digits[kind.bit_width], 0) if is_whole(kind) else None


def decimal(precision: int, scale: int) -> pa.DataType | None:
    """None where Spark would round for want of digits."""
    return pa.decimal128(precision, scale) if precision <= MOST_DIGITS else None


def adjusted(precision: int, scale: int) -> pa.DataType:
    """The decimal that Spark makes of a result of more digits than there are: it gives up those behind the point."""
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale)
    return pa.decimal128(MOST_DIGITS, max(MOST_DIGITS - (precision - scale), min(scale, 6)))


def common(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type to which Spark brings values that are compared or become one column; None where it is not known."""
    return reduce(_wider, kinds, pa.null())


def _wider(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None:
        return None
    if one == other or t.is_null(other):
        return one
    if t.is_null(one):
        return other
    if is_whole(one) and is_whole(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if pa.float64() in (one, other):
        narrow = other if one == pa.float64() else one
        exact = t.is_decimal(narrow) and narrow.precision <= EXACT_DIGITS
        return pa.float64() if exact or is_whole(narrow) or narrow == pa.float32() else None
    if {one, other} in ({pa.date32(), UTC}, {pa.date32(), LOCAL}):
        return one if t.is_timestamp(one) else other
    if is_any_list(one) and is_any_list(other):
        inner = _wider(one.value_type, other.value_type)
        return None if inner is None else list_of(inner)
    left, right = decimal_of(one), decimal_of(other)
    if left is None or right is None:
        return None
    scale = max(left.scale, right.scale)
    return decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)
