"""Records of column and partition statistics (format guide 7.4, 16.6 and 16.7).

Two versions of them differ in how values are wrapped: from Hudi 1.1 on by their primitive types, with the column's type
beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Context
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.types import (
    COMMIT_TIME,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntType,
    LongType,
    Schema,
    StringType,
    TimestampType,
    TimeType,
    UuidType,
)
from skep_table.metadata_table.keys import column_key, file_key, path_key
from skep_table.metadata_table.partitions import COLUMN_STATS, PARTITION_STATS
from skep_table.metadata_table.records.build import PartitionUpdate, type_of, update
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary

_NONE: Final[Mapping[str, Iterable[ColumnSummary]]] = {}

ALWAYS_INDEXED: Final = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
"""The meta columns that an index of Hudi 1.x has whatever its options are."""

_WRAPPED_DECIMAL: Final = (30, 15)  # precision and scale of all decimals in the older version
_EXACT: Final = Context(prec=80)
_UNKNOWN: Final = -1
_VALUE_TYPE: Final = "valueType"

File = tuple[str, str]  # partition path, file name


def indexable(schema: Schema, names: Collection[str] | None, release: str, *, at_most: int | None = None) -> Columns:
    """Which columns have statistics: those of `names` that can have, members of structs by dotted name, or without
    names all such columns, the meta columns and the first `at_most` others.
    """
    typed = _is_typed(release)
    if names is not None:
        found = {name: fields[-1].type for name in names if (fields := schema.fields_to(name))}
        return {name: kind for name, kind in found.items() if _wrapper(kind, typed=typed) is not None}
    able = {field.name: field.type for field in schema.fields if _wrapper(field.type, typed=typed) is not None}
    others = [name for name in able if name not in META_FIELDS][:at_most]
    return {name: kind for name, kind in able.items() if name in META_FIELDS or name in others}


def column_stats_update(
    written: Mapping[File, Sequence[ColumnSummary]], deleted: Sequence[File], columns: Collection[str], release: str
) -> PartitionUpdate:
    """The summaries of files that were written; of files that were deleted those of `columns` end."""
    puts = {
        column_key(each.column) + place: _record(name, each, release)
        for place, name, summaries in ((_place(file), file[1], summaries) for file, summaries in written.items())
        for each in summaries
    }
    ends = {
        column_key(column) + place: _end(name, column)
        for place, name in ((_place(file), file[1]) for file in deleted)
        for column in columns
    }
    return _update(COLUMN_STATS, puts, ends, release)


def partition_stats_update(
    written: Mapping[str, Iterable[ColumnSummary]],
    deleted: Sequence[str],
    columns: Collection[str],
    release: str,
    widened: Mapping[str, Iterable[ColumnSummary]] = _NONE,
) -> PartitionUpdate:
    """The merged summaries of all files of partitions, which replace what is there, and of some files of others, by
    which those are `widened`; of partitions that were deleted those of `columns` end.
    """
    puts = {
        column_key(each.column) + path_key(path): {**_record(path, each, release), "isTightBound": tight}
        for tight, partitions in ((True, written), (False, widened))
        for path, summaries in partitions.items()
        for each in summaries
    }
    ends = {column_key(column) + path_key(path): _end(path, column) for path in deleted for column in columns}
    return _update(PARTITION_STATS, puts, ends, release)


def _place(file: File) -> str:
    path, name = file
    return path_key(path) + file_key(name)


def _update(
    partition: str, puts: dict[str, dict[str, Any]], ends: dict[str, dict[str, Any]], release: str
) -> PartitionUpdate:
    """Ends are records with a mark in the older version, and deleted keys in the newer one."""
    deletes = list(ends) if _is_typed(release) else []
    records = sorted((puts if deletes else {**ends, **puts}).items(), key=itemgetter(0))  # these keys are ASCII
    values = pa.array([record for _, record in records], type_of(COLUMN_STATS, release))
    return update(partition, pa.array([key for key, _ in records], pa.string()), values, pa.array(deletes, pa.string()))


def _record(name: str, summary: ColumnSummary, release: str) -> dict[str, Any]:
    typed = _is_typed(release)
    return {
        "fileName": name,
        "columnName": summary.column,
        "minValue": _wrapped(summary.kind, summary.low, typed=typed),
        "maxValue": _wrapped(summary.kind, summary.high, typed=typed),
        "valueCount": summary.values,
        "nullCount": summary.nulls,
        "totalSize": summary.stored_bytes,
        "totalUncompressedSize": summary.plain_bytes,
        "isDeleted": False,
        "isTightBound": False,
        _VALUE_TYPE: _type_stated(summary.kind),
    }


def _end(name: str, column: str) -> dict[str, Any]:
    counts = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    return {
        "fileName": name,
        "columnName": column,
        **dict.fromkeys(counts, _UNKNOWN),
        "isDeleted": True,
        "isTightBound": False,
    }


def _is_typed(release: str) -> bool:
    return type_of(COLUMN_STATS, release).get_field_index(_VALUE_TYPE) >= 0


def _wrapped(kind: DataType | None, value: Any, *, typed: bool) -> dict[str, Any] | None:
    wrapper = None if kind is None or value is None else _wrapper(kind, typed=typed)
    if wrapper is None:
        return None
    if typed and isinstance(kind, DecimalType):
        unscaled = int(_EXACT.scaleb(value, kind.scale))
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        value = unscaled.to_bytes(size, "big", signed=True)
    return {wrapper: {"value": value}}


def holds_bounds_of(records: pa.StructArray, kinds: Sequence[DataType], release: str) -> npt.NDArray[np.bool_]:
    """Of stored records, whether the bounds that each has, if any, are of the type that is given for it."""
    typed, count = _is_typed(release), len(records)
    wrappers = np.array([_wrapper(kind, typed=typed) for kind in kinds], object)
    fits, held = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    for side in ("minValue", "maxValue"):
        bounds = pc.struct_field(records, side)
        for wrapper in bounds.type:
            there = pc.is_valid(pc.struct_field(bounds, wrapper.name)).to_numpy(zero_copy_only=False)
            held |= there
            fits &= ~there | (wrappers == wrapper.name)
    if typed and records.type.get_field_index(_VALUE_TYPE) >= 0:
        stated = pc.struct_field(records, _VALUE_TYPE)
        expected = pa.array([_type_stated(kind) for kind in kinds], stated.type)
        differs = pa.array(np.zeros(count, np.bool_))
        for member in stated.type:
            one, other = (pc.struct_field(each, member.name) for each in (stated, expected))
            both_null = pc.and_(pc.is_null(one), pc.is_null(other))
            differs = pc.or_(differs, pc.and_not(pc.not_equal(one, other).fill_null(True), both_null))
        fits &= ~(held & pc.and_(differs, pc.is_valid(stated)).to_numpy(zero_copy_only=False))
    return fits


def _wrapper(kind: DataType, *, typed: bool) -> str | None:
    """The record that holds a value of this type; None for types without statistics."""
    match kind:
        case TimeType(unit="ms"):
            return "IntWrapper"
        case TimeType() | TimestampType():
            return "LongWrapper"
        case DateType():
            return "IntWrapper" if typed else "DateWrapper"
        case DecimalType():
            if typed:
                return "BytesWrapper"
            digits, scale = _WRAPPED_DECIMAL
            return "DecimalWrapper" if kind.scale <= scale and kind.precision - kind.scale <= digits - scale else None
    return _SIMPLE[type(kind)][0] if type(kind) in _SIMPLE else None


def _type_stated(kind: DataType | None) -> dict[str, Any]:
    match kind:
        case None:
            return {"typeOrdinal": 1}
        case DecimalType():
            return {"typeOrdinal": 10, "additionalInfo": f"{kind.precision},{kind.scale}"}
        case TimeType():
            return {"typeOrdinal": 13 if kind.unit == "ms" else 14}
        case TimestampType():
            return {"typeOrdinal": (15 if kind.utc else 18) + (kind.unit == "us")}
    return {"typeOrdinal": _SIMPLE[type(kind)][1]}


_SIMPLE: Final[Mapping[type, tuple[str, int]]] = {
    BooleanType: ("BooleanWrapper", 2),
    IntType: ("IntWrapper", 3),
    LongType: ("LongWrapper", 4),
    FloatType: ("FloatWrapper", 5),
    DoubleType: ("DoubleWrapper", 6),
    StringType: ("StringWrapper", 7),
    BinaryType: ("BytesWrapper", 8),
    FixedType: ("BytesWrapper", 9),
    UuidType: ("StringWrapper", 11),
    DateType: ("IntWrapper", 12),
}
"""By type the record that holds its values, and the number by which records of the newer version state it."""
