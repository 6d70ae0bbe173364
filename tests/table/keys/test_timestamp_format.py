"""The timestamp-based key generator, format guide 9.3."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import KeyFieldError, OptionError
from skep_table.keys.timebased import TimestampFormat


def made(
    kind: str, output: str = "yyyy/MM/dd", prefix: str = "hoodie.keygen.timebased.", **more: str
) -> TimestampFormat:
    named = {key.replace("_", "."): value for key, value in more.items()}
    values = {"timestamp.type": kind, "output.dateformat": output, **named}
    return TimestampFormat.of({prefix + key: value for key, value in values.items()})


def texts(format: TimestampFormat, array: pa.Array) -> list[str]:
    return format.format(array, "at").to_pylist()


def test_numbers_by_their_unit() -> None:
    seconds = 1_704_164_645  # 2024-01-02T03:04:05Z
    assert texts(made("UNIX_TIMESTAMP"), pa.array([seconds])) == ["2024/01/02"]
    assert texts(made("EPOCHMILLISECONDS"), pa.array([seconds * 1000])) == ["2024/01/02"]
    assert texts(made("EPOCHMICROSECONDS"), pa.array([seconds * 1_000_000])) == ["2024/01/02"]
    assert texts(made("SCALAR", timestamp_scalar_time_unit="days"), pa.array([19724])) == ["2024/01/02"]
    assert texts(made("SCALAR", timestamp_scalar_time_unit="DAYS"), pa.array([dt.date(2024, 1, 2)])) == ["2024/01/02"]
    assert texts(made("UNIX_TIMESTAMP"), pa.array([float(seconds)])) == ["2024/01/02"]
    assert texts(made("EPOCHMICROSECONDS"), pa.array([-1])) == ["1969/12/31"]


def test_years_of_more_than_four_digits_are_those_of_hudi() -> None:
    """Microseconds where milliseconds are expected: 0.15.0 writes 55840/11/08 for the first one."""
    micros = 1_700_000_000_000_000
    given = pa.array([micros, 1_700_000_000_000, 2**63 - 1, -micros])
    pattern = "yyyy/MM/dd HH:mm:ss.SSS"
    # As java.time, in the same calendar, has them.
    expected = [
        "55840/11/08 22:13:20.000",
        "2023/11/14 22:13:20.000",
        "292278994/08/17 07:12:55.807",
        "-51901/02/22 01:46:40.000",
    ]
    assert texts(made("EPOCHMILLISECONDS", pattern), given) == expected
    assert texts(made("UNIX_TIMESTAMP"), pa.array([micros // 1000])) == ["55840/11/08"]
    moments = given.take([0]).cast(pa.timestamp("us", "UTC"))
    assert texts(made("EPOCHMILLISECONDS"), moments) == ["55840/11/08"]
    shown = made("EPOCHMILLISECONDS", "yyyyMMdd HH", output_timezone="Europe/Amsterdam")
    assert texts(shown, pa.array([micros])) == ["558401108 23"]


def test_numbers_that_are_no_time_are_named() -> None:
    nanos = 1_700_000_000_000_000_000
    with pytest.raises(KeyFieldError, match=rf"at: {nanos} seconds are no time.*\n.*in nanoseconds.*SCALAR"):
        texts(made("UNIX_TIMESTAMP"), pa.array([5, nanos]))
    with pytest.raises(KeyFieldError, match=r"at: 1700000000000000 days are no time.*\n.*EPOCHMICROSECONDS"):
        texts(made("SCALAR", timestamp_scalar_time_unit="DAYS"), pa.array([nanos // 1000]))


def test_null_is_the_epoch() -> None:
    assert texts(made("UNIX_TIMESTAMP", "yyyy/MM/dd HH:mm:ss"), pa.array([None], pa.int64())) == ["1970/01/01 00:00:01"]
    strings = made("DATE_STRING", "yyyyMMdd", input_dateformat="yyyy-MM-dd")
    assert texts(strings, pa.array([None], pa.string())) == ["19700101"]


def test_output_zone_and_both_prefixes() -> None:
    old = "hoodie.deltastreamer.keygen.timebased."
    shown = made("EPOCHMILLISECONDS", "yyyyMMdd HH", old, output_timezone="GMT+8:00")
    assert texts(shown, pa.array([1_704_164_645_000])) == ["20240102 11"]
    both = made("DATE_STRING", "yyyy-MM-dd HH:mm", input_dateformat="yyyy-MM-dd HH:mm", timezone="Europe/Amsterdam")
    assert texts(both, pa.array(["2024-07-01 00:30"])) == ["2024-07-01 00:30"]


def test_several_input_patterns_and_zones() -> None:
    format = made(
        "DATE_STRING",
        "yyyyMMddHHmmssSSS",
        input_dateformat="yyyy-MM-dd'T'HH:mm:ss.SSSZ,yyyy-MM-dd'T'HH:mm:ssZ,dd MMM yyyy",
    )
    given_texts = ["2024-01-02T03:04:05.678+01:00", "2024-01-02T03:04:05Z", "02 Jan 2024"]
    assert texts(format, pa.array(given_texts)) == ["20240102020405678", "20240102030405000", "20240102000000000"]


def test_pattern_letters() -> None:
    moment = pa.array([1_704_207_845_007])  # 2024-01-02T15:04:05.007Z, a Tuesday
    wanted = {
        "yy-M-d": "24-1-2",
        "D": "2",
        "h a": "3 PM",
        "MMM EEE": "Jan Tue",
        "MMMM EEEE": "January Tuesday",
        "yyyy'Q'": "2024Q",
        "HH''mm": "15'04",
        "s.SSS": "5.007",
        "S": "0",
    }
    assert {pattern: texts(made("EPOCHMILLISECONDS", pattern), moment)[0] for pattern in wanted} == wanted


@given(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)))
def test_text_that_was_printed_parses_back(moment: dt.datetime) -> None:
    pattern = "yyyy-MM-dd HH:mm:ss.SSS"
    text = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    assert texts(made("DATE_STRING", pattern, input_dateformat=pattern.replace(",", "")), pa.array([text])) == [text]


def test_text_that_does_not_match_is_named() -> None:
    with pytest.raises(KeyFieldError, match="'soon'") as caught:
        texts(made("DATE_STRING", input_dateformat="yyyy-MM-dd"), pa.array(["2024-01-02", "soon", "2024-13-01"]))
    assert caught.value.fields["rows"] == 2


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "SUNDIAL"},
        {"kind": "DATE_STRING"},
        {"kind": "UNIX_TIMESTAMP", "output": "yyyy-QQ"},
        {"kind": "UNIX_TIMESTAMP", "timezone": "Moon/Sea"},
        {"kind": "SCALAR", "timestamp_scalar_time_unit": "fortnights"},
    ],
)
def test_wrong_settings_are_option_errors(change: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        made(**change)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 1e300, 2.0**63, Decimal(10**25)],
    ids=["nan", "inf", "1e300", "2^63", "decimal"],
)
def test_what_64_bits_do_not_hold_is_named(value: float | Decimal) -> None:
    for kind in ("EPOCHMILLISECONDS", "UNIX_TIMESTAMP", "EPOCHMICROSECONDS"):
        with pytest.raises(KeyFieldError, match=re.escape(f"partition column at: {value} ")):
            texts(made(kind), pa.array([value]))
    with pytest.raises(KeyFieldError, match="no time in any year"):
        texts(made("EPOCHMILLISECONDS"), pa.array([2**63], pa.uint64()))
