"""Ordering values as numbers that compare alike: one integer (or double) a row, whatever the columns' types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]


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
        # Java treats NaN as the greatest value. It also distinguishes zeros by sign, which is hardly ever intended.
        values = column.cast(pa.float64()).fill_null(-np.inf).to_numpy()
        return np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=-np.inf)
    if t.is_signed_integer(kind):
        return column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    if t.is_timestamp(kind) or t.is_time64(kind) or t.is_date64(kind):
        return column.view(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    if t.is_date32(kind) or t.is_time32(kind):
        return column.view(pa.int32()).cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    return _ranks(column)


def _ranks(column: pa.Array) -> npt.NDArray[np.int64]:
    """Dense ranks from 1 on, null as 0. Texts compare by their UTF-8 bytes, as Avro compares them."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.zeros(len(order) + 1, np.int64)
    rank_of[order] = np.arange(1, len(order) + 1)
    # Null has no place in the dictionary: it takes the one behind the last.
    return rank_of[pc.fill_null(encoded.indices, len(order)).to_numpy()]
