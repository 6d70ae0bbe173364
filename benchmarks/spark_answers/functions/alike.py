"""Which values of two columns are the same to the last bit, or to twelve digits where an order of sums decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.spark_answers.compare import DIGITS, plain, spelt

t = pa.types


def typed(kind: pa.DataType) -> Any:
    """A type without what does not matter; instants are in UTC."""
    found = plain(kind)
    return (
        pa.timestamp(found.unit, "UTC")
        if isinstance(found, pa.DataType) and t.is_timestamp(found) and found.tz
        else found
    )


def alike(found: pa.Array, wanted: pa.Array, *, exact: bool) -> np.ndarray[Any, Any]:
    """For each row whether it is the same. The types are the same, as `typed` has them."""
    kind = wanted.type
    if t.is_nested(kind) or (t.is_floating(kind) and not exact):
        pairs = zip(_listed(found), _listed(wanted), strict=True)
        digits = None if exact else DIGITS
        return np.array([spelt(one, digits) == spelt(other, digits) for one, other in pairs], dtype=bool)
    one, other = _comparable(found), _comparable(wanted)
    nulls, other_nulls = one.is_null().to_numpy(zero_copy_only=False), other.is_null().to_numpy(zero_copy_only=False)
    same = pc.fill_null(pc.equal(one, other), True).to_numpy(zero_copy_only=False)
    found_alike: np.ndarray[Any, Any] = same & (nulls == other_nulls)
    return found_alike


def _comparable(values: pa.Array) -> pa.Array:
    kind = values.type
    if t.is_floating(kind):  # bits, but for those of NaN
        one_nan = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
        return one_nan.view(pa.int32() if kind == pa.float32() else pa.int64())
    if t.is_timestamp(kind) or t.is_duration(kind):
        return values.cast(pa.int64())
    if t.is_string_view(kind) or t.is_large_string(kind):
        return values.cast(pa.string())
    if t.is_binary_view(kind) or t.is_large_binary(kind):
        return values.cast(pa.binary())
    return values


def _listed(values: pa.Array) -> list[Any]:
    """Values of Python; times, which Python may have no value for, are numbers."""
    return values.cast(_numbers(values.type)).to_pylist() if _has_times(values.type) else values.to_pylist()


def _has_times(kind: pa.DataType) -> bool:
    if t.is_nested(kind):
        return any(_has_times(kind.field(at).type) for at in range(kind.num_fields))
    return t.is_temporal(kind)


def _numbers(kind: pa.DataType) -> pa.DataType:
    if t.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _numbers(kind.value_type)))
    if t.is_date32(kind):
        return pa.int32()
    return pa.int64() if t.is_timestamp(kind) or t.is_duration(kind) else kind
