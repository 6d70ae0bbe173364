"""In which order rows are written: by columns one after the other, or along a curve that treats all columns alike.

A curve goes through the ranks of the values, not through their bytes: skewed columns and long common prefixes spread
as well as any, and every type that can be sorted can be used.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.services.clustering.options import Curve

Ranks = npt.NDArray[np.uint64]


def order_of(keys: pa.Table, curve: Curve = Curve.LINEAR) -> npt.NDArray[np.int64]:
    """Positions of the rows in their new order. Nulls come first, equal rows keep their order."""
    if curve is Curve.LINEAR or keys.num_columns == 1:
        columns = [
            part
            for column in keys.columns
            for part in ([pc.is_valid(column), column] if column.null_count else [column])
        ]
        table = pa.table(columns, names=[str(number) for number in range(len(columns))]).combine_chunks()
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
        return order.to_numpy().astype(np.int64)
    bits = min(32, 64 // keys.num_columns)
    ranks = [_scaled_ranks(column, bits) for column in keys.columns]
    places = interleave(ranks, bits) if curve is Curve.ZORDER else hilbert(ranks, bits)
    return np.argsort(places, kind="stable")


def can_be_sorted(kind: pa.DataType) -> bool:
    """Whether the values of a column of this type have an order: nested types and nulls have none."""
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def _scaled_ranks(column: pa.ChunkedArray, bits: int) -> Ranks:
    """Ranks of the values, equal for equal values, nulls lowest, stretched over all numbers of so many bits."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.float64)
    ranks[pc.is_null(column).to_numpy()] = 0
    ranks -= ranks.min(initial=2**53)
    most = ranks.max(initial=0)
    if most == 0:
        return np.zeros(len(ranks), np.uint64)
    return np.minimum(ranks / most * float(2**bits), float(2**bits - 1)).astype(np.uint64)


def interleave(ranks: Sequence[Ranks], bits: int) -> Ranks:
    """Places on the Z curve: the highest bit of each number, then the next of each, …"""
    place = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            place = (place << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return place


def hilbert(ranks: Sequence[Ranks], bits: int) -> Ranks:
    """Places on Hilbert's curve: neighbours on it are neighbours in every column (Skilling's transform)."""
    axes = [rank.copy() for rank in ranks]
    for bit in range(bits - 1, 0, -1):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in axes:
            high = (axis & mask) != 0
            swapped = (axes[0] ^ axis) & below
            axes[0] ^= np.where(high, below, swapped)
            if axis is not axes[0]:
                axis ^= np.where(high, np.uint64(0), swapped)
    for before, axis in itertools.pairwise(axes):
        axis ^= before
    carry = np.zeros(len(axes[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        carry ^= np.where((axes[-1] & np.uint64(1 << bit)) != 0, np.uint64((1 << bit) - 1), np.uint64(0))
    return interleave([axis ^ carry for axis in axes], bits)
