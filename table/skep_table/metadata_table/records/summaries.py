"""Summaries of the columns of a file: bounds, counts and sizes, out of Parquet footers and out of values (guide 16.6).

Bounds hold for every reader: readers take missing ones to mean that a column has nothing but nulls, and Spark orders
NaN behind all numbers. So where a footer leaves bounds out, or NaN out of them, they are worked out from the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.schema.arrow import arrow_type
from skep_format.schema.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    TimestampType,
    TimeType,
)

# Longer texts are cut: a lower bound is its beginning, an upper bound a little more than that.
_LONGEST: Final = 1024
_LARGEST_CHARACTER: Final = 0x10FFFF
_NAN: Final = float("nan")
_EXACT: Final = Context(prec=80)
# Writers whose footers have no bounds where a column has NaN; others leave NaN out of the bounds.
_MINDS_NAN: Final = "parquet-mr"

Columns = Mapping[str, DataType]
"""Columns by name (members of structs by dotted name), with their types."""
ReadColumns = Callable[[Sequence[str]], pa.Table]
"""Reads columns of a file, named as in `Columns`, in the types of these."""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """One column of a file or partition.

    `low` and `high` as they are stored: days of dates, units of times and timestamps; None where all values are null.
    `kind` None: of a file without rows. `values` counts nulls, too.
    """

    column: str
    kind: DataType | None
    low: Any
    high: Any
    values: int
    nulls: int
    stored_bytes: int = 0
    plain_bytes: int = 0

    @property
    def has_nan(self) -> bool:
        """Whether a value is NaN: the greatest for Spark, which Hudi's data skipping does not find by any bound."""
        return _is_nan(self.high)


def summaries_of_base_file(
    metadata: pq.FileMetaData,
    columns: Columns,
    read: ReadColumns,
    *,
    schema: pa.Schema | None = None,
    by_value: Callable[[str], bool] = lambda _column: False,
    minds_nan: bool = False,
) -> list[ColumnSummary]:
    """Of those columns that the file has. `read` is called for the columns whose bounds the footer lacks, and those
    `by_value`, for which its bounds do not hold. `metadata` is as of `OpenBaseFile.column_metadata`;
    `schema` is the file's in Arrow's form, where it is known. `minds_nan`: the footer has no bounds where a column has
    NaN; those of some writers have none in any case.
    """
    held = metadata.schema.to_arrow_schema() if schema is None else schema
    chunks = _chunks(metadata)
    minds_nan = minds_nan or (metadata.created_by or "").startswith(_MINDS_NAN)
    types = {
        name: kind for name in columns if (kind := _type_in(held, name)) is not None and not pa.types.is_nested(kind)
    }
    found = {
        name: None
        if by_value(name)
        else _of_footer(metadata, chunks.get(name, -1), name, columns[name], kind, minds_nan=minds_nan)
        for name, kind in types.items()
    }
    lacking = [name for name, summary in found.items() if summary is None]
    if lacking:
        rows = read(lacking)
        for name in lacking:
            stored, plain = _sizes(metadata, chunks.get(name, -1))
            summary = summary_of(name, columns[name], rows.column(name))
            found[name] = replace(summary, stored_bytes=stored, plain_bytes=plain)
    return [summary for summary in found.values() if summary is not None]


def summaries_of_rows(rows: pa.Table, columns: Columns) -> list[ColumnSummary]:
    """Of the records of a log file, not merged with others; those columns that the rows have."""
    return [summary_of(name, kind, rows.column(name)) for name, kind in columns.items() if name in rows.column_names]


def summaries_without_rows(columns: Columns) -> list[ColumnSummary]:
    """Of a log file that has deletes only."""
    return [ColumnSummary(name, None, None, None, 0, 0) for name in columns]


def summary_of(column: str, kind: DataType, values: pa.Array | pa.ChunkedArray) -> ColumnSummary:
    """Of all values of a column."""
    low, high = _bounds(kind, values)
    return ColumnSummary(column, kind, *_cut(low, high), len(values), values.null_count)


def merged(summaries: Iterable[ColumnSummary]) -> list[ColumnSummary]:
    """One for each column, over all the files that have it."""
    found: dict[str, ColumnSummary] = {}
    for each in summaries:
        before = found.get(each.column)
        found[each.column] = each if before is None else _both(before, each)
    return list(found.values())


# -- bounds ------------------------------------------------------------------------------------------------------------


