"""Casts to the types of a table: a value arrives as it was given, or the cast is refused."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import InexactValueError, SchemaError
from skep_format.schema.exact import Casts, cast_exactly

_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_NUMBERS = [*_BITS, pa.float32(), pa.float64(), pa.decimal128(20, 0), pa.decimal128(9, 2)]


def _edges(bits: int) -> list[int]:
    return [sign * 2**power + off for power in (0, 7, 15, 24, 31, 53, bits) for off in (-1, 0, 1) for sign in (1, -1)]


_WHOLE = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([n for n in _edges(62) if -(2**63) <= n < 2**63]))
_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{
        kind: _WHOLE.map(lambda n, bits=bits: (n + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))
        for kind, bits in _BITS.items()
    },
    pa.float32(): st.one_of(st.floats(width=32), st.integers(-(2**25), 2**25).map(lambda n: float(n // 2 * 2))),
    pa.float64(): st.one_of(st.floats(), _WHOLE.map(float)),
    pa.decimal128(20, 0): st.decimals(-(10**20) + 1, 10**20 - 1, places=0, allow_nan=False),
    pa.decimal128(9, 2): st.decimals(-9_999_999, 9_999_999, places=2, allow_nan=False),
}


@given(st.data())
def test_a_number_keeps_its_value_or_is_refused(data: st.DataObject) -> None:
    found, target = data.draw(st.sampled_from(_NUMBERS)), data.draw(st.sampled_from(_NUMBERS))
    values = data.draw(st.lists(st.none() | _VALUES[found], max_size=5))
    column = pa.array(values, found)
    try:
        cast = cast_exactly(column, target, "x")
    except SchemaError:
        return
    for before, after in zip(column.to_pylist(), cast.to_pylist(), strict=True):
        if isinstance(before, float) and math.isnan(before):
            assert after is None or math.isnan(after)
        else:
            assert before == after


@given(st.integers(-(2**40), 2**40), st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from(["s", "ms", "us", "ns"]))
def test_an_instant_keeps_its_value_or_is_refused(value: int, unit: str, other: str) -> None:
    column = pa.array([None, value], pa.timestamp(unit, "UTC"))
    try:
        cast = cast_exactly(column, pa.timestamp(other, "UTC"), "x")
    except InexactValueError:
        return
    assert cast.cast(column.type).equals(column)


@pytest.mark.parametrize(
    ("value", "found", "target"),
    [
        (9007199254740993, pa.int64(), pa.float64()),
        (2**63 - 1, pa.int64(), pa.float64()),
        (2**24 + 1, pa.int32(), pa.float32()),
        (0.1, pa.float64(), pa.float32()),
        (1.5, pa.float64(), pa.int64()),
        (2.0**63, pa.float64(), pa.int64()),
        (math.inf, pa.float64(), pa.int32()),
        (300, pa.int64(), pa.int8()),
        (2**63, pa.uint64(), pa.int64()),
        (Decimal("1.50"), pa.decimal128(5, 2), pa.int64()),
        (Decimal("1.55"), pa.decimal128(5, 2), pa.decimal128(5, 1)),
        (1000, pa.int64(), pa.decimal128(5, 2)),
        (1.5, pa.float64(), pa.decimal128(5, 2)),
        ("01", pa.string(), pa.int64()),
        ("x", pa.large_string(), pa.int64()),
        (dt.datetime(2024, 1, 1, 1), pa.timestamp("us"), pa.date32()),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(value: Any, found: pa.DataType, target: pa.DataType) -> None:
    column = pa.array([None, value, None, value], found)
    with pytest.raises(InexactValueError) as refused:
        cast_exactly(column.slice(1), target, "x")
    fields = refused.value.fields
    assert (fields["column"], fields["found"], fields["expected"]) == ("x", str(found), str(target))
    assert "value" in fields


@pytest.mark.parametrize(
    ("value", "found", "target", "same"),
    [
        (float("nan"), pa.float64(), pa.int64(), None),
        (-0.0, pa.float64(), pa.int64(), 0),
        (2**60, pa.int64(), pa.float64(), float(2**60)),
        (2**62, pa.uint64(), pa.int64(), 2**62),
        (7, pa.int64(), pa.decimal128(5, 2), Decimal("7.00")),
        (7.0, pa.float64(), pa.decimal128(5, 2), Decimal("7.00")),
        ("12", pa.string(), pa.int64(), 12),
        ("2024-01-31", pa.string(), pa.date32(), dt.date(2024, 1, 31)),
        (dt.datetime(2024, 1, 31), pa.timestamp("ns"), pa.date32(), dt.date(2024, 1, 31)),
        (1.0, pa.float64(), pa.string(), "1.0"),
    ],
)
def test_values_that_fit_are_cast(value: Any, found: pa.DataType, target: pa.DataType, same: Any) -> None:
    assert cast_exactly(pa.chunked_array([pa.array([value, None], found)]), target, "x").to_pylist() == [same, None]


NESTED = [
    (pa.list_(pa.float64()), pa.list_(pa.int32()), [1.0, None], [0.5], "x.element"),
    (pa.list_(pa.float64(), 2), pa.list_(pa.int32()), [1.0, None], [0.5, 0.0], "x.element"),
    (pa.large_list(pa.float64()), pa.list_(pa.int32()), [1.0, None], [0.5], "x.element"),
    (pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.int32()), [("k", 1)], [("k", 0.5)], "x.value"),
    (
        pa.struct([("b", pa.float64()), ("a", pa.float64())]),
        pa.struct([("a", pa.int32()), ("b", pa.int32())]),
        {"b": 1, "a": 2},
        {"a": 0, "b": 0.5},
        "x.b",
    ),
]


@pytest.mark.parametrize(("found", "target", "fits", "misfit", "path"), NESTED, ids=str)
def test_nested_values_are_cast_by_the_same_rule(
    found: pa.DataType, target: pa.DataType, fits: Any, misfit: Any, path: str
) -> None:
    column = pa.array([misfit, fits, None, fits, misfit], found)
    middle = column.slice(1, 3)
    plain = pa.array([fits], target).to_pylist()[0]
    assert cast_exactly(middle, target, "x").to_pylist() == [plain, None, plain]
    assert cast_exactly(pa.nulls(2, pa.null()), target, "x").to_pylist() == [None, None]
    with pytest.raises(InexactValueError, match=r"0\.5") as refused:
        cast_exactly(column.slice(1), target, "x")
    assert refused.value.fields["column"] == path


def test_what_lies_below_a_null_does_not_count() -> None:
    below = pa.array([0.5, 1.0])
    masked = pa.StructArray.from_arrays([below], ["a"], mask=pa.array([True, False]))
    assert cast_exactly(masked, pa.struct([("a", pa.int64())]), "x").to_pylist() == [None, {"a": 1}]


def test_rounding_is_for_columns_that_are_not_fixed() -> None:
    casts = Casts(fixed=frozenset({"id"}), lossy=True)
    column = pa.array([2**53 + 1])
    assert cast_exactly(column, pa.float64(), "x", casts).to_pylist() == [2.0**53]
    with pytest.raises(InexactValueError, match="column id"):
        cast_exactly(column, pa.float64(), "id", casts)


REQUIRED = [
    (pa.struct([pa.field("a", pa.float64())]), pa.struct([pa.field("a", pa.int64(), False)]), {"a": 1}, {"a": None}),
    (
        pa.struct([("s", pa.struct([("l", pa.list_(pa.string()))]))]),
        pa.struct([pa.field("s", pa.struct([pa.field("l", pa.list_(pa.string()), False)]), False)]),
        {"s": {"l": ["x", None]}},
        {"s": {"l": None}},
    ),
    (pa.list_(pa.int64()), pa.list_(pa.field("element", pa.int64(), False)), [1, 2], [None]),
    (
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.string(), pa.field("value", pa.int64(), False)),
        [("k", 1)],
        [("k", None)],
    ),
]


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize(("found", "target", "fits", "misfit"), REQUIRED, ids=str)
def test_members_that_are_never_null(
    found: pa.DataType, target: pa.DataType, fits: Any, misfit: Any, same: bool
) -> None:
    found = target if same else found
    column = pa.array([misfit, fits, None, fits], found)
    cast = cast_exactly(column.slice(1), target, "x")
    cast.validate(full=True)
    assert cast.to_pylist() == [fits, None, fits]
    inner = cast.items if pa.types.is_map(target) else cast.flatten() if pa.types.is_list(target) else cast.field(0)
    assert not inner.null_count
    with pytest.raises(SchemaError, match=r"column x\.\S+ is required and null in 1 rows"):
        cast_exactly(column, target, "x")
