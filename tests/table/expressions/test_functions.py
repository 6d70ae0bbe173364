"""Expressions: what is refused by name, what means the same, and bounds by an unknown time zone."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_table.errors import InputError, UnsupportedError
from skep_table.expressions import Expression, expression_of
from skep_table.expressions.patterns import Pattern
from skep_table.schema.types import DateType, DoubleType, IntType, LongType, StringType, TimestampType

MOMENT = TimestampType("us", utc=True)
ZONES = ("Pacific/Kiritimati", "America/New_York", "Asia/Kolkata", "Etc/GMT+12", "Africa/Monrovia", "UTC")
PATTERNS = ("yyyy", "yyyy-MM", "yyyyMMdd", "yyyy-MM-dd", "yyyy/MM/dd HH", "yyyy-MM-dd HH:mm", "yyyy-MM-dd HH:mm:ss")


@pytest.mark.parametrize(
    ("function", "options", "source"),
    [
        ("regexp_extract", {"pattern": "a", "idx": "1"}, StringType()),
        ("concat", {}, StringType()),
        ("upper", {}, IntType()),
        ("year", {}, StringType()),
        ("hour", {}, DateType()),
        ("from_unixtime", {}, DoubleType()),
        ("from_unixtime", {"format": "dd-MM-yyyy"}, LongType()),
        ("from_unixtime", {"format": "yyyy-MMM"}, LongType()),
        ("date_format", {"format": "yyyy-MM-dd HH"}, DateType()),
        ("to_date", {}, TimestampType("us", utc=False)),
        ("substring", {"pos": "-1", "len": "2"}, StringType()),
        ("date_add", {"days": "x"}, DateType()),
    ],
)
def test_what_spark_may_take_otherwise_is_refused(function: str, options: dict[str, str], source: object) -> None:
    with pytest.raises(UnsupportedError, match=function):
        expression_of(function, options, source)  # type: ignore[arg-type]


def test_options_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="upper has no option format"):
        expression_of("upper", {"format": "yyyy"}, StringType())
    with pytest.raises(InputError, match="date_format needs the option format"):
        expression_of("date_format", {}, MOMENT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("from_unixtime", {}), ("from_unixtime", {"format": "yyyy-MM-dd HH:mm:ss"})),
    ],
)
def test_a_default_is_the_option_that_it_stands_for(
    one: tuple[str, dict[str, str]], other: tuple[str, dict[str, str]]
) -> None:
    assert expression_of(*one, LongType()) == expression_of(*other, LongType())


def test_equal_meanings_are_equal() -> None:
    back, ahead = (
        expression_of("date_sub", {"days": "03"}, DateType()),
        expression_of("date_add", {"days": "-3"}, DateType()),
    )
    assert back == ahead
    assert expression_of("trim", {}, StringType()) == expression_of("trim", {"trimString": " "}, StringType())
    assert expression_of("trim", {}, StringType()) != expression_of("trim", {"trimString": "x"}, StringType())


def test_letters_that_releases_of_java_differ_in_are_not_sure() -> None:
    upper = expression_of("upper", {}, StringType())
    assert upper.of(pa.array(["straße", None, "é"])).to_pylist() == ["STRASSE", None, "É"]
    assert upper.is_sure(pa.array(["é", None, "Ж"]))
    assert not upper.is_sure(pa.array(["é", "straße"]))
    assert upper.is_sure(pa.array([], pa.string()))


def test_years_with_a_sign_are_not_sure() -> None:
    day = expression_of("from_unixtime", {"format": "yyyy-MM-dd"}, LongType())
    assert day.is_sure(pa.array([-62_135_596_800, None, 253_402_300_799]))
    assert not day.is_sure(pa.array([-62_135_596_801]))
    assert not day.is_sure(pa.array([253_402_300_800]))


def in_zone(expression: Expression, seconds: int, zone: str) -> str:
    """As a session of Spark with that time zone has it."""
    offset = dt.datetime.fromtimestamp(seconds, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    shifted = pa.array([seconds + int(offset.total_seconds())], pa.int64())
    return str(expression.of(shifted)[0].as_py())


@given(
    st.lists(st.integers(-30_000_000_000, 100_000_000_000), min_size=1, max_size=5),
    st.sampled_from(PATTERNS),
    st.sampled_from(ZONES),
)
def test_widened_bounds_hold_whatever_the_zone_was(seconds: list[int], pattern: str, zone: str) -> None:
    expression = expression_of("from_unixtime", {"format": pattern}, LongType())
    theirs = [in_zone(expression, each, zone) for each in seconds]
    widened = expression.widened(pa.array([min(theirs)]), pa.array([max(theirs)]))
    assert widened is not None
    low, high = (each[0].as_py() for each in widened)
    for ours in expression.of(pa.array(seconds, pa.int64())).to_pylist():
        assert low is None or low <= ours
        assert high is None or ours <= high


@pytest.mark.parametrize("text", ["2024-1-01", "", "+10000-01-01", "2024-01-01 00", "9999-01-01", "0001-01-01"])
def test_bounds_of_another_form_are_unknown(text: str) -> None:
    pattern = Pattern.parse("yyyy-MM-dd")
    assert pattern is not None
    low, high = pattern.widened(pa.array([text, "2024-03-01"]), pa.array([text, "2024-03-01"]))
    assert low.to_pylist() == [None, "2024-02-29"]
    assert high.to_pylist() == [None, "2024-03-02"]


def test_no_bounds_of_hours_hold_in_another_zone() -> None:
    hours = pa.array([3], pa.int32())
    assert expression_of("hour", {}, MOMENT).widened(hours, hours) is None
    assert expression_of("month", {}, MOMENT).widened(hours, hours) is None
    assert expression_of("month", {}, DateType()).widened(hours, hours) == (hours, hours)