def _bounds(kind: DataType, values: pa.Array | pa.ChunkedArray) -> tuple[Any, Any]:
    stored = values.cast(arrow_type(kind))
    match kind:
        case DateType():
            stored = stored.cast(pa.int32())
        case TimeType(unit="ms"):
            stored = stored.cast(pa.int32())
        case TimeType() | TimestampType():
            stored = stored.cast(pa.int64())
        case FloatType() | DoubleType():
            return _float_bounds(stored)
        case FixedType():
            stored = stored.cast(pa.binary())
    found = pc.min_max(stored).as_py()
    return found["min"], found["max"]


def _float_bounds(values: pa.Array | pa.ChunkedArray) -> tuple[Any, Any]:
    nan = pc.is_nan(values)
    if not pc.any(nan).as_py():
        found = pc.min_max(values).as_py()
        return found["min"], found["max"]
    found = pc.min_max(values.filter(pc.invert(nan))).as_py()
    return _NAN if found["min"] is None else found["min"], _NAN


def _cut(low: Any, high: Any) -> tuple[Any, Any]:
    """Bounds of texts and bytes, no longer than `_LONGEST`."""
    if not isinstance(high, (str, bytes)):
        return low, high
    return low[:_LONGEST], _above(high) if len(high) > _LONGEST else high


def _above(high: Any) -> Any:
    """The shortest text or bytes above all that begin as `high`; `high` itself where there is none."""
    units = list(high[:_LONGEST]) if isinstance(high, bytes) else [ord(character) for character in high[:_LONGEST]]
    while units:
        last = units.pop()
        if isinstance(high, bytes):
            if last < 0xFF:
                return bytes([*units, last + 1])
        elif last not in (0xFFFF, _LARGEST_CHARACTER):  # the one after U+FFFF comes before it in the order of UTF-16
            return "".join(map(chr, [*units, 0xE000 if last == 0xD7FF else last + 1]))
    return high


def _both(a: ColumnSummary, b: ColumnSummary) -> ColumnSummary:
    valued = [each for each in (a, b) if each.low is not None]
    lows = [each.low for each in valued if not _is_nan(each.low)] or [each.low for each in valued]
    highs = [each.high for each in valued]
    return ColumnSummary(
        a.column,
        a.kind if a.kind is not None else b.kind,
        min(lows, default=None),
        next(filter(_is_nan, highs), max(highs, default=None)),
        a.values + b.values,
        a.nulls + b.nulls,
        a.stored_bytes + b.stored_bytes,
        a.plain_bytes + b.plain_bytes,
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# -- footers -----------------------------------------------------------------------------------------------------------


def _chunks(metadata: pq.FileMetaData) -> dict[str, int]:
    """The numbers of the columns, by dotted name; none in a file without row groups."""
    # Not by `metadata.schema`: the two would refer to each other, and stay in memory until a garbage collection.
    if not metadata.num_row_groups:
        return {}
    group = metadata.row_group(0)
    return {group.column(number).path_in_schema: number for number in range(metadata.num_columns)}


def _sizes(metadata: pq.FileMetaData, number: int) -> tuple[int, int]:
    """The bytes of a column as stored, and not compressed."""
    chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
    return sum(chunk.total_compressed_size for chunk in chunks), sum(chunk.total_uncompressed_size for chunk in chunks)


def _of_footer(
    metadata: pq.FileMetaData, number: int, name: str, kind: DataType, held: pa.DataType, *, minds_nan: bool
) -> ColumnSummary | None:
    """None where the footer does not have it all, in the column's type."""
    if held != arrow_type(kind):
        return None
    if isinstance(kind, (FloatType, DoubleType)) and not minds_nan:
        return None
    lows, highs, values, nulls = [], [], 0, 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(number)
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            return None
        values += chunk.num_values
        nulls += stats.null_count
        if stats.null_count == chunk.num_values:
            continue
        if not stats.has_min_max:
            return None
        lows.append(_stored(kind, stats.min_raw))
        highs.append(_stored(kind, stats.max_raw))
    if any(bound is None or _is_nan(bound) for bound in (*lows, *highs)):
        return None
    low, high = _cut(min(lows, default=None), max(highs, default=None))
    return ColumnSummary(name, kind, low, high, values, nulls, *_sizes(metadata, number))


def _type_in(schema: pa.Schema, name: str) -> pa.DataType | None:
    kind: Any = pa.struct(list(schema))
    for part in name.split("."):
        at = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if at < 0:
            return None
        kind = kind.field(at).type
    return kind


def _stored(kind: DataType, raw: Any) -> Any:
    """A value of a footer in the form of a summary; None where it has none."""
    if isinstance(kind, DecimalType):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return _EXACT.scaleb(Decimal(unscaled), -kind.scale)
    if isinstance(raw, bytes) and not isinstance(kind, (BinaryType, FixedType)):
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return None
    return raw
