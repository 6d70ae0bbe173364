"""Expressions: what is refused by name, what means the same, and bounds by an unknown time zone."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import InputError, UnsupportedError
from skep_format.expressions import Expression, expression_of
from skep_format.expressions.patterns import Pattern
from skep_format.schema.types import (
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntType,
    LongType,
    StringType,
    TimestampType,
)

MOMENT = TimestampType("us", utc=True)
ZONES = ("Pacific/Kiritimati", "America/New_York", "Asia/Kolkata", "Etc/GMT+12", "Africa/Monrovia", "UTC")
PATTERNS = ("yyyy", "yyyy-MM", "yyyyMMdd", "yyyy-MM-dd", "yyyy/MM/dd HH", "yyyy-MM-dd HH:mm", "yyyy-MM-dd HH:mm:ss")


@pytest.mark.parametrize(
    ("function", "options", "source"),
    [
        ("regexp_extract", {"pattern": "a", "idx": "1"}, StringType()),
        ("regexp_extract", {"pattern": "(a)", "idx": "-1"}, StringType()),
        ("regexp_extract", {"pattern": "a$", "idx": "0"}, StringType()),
        ("regexp_replace", {"pattern": "a*", "replacement": "b"}, StringType()),
        ("regexp_replace", {"pattern": "(a)", "replacement": "$1"}, StringType()),
        ("regexp_replace", {"pattern": "a", "replacement": "\\"}, StringType()),
        ("split", {"pattern": "a"}, StringType()),
        ("concat", {}, StringType()),
        ("upper", {}, DoubleType()),
        ("upper", {}, DateType()),
        ("upper", {}, BinaryType()),
        ("hour", {}, DateType()),
        ("hour", {}, StringType()),
        ("from_unixtime", {}, DoubleType()),
        ("from_unixtime", {"format": "yyyy-MMM"}, LongType()),
        ("from_unixtime", {"format": "yy-MM"}, LongType()),
        ("from_unixtime", {"format": "yyyy-MM-yyyy"}, LongType()),
        ("from_unixtime", {"format": "yyyy'T''T'MM"}, LongType()),
        ("from_unixtime", {"format": "-yyyy"}, LongType()),
        ("from_unixtime", {"format": "yyyy-"}, LongType()),
        ("from_unixtime", {"format": "yyyyTMM"}, LongType()),
        ("date_format", {"format": "yyyy-MM-dd HH"}, DateType()),
        ("date_format", {"format": "mm"}, DateType()),
        ("date_format", {"format": "yyyy"}, StringType()),
        ("to_date", {}, TimestampType("us", utc=False)),
        ("to_date", {"format": "yyyy-MM-dd"}, StringType()),
        ("unix_timestamp", {}, StringType()),
        ("to_timestamp", {}, StringType()),
        ("substring", {"pos": "1", "len": "x"}, StringType()),
        ("substring", {"pos": "2147483648", "len": "1"}, StringType()),
        ("date_add", {"days": "x"}, DateType()),
        ("date_add", {"days": "99999999"}, DateType()),
    ],
)
def test_what_spark_may_take_otherwise_is_refused(function: str, options: dict[str, str], source: object) -> None:
    with pytest.raises((InputError, UnsupportedError), match=function):
        expression_of(function, options, source)  # type: ignore[arg-type]


def test_options_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="upper has no option format"):
        expression_of("upper", {"format": "yyyy"}, StringType())
    with pytest.raises(InputError, match="date_format needs the option format"):
        expression_of("date_format", {}, MOMENT)
    with pytest.raises(InputError, match="regexp_replace needs the option replacement"):
        expression_of("regexp_replace", {"pattern": "a"}, StringType())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("from_unixtime", {}, LongType()), ("from_unixtime", {"format": "yyyy-MM-dd HH:mm:ss"}, LongType())),
        (("unix_timestamp", {}, MOMENT), ("unix_timestamp", {"format": "yyyy"}, MOMENT)),
        (("to_date", {}, MOMENT), ("to_date", {"format": "yyyy"}, MOMENT)),
        (
            ("substring", {"pos": "0", "len": "0"}, StringType()),
            ("substring", {"pos": "+1", "len": "-3"}, StringType()),
        ),
    ],
)
def test_what_has_the_same_values_is_equal(
    one: tuple[str, dict[str, str], DataType], other: tuple[str, dict[str, str], DataType]
) -> None:
    assert expression_of(*one) == expression_of(*other)


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


@given(st.text(), st.integers(-12, 12), st.integers(-3, 12))
def test_parts_of_texts_are_counted_from_either_end(text: str, position: int, length: int) -> None:
    first = position - 1 if position > 0 else len(text) + position if position else 0
    part = expression_of("substring", {"pos": str(position), "len": str(length)}, StringType())
    expected = text[max(0, first) : max(0, first + length)]
    assert part.of(pa.array([text, None])).to_pylist() == [expected, None]


@pytest.mark.parametrize("function", ["upper", "lower", "trim", "ltrim", "rtrim"])
def test_whole_numbers_are_their_texts(function: str) -> None:
    for kind, values in ((IntType(), pa.array([-7, None], pa.int32())), (LongType(), pa.array([1 << 60, None]))):
        expression = expression_of(function, {}, kind)
        assert expression.is_sure(values)
        assert expression.of(values).to_pylist() == values.cast(pa.string()).to_pylist()


def test_arrays_of_large_values_are_taken_alike() -> None:
    texts, raw = pa.array(["2024-01-02", None], pa.large_string()), pa.array(["é".encode(), None], pa.large_binary())
    assert expression_of("year", {}, StringType()).of(texts).to_pylist() == [2024, None]
    assert expression_of("to_date", {}, StringType()).is_sure(texts)
    assert expression_of("substring", {"pos": "-2", "len": "2"}, StringType()).of(texts).to_pylist() == ["02", None]
    assert expression_of("length", {}, BinaryType()).of(raw).to_pylist() == [2, None]


@given(st.dates(), st.sampled_from(["", " 12:00", "T", " \n"]))
def test_texts_of_days_are_these_days(day: dt.date, rest: str) -> None:
    text, values = f"{day.isoformat()}{rest}", {"year": day.year, "month": day.month, "day": day.day, "to_date": day}
    for function, value in values.items():
        expression = expression_of(function, {}, StringType())
        assert expression.is_sure(pa.array([text, None]))
        assert expression.of(pa.chunked_array([[text], [None]], pa.string())).to_pylist() == [value, None]


@pytest.mark.parametrize("text", ["2024-1-02", " 2024-01-02", "2024", "0000-01-01", "10000-01-01", "N/A", "2023-02-29"])
def test_texts_of_days_in_other_forms_are_not_sure(text: str) -> None:
    for function in ("year", "month", "day", "to_date"):
        assert not expression_of(function, {}, StringType()).is_sure(pa.array(["2024-01-02", text]))
    assert not expression_of("date_add", {"days": "1"}, StringType()).is_sure(pa.array([text]))


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
    months = pa.array(["03 2024"])
    assert expression_of("from_unixtime", {"format": "MM yyyy"}, LongType()).widened(months, months) is None


@given(st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)), st.sampled_from(ZONES))
def test_widened_bounds_of_the_beginnings_of_days_hold_whatever_the_zone_was(day: dt.date, zone: str) -> None:
    expression = expression_of("unix_timestamp", {}, DateType())
    theirs = dt.datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()
    (ours,) = expression.of(pa.array([day])).to_pylist()
    widened = expression.widened(pa.array([int(theirs)], pa.int64()), pa.array([int(theirs)], pa.int64()))
    assert widened is not None
    low, high = (each[0].as_py() for each in widened)
    assert low <= ours <= high
