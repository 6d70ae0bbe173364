"""Value to text, format guide 9.1: what Java's toString makes of Avro values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import KeyFieldError, SchemaError
from skep_table.keys.text import column_of, value_text

# Answers of java.lang.Double.toString
JAVA_DOUBLES = {
    -0.0: "-0.0",
    1.0: "1.0",
    -1.5: "-1.5",
    100.0: "100.0",
    0.001: "0.001",
    9.99e-4: "9.99E-4",
    1e-5: "1.0E-5",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    12345678.9: "1.23456789E7",
    -12345678.0: "-1.2345678E7",
    1e16: "1.0E16",
    1.5e300: "1.5E300",
    1.7976931348623157e308: "1.7976931348623157E308",
    2.2250738585072014e-308: "2.2250738585072014E-308",
    float("inf"): "Infinity",
    float("-inf"): "-Infinity",
}


def texts(array: pa.Array, **how: bool) -> list[str | None]:
    return value_text(array, "c", **how).to_pylist()


def test_doubles_as_java_prints_them() -> None:
    assert texts(pa.array(list(JAVA_DOUBLES), pa.float64())) == list(JAVA_DOUBLES.values())
    assert texts(pa.array([float("nan"), None, 0.0])) == ["NaN", None, "0.0"]


def test_floats_as_java_prints_them() -> None:
    values = {1.1: "1.1", 16777216.0: "1.6777216E7", 3.4028234663852886e38: "3.4028235E38", 1e-3: "0.001", 7.0: "7.0"}
    assert texts(pa.array(list(values), pa.float32())) == list(values.values())


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_text_reads_back_as_the_same_double(value: float) -> None:
    (text,) = texts(pa.array([value], pa.float64()))
    assert text is not None
    assert float(text) == value
    whole, _, fraction = text.partition("E")[0].lstrip("-").partition(".")
    assert whole
    assert fraction, "Java always prints a digit after the point"
    assert ("E" in text) == (value != 0 and not 1e-3 <= abs(value) < 1e7)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20))
def test_decimals_are_plain_with_all_their_decimals(value: Decimal) -> None:
    assert texts(pa.array([value], pa.decimal128(38, 9))) == [f"{value:.9f}"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["a", "", None]), ["a", "", None]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([1, -2], pa.int32()), ["1", "-2"]),
        (pa.array([-(2**63)], pa.int64()), ["-9223372036854775808"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([dt.date(2024, 1, 2), dt.date(1, 1, 1)]), ["2024-01-02", "0001-01-01"]),
        (pa.array([Decimal("-0.05"), Decimal("12")], pa.decimal128(10, 2)), ["-0.05", "12.00"]),
        (pa.array([7], pa.decimal128(5, 0)), ["7"]),
        (pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC")), ["1700000000123456"]),
        (pa.array([1_700_000_000_123], pa.timestamp("ms")), ["1700000000123"]),
        (pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")), ["1700000000123456"]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_each_type(array: pa.Array, expected: list[str | None]) -> None:
    assert texts(array) == expected


def test_consistent_logical_timestamps_are_those_of_java_sql() -> None:
    stamps = pa.array([1_700_000_000_123_456, 1_700_000_000_000_000, 1_700_000_000_120_000], pa.timestamp("us", "UTC"))
    assert texts(stamps, logical_timestamps=True) == [
        "2023-11-14 22:13:20.123",
        "2023-11-14 22:13:20.0",
        "2023-11-14 22:13:20.12",
    ]


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int32()), pa.struct([("a", pa.int32())])])
def test_types_without_text_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column odd"):
        value_text(pa.nulls(1, kind), "odd")


def test_a_dotted_name_is_a_member_of_a_struct() -> None:
    table = pa.table({"s": [{"a": {"b": 5}}, None], "s.x": [1, 2]})
    assert column_of(table, "s.a.b").to_pylist() == [5, None]
    assert column_of(table, "s.x").to_pylist() == [1, 2]
    with pytest.raises(KeyFieldError, match=r"s\.a\.c"):
        column_of(table, "s.a.c")
