"""Values that become those of another type on their way into a column, as Spark's store assignment makes them."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_sql.assign import assigned
from skep_table.errors import InputError


def into(values: list[Any], given_type: pa.DataType, wanted: pa.DataType) -> list[Any]:
    found: list[Any] = assigned(pa.chunked_array([values], given_type), wanted, "c", "t").to_pylist()
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
