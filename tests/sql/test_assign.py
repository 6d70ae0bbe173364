"""Values that become those of another type on their way into a column, as Spark's store assignment makes them."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.query.sail import SailEngine
from skep_format.errors import InputError
from skep_sql.assign import Policy, assigned, check_assignable


def into(values: list[Any], given_type: pa.DataType, wanted: pa.DataType) -> list[Any]:
    found: list[Any] = assigned(pa.chunked_array([values], given_type), wanted, "c", "t", SailEngine()).to_pylist()
    return found


def test_decimals_are_rounded_half_up() -> None:
    values = [Decimal("12.345"), Decimal("99.950"), Decimal("-0.049"), None]
    rounded = [Decimal("12.3"), Decimal("100.0"), Decimal("0.0"), None]
    assert into(values, pa.decimal128(5, 3), pa.decimal128(4, 1)) == rounded


def test_doubles_become_the_decimals_that_are_written_for_them() -> None:
    """1.005 is a bit less than what is written, and yet is rounded up."""
    values = [1.005, 0.285, 2.675, -1.005, 1e20, 1e-5, None]
    rounded = [Decimal(each) if each else None for each in ("1.01", "0.29", "2.68", "-1.01", "1E+20", "0.00", None)]
    assert into(values, pa.float64(), pa.decimal128(30, 2)) == rounded


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e38, 1e300, 1e6])
def test_doubles_that_no_decimal_holds_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"table t: column c is decimal\(6,2\)"):
        into([value], pa.float64(), pa.decimal128(6, 2))


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_become_the_nearest_double_and_plain_text(digits: int, scale: int) -> None:
    with localcontext() as context:
        context.prec = 80
        value = Decimal(digits).scaleb(-scale)
    kind = pa.decimal128(38, scale)
    assert into([value], kind, pa.float64()) == [float(value)]
    assert into([value], kind, pa.string()) == [f"{value:f}"]


PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
GIVEN = pa.struct([("x", pa.float64()), ("y", pa.int64())])
PAIRS_WITHIN = [(lambda kind: kind, lambda v: v), (pa.list_, lambda v: [v, v])]
PAIRS_WITHIN += [(lambda kind: pa.map_(pa.string(), kind), lambda v: [("k", v)])]


@pytest.mark.parametrize("within", PAIRS_WITHIN)
def test_members_of_structs_are_assigned_by_position(within: Any) -> None:
    """As Hudi 0.15 and Spark store `named_struct('x', 7.9, 'y', 5)` in a `STRUCT<a: INT, b: STRING>`."""
    kind, value = within
    given, wanted = {"x": 7.9, "y": 5}, {"a": 7, "b": "5"}
    assert into([value(given), None, value(None)], kind(GIVEN), kind(PAIR)) == [value(wanted), None, value(None)]
    assert into([None], kind(GIVEN), kind(PAIR)) == [None]
    swapped = pa.struct([("b", pa.int32()), ("a", pa.string())])
    assert into([value({"b": 1, "a": "2"})], kind(swapped), kind(PAIR)) == [value({"a": 1, "b": "2"})]


@pytest.mark.parametrize("names", ["a", "abc"])
@pytest.mark.parametrize("by_name", [False, True])
def test_structs_with_other_numbers_of_members_are_refused(names: str, by_name: bool) -> None:
    other = pa.struct([(name, pa.int32()) for name in names])
    for policy in (Policy.ANSI, Policy.STRICT):
        with pytest.raises(InputError, match="table t: column c is struct<a:int,b:string>"):
            check_assignable(other, PAIR, "c", "t", policy, by_name=by_name)
    with pytest.raises(InputError, match=r"table t: column c.element is struct<a:int,b:string>"):
        into([[dict.fromkeys(names, 1)]], pa.list_(other), pa.list_(PAIR))


def test_by_name_members_of_structs_are_found_by_their_names() -> None:
    swapped = pa.struct([("B", pa.string()), ("a", pa.int64())])
    column = pa.chunked_array([[[{"B": "w", "a": 7}]]], pa.list_(swapped))
    assert assigned(column, pa.list_(PAIR), "c", "t", SailEngine(), by_name=True).to_pylist() == [[{"a": 7, "b": "w"}]]
    for policy in Policy:
        check_assignable(swapped, swapped, "c", "t", policy, by_name=True)
        with pytest.raises(InputError, match="can't safely become it"):
            check_assignable(GIVEN, PAIR, "c", "t", policy, by_name=True)
    with pytest.raises(InputError, match="has other members"):
        assigned(pa.chunked_array([[{"x": 1, "y": 2}]], GIVEN), PAIR, "c", "t", SailEngine(), by_name=True)
