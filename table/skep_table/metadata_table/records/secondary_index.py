"""Records of a secondary index: the record keys that a value has (format guide 16.8). All of it is in the key."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntType,
    LongType,
    StringType,
    TimestampType,
)
from skep_table.metadata_table.records.build import PartitionUpdate, type_of, update

_SEPARATOR: Final = "$"
_NULL: Final = "\0"
_SPECIAL: Final = r"([\\$\x00])"


def has_known_texts(kind: DataType, *, by_value: bool) -> bool:
    """Whether each value of a type has one text in such an index, whichever release has written it.

    Indexes without `by_value` are those that Hudi 1.0 writes, too: it has dates in another form than later releases,
    and timestamps in the unit of their column. Hudi from 1.1 on makes none of decimals and booleans. The text of a
    float or double depends on the release of Java.
    """
    match kind:
        case StringType() | IntType() | LongType():
            return True
        case TimestampType(utc=True):
            return by_value or kind.unit == "us"
        case DateType():
            return by_value
        case DecimalType() | BooleanType():
            return not by_value
    return False


def keeps_texts(before: DataType, after: DataType) -> bool:
    """Whether values have the same text when the type of their column changes."""
    return _form(before) == _form(after)


def _form(kind: DataType) -> object:
    match kind:
        case StringType() | IntType() | LongType():
            return StringType
        case DecimalType(scale=scale):
            return DecimalType, scale
    return type(kind)


def secondary_texts(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values as such an index has them: those of types that `has_known_texts`.

    Dates are days, and timestamps microseconds, since 1970.
    """
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values.cast(pa.string())


def secondary_index_update(
    partition: str, added: pa.Array, removed: pa.Array, release: str, *, by_value: bool
) -> PartitionUpdate:
    """`added` and `removed`: keys of the index (`secondary_keys`). `by_value`: all keys of a value are in one group."""
    kind = type_of(partition, release)
    records = pa.StructArray.from_arrays([pa.array(np.zeros(len(added), np.bool_))], fields=list(kind))
    changes = update(partition, added, records, removed)
    return replace(changes, sharded_by=sharded_parts if by_value else None)


def secondary_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    """A key for each value and record key, as Hudi 1.1 has them: 1.0 has no form for null."""
    escaped = (pc.replace_substring_regex(texts, _SPECIAL, r"\\\1") for texts in (values, record_keys))
    value, key = escaped
    return pc.binary_join_element_wise(value.fill_null(_NULL), key, _SEPARATOR)


def secondary_prefixes(values: pa.Array) -> pa.Array:
    """How all keys of a value begin: with the value and the separator, which no value has in it unescaped."""
    return secondary_keys(values, pa.array([""] * len(values), pa.string()))


def record_keys_behind(prefix: str, keys: pa.Array) -> pa.Array:
    """The record keys in those keys that begin with a value's prefix."""
    behind = pc.utf8_slice_codeunits(keys.filter(pc.starts_with(keys, prefix)), len(prefix))
    return pc.replace_substring_regex(behind, r"(?s)\\(.)", r"\1")


def sharded_parts(keys: pa.Array) -> pa.Array:
    """What the file group of a key is chosen by, from Hudi 1.1 on: the value with the separator behind it."""
    return pc.replace_substring_regex(keys, r"(?s)^((?:[^\\$]|\\.)*\$).*$", r"\1")
