"""Statistics of columns out of their records; wrapped values become columns of the data's type (format guide 7.4)."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.evolve import widened_float
from skep_table.metadata_table.entries import Entries, since_reset
from skep_table.metadata_table.partitions import STATS_MEMBER

_WRAPPED: Final = pa.struct([("LongWrapper", pa.struct([("value", pa.int64())]))])
_EMPTY: Final = pa.struct(
    [
        ("fileName", pa.string()), ("minValue", _WRAPPED), ("maxValue", _WRAPPED),
        ("valueCount", pa.int64()), ("nullCount", pa.int64()), ("isDeleted", pa.bool_()),
    ]
)  # fmt: skip
_TOGETHER: Final = {
    "file_name": "first", "min_value": "min", "max_value": "max", "value_count": "sum", "null_count": "sum"
}  # fmt: skip
_OUR_DAYS: Final = 5_000_000_000_000
"""In milliseconds the years 1811 to 2128, in microseconds 58 days before and after 1970."""
_ORDINALS_OF_UNIT: Final = {"ms": (15, 18), "us": (16, 19), "ns": (17, 20)}
_STRICT: Final = pc.ScalarAggregateOptions(skip_nulls=False)


def statistics(entries: Iterable[Entries], kind: pa.DataType) -> pa.Table:
    """Records of column or partition statistics as `file_name`, `min_value`, `max_value` (of `kind`), `value_count`,
    `null_count` and their `key`, a row for each file.

    Records of one file add up: a log file that a later commit appended to has one for each. A partition's are replaced
    by one that is marked as the tight bound.
    """
    keys, found = statistics_records(entries)
    member = {field.name: pc.struct_field(found, field.name) for field in found.type}
    lowest, highest = (
        _known(unwrap(member[name], kind), kind, member.get("valueType")) for name in ("minValue", "maxValue")
    )
    values, nulls = member["valueCount"], member["nullCount"]
    # Hudi counts all values as null, too, where a footer has no bounds: those of a long text, or of NaN.
    uncertain = pc.and_(pc.and_(pc.is_null(lowest), pc.equal(nulls, values)), pc.greater(nulls, 0)).fill_null(False)
    rows = pa.table(
        {
            "file_name": member["fileName"],
            "min_value": lowest,
            "max_value": highest,
            "value_count": values,
            "null_count": pc.if_else(uncertain, pa.scalar(None, pa.int64()), nulls),
            "key": keys,
        }
    )
    if pc.count_distinct(keys).as_py() == len(keys):
        return rows
    how = [(name, function, _STRICT) for name, function in _TOGETHER.items()]
    grouped = rows.group_by("key", use_threads=False).aggregate(how)
    merged = [grouped[f"{name}_{function}"] for name, function in _TOGETHER.items()]
    return pa.table([*merged, grouped["key"]], schema=rows.schema)


def statistics_records(entries: Iterable[Entries]) -> tuple[pa.Array, pa.StructArray]:
    """The keys and records of statistics that count: several of one key add up."""
    keys, found = since_reset(entries, STATS_MEMBER, ("isDeleted", "isTightBound"))
    if pa.types.is_null(found.type):
        found = pa.array([], _EMPTY)
    alive = pc.invert(pc.struct_field(found, "isDeleted").fill_null(True))
    return keys.filter(alive), found.filter(alive)


def unwrap(wrapped: pa.StructArray, kind: pa.DataType) -> pa.Array:
    """Values of one data column as its type `kind`; null where there is none, or where it is uncertain.

    Releases wrap alike types differently (dates as DateWrapper or IntWrapper, timestamps as longs, decimals as their
    unscaled bytes), so the type is the reader's: what does not convert to it is null, which prunes nothing.
    """
    result = pa.nulls(len(wrapped), kind)
    for field, member in zip(wrapped.type, wrapped.flatten(), strict=True):
        if member.null_count == len(member) or field.name == "ArrayWrapper":
            continue
        values = _as(pc.struct_field(member, "value"), kind)
        if values is not None:
            if pa.types.is_floating(kind):  # NaN is no bound: some engines order it behind all numbers
                values = pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
            result = pc.coalesce(result, values)
    return result


def _known(values: pa.Array, kind: pa.DataType, stated: pa.StructArray | None) -> pa.Array:
    """Null where the number that a file states may be in another unit or of another scale than the column.

    Writers have an option for times in milliseconds, whatever the schema has. Records of version 2 state what the
    file has; before, a number is taken for a time only if it is none of our days in the other unit.
    """
    if not len(values) or not (pa.types.is_timestamp(kind) or pa.types.is_decimal(kind)):
        return values
    if pa.types.is_decimal(kind):
        if stated is None:
            return values
        fits = pc.ends_with(pc.struct_field(stated, "additionalInfo"), f",{kind.scale}").fill_null(True)
    else:
        ordinal = pa.nulls(len(values), pa.int32()) if stated is None else pc.struct_field(stated, "typeOrdinal")
        small = pc.less(pc.abs(values.cast(pa.int64())), _OUR_DAYS)
        in_unit = {"ms": small, "us": pc.invert(small)}.get(kind.unit, pa.scalar(True))
        as_stated = pc.is_in(ordinal, value_set=pa.array(_ORDINALS_OF_UNIT.get(kind.unit, ()), pa.int32()))
        fits = pc.if_else(pc.is_valid(ordinal), as_stated, in_unit)
    return pc.if_else(fits, values, pa.scalar(None, kind))


def _as(values: Any, kind: pa.DataType) -> Any:
    held = values.type
    try:
        if pa.types.is_float32(held) and pa.types.is_float64(kind):
            # Rows are read as 1.87 or, out of some logs, as 1.8700000047683716: where the two differ nothing is sure.
            by_text = widened_float(values)
            return pc.if_else(pc.equal(by_text, values.cast(kind)), by_text, pa.scalar(None, kind))
        if pa.types.is_decimal(kind):
            return _unscaled(values, kind) if pa.types.is_binary(held) else values.cast(kind)
        if pa.types.is_timestamp(kind) and pa.types.is_int64(held):
            return values.cast(pa.timestamp(kind.unit)).cast(kind) if kind.tz is None else values.cast(kind)
        if pa.types.is_date32(kind) and pa.types.is_integer(held):
            return values.cast(pa.int32()).cast(kind)
        if pa.types.is_time(kind) or _same_family(held, kind):
            return values.cast(kind)
    except pa.ArrowInvalid:
        return None
    return None


def _same_family(held: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return pa.types.is_integer(held)
    if pa.types.is_floating(kind):
        return pa.types.is_floating(held) or pa.types.is_integer(held)
    families = (pa.types.is_string, pa.types.is_binary, pa.types.is_boolean, pa.types.is_date32)
    return any(family(held) and family(kind) for family in families)


def _unscaled(values: Any, kind: pa.DataType) -> Any:
    """Decimals from the big-endian bytes of their unscaled integers. One small value a file: a loop will do."""
    exact = Context(prec=kind.precision + 1)
    numbers = (None if value is None else int.from_bytes(value, "big", signed=True) for value in values.to_pylist())
    return pa.array([None if n is None else exact.scaleb(Decimal(n), -kind.scale) for n in numbers], kind)
