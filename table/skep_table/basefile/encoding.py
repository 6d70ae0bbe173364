"""Which columns of a Parquet file are worth a dictionary: measured on its first row group, since a dictionary that
grows past its page is thrown away after all the work of building it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SAMPLED_ROWS = 2048
# Where Parquet writers give a dictionary up.
_DICTIONARY_BYTES = 1 << 20
# A dictionary that saves less than this part of the bytes is not worth its time.
_WORTH = 0.8


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Parquet paths of the columns that a dictionary makes smaller; those within nested ones all get one."""
    count = rows.num_rows
    if count == 1:
        return []
    if count > _SAMPLED_ROWS:
        sample = rows.take(pa.array(np.linspace(0, count - 1, _SAMPLED_ROWS).astype(np.int64)))
    else:
        sample = rows
    chosen: list[str] = []
    for field, column in zip(rows.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            chosen += _leaves(field.name, field.type)
        elif _is_worth_it(column, count):
            chosen.append(field.name)
    return chosen


def _is_worth_it(column: pa.ChunkedArray, rows: int) -> bool:
    valid = len(column) - column.null_count
    if pa.types.is_boolean(column.type) or not valid:
        return not valid  # a column of nulls costs nothing either way
    found = pc.count_distinct(column, mode="only_valid").as_py()
    distinct = _distinct_of_all(found, valid, rows * valid // len(column))
    width = column.nbytes / len(column)
    dictionary = distinct * width
    indices = rows * math.ceil(math.log2(max(distinct, 2))) / 8
    return dictionary <= _DICTIONARY_BYTES and dictionary + indices < _WORTH * rows * width


def _distinct_of_all(found: int, sampled: int, rows: int) -> int:
    """How many values `rows` rows have when `sampled` of them had `found`, all values being equally frequent."""
    if sampled >= rows:
        return found
    low, high = found, rows
    while low < high:  # of D values, a sample of n meets D * (1 - e^(-n/D)), which grows with D
        middle = (low + high) // 2
        if middle * -math.expm1(-sampled / middle) < found:
            low = middle + 1
        else:
            high = middle
    return low


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(at).name}", kind.field(at).type)
    elif not pa.types.is_boolean(kind):
        yield path
