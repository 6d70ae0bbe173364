"""Ordering values as numbers that compare alike: one integer a row, whatever the columns' types.

The order is that of Java's `compareTo` of what Hudi holds: numbers, times and decimals by value, false before true,
texts by their UTF-8 bytes as Avro has them. Of floating-point numbers, -0.0 comes before 0.0 and NaN after infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
_MAGNITUDE = np.int64(2**63 - 1)


def comparable(columns: Sequence[pa.Array]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """For the rows of these columns (first field first): numbers in the order of the values, and which rows have none.

    A row has no value when the fields are null, all of them; a single null among several counts as the smallest value.
    """
    missing = np.logical_and.reduce([pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns])
    if len(columns) == 1:
        return _numbers(columns[0]), missing
    combined = np.zeros(len(missing), np.int64)
    for column in columns:
        ranks = _ranks(column)
        # Dense ranks of the pair so far: below the number of rows, so the product of two can't overflow.
        combined = combined * (int(ranks.max(initial=0)) + 1) + ranks
        combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return combined, missing


def _numbers(column: pa.Array) -> Numbers:
    kind = column.type
    t = pa.types
    if t.is_floating(kind):
        return _numbers(_as_integers(column))
    if t.is_signed_integer(kind):
        return column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    if t.is_timestamp(kind) or t.is_time64(kind) or t.is_date64(kind):
        return column.view(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    if t.is_date32(kind) or t.is_time32(kind):
        return column.view(pa.int32()).cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    return _ranks(column)


def _as_integers(column: pa.Array) -> pa.Array:
    """Floating-point numbers as integers in the order of `Double.compare`: by their bits, with one NaN."""
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ _MAGNITUDE, bits), mask=pc.is_null(column).to_numpy(zero_copy_only=False))


def _ranks(column: pa.Array) -> npt.NDArray[np.int64]:
    """Dense ranks from 1 on, null as 0."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type):
        column = _as_integers(column)
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.zeros(len(order) + 1, np.int64)
    rank_of[order] = np.arange(1, len(order) + 1)
    # Null has no place in the dictionary: it takes the one behind the last.
    return rank_of[pc.fill_null(encoded.indices, len(order)).to_numpy()]
