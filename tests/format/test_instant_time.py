"""Times of the timeline: they are texts of their own types, ordered as Hudi orders them."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError
from skep_format.instant_time import AFTER_ALL, BEFORE_ALL, BEGINNING, CompletionTime, InstantTime
from skep_format.names import FileGroupId

DIGITS = st.text("0123456789", min_size=1, max_size=20)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 30))


def spelt(moment: datetime) -> InstantTime:
    return InstantTime(f"{moment:%Y%m%d%H%M%S}".rjust(14, "0") + f"{moment.microsecond // 1000:03d}")


@given(DIGITS, DIGITS)
def test_times_are_ordered_as_texts(one: str, other: str) -> None:
    a, b = InstantTime(one), InstantTime(other)
    assert a.is_before(b) == b.is_after(a) == (one < other)
    assert a.is_at_or_before(b) == b.is_at_or_after(a) == (one <= other)
    assert CompletionTime(one).is_at_or_after_request(b) == (one >= other)
    assert BEFORE_ALL.is_before(a)
    assert AFTER_ALL.is_after(a)
    assert a.is_between(BEFORE_ALL, AFTER_ALL)
    assert not a.is_between(a, AFTER_ALL)
    assert not a.is_between(BEFORE_ALL, a)
    assert a.just_after().is_after(InstantTime(one + "999"))


def test_seconds_precede_their_milliseconds() -> None:
    assert InstantTime("20261121120000").is_before(InstantTime("20261121120000000"))
    assert BEGINNING.is_before(InstantTime("00000000000000"))


@given(DIGITS)
def test_times_stay_what_they_are(text: str) -> None:
    time = InstantTime.parse(text)
    for again in (time, pickle.loads(pickle.dumps(time)), copy.deepcopy(time)):
        assert type(again) is InstantTime
        assert again == text
        assert hash(again) == hash(text)
    assert json.dumps(time) == json.dumps(text)
    assert f"{time:>25}" == f"{text:>25}"


@pytest.mark.parametrize("text", ["", "2026-11-21", "20261121 ", "٢٠٢٦"])
def test_what_is_no_time_is_refused_with_its_file(text: str) -> None:
    with pytest.raises(FormatError, match="a/file") as refused:
        InstantTime.parse(text, path="a/file")
    assert refused.value.fields["found"] == text


@given(MOMENTS, st.integers(0, 10_000_000))
def test_milliseconds_are_added_as_on_a_calendar(moment: datetime, milliseconds: int) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert spelt(moment).plus_milliseconds(milliseconds) == spelt(moment + timedelta(milliseconds=milliseconds))


@given(DIGITS)
def test_a_millisecond_later_is_later(text: str) -> None:
    time = InstantTime(text)
    later = time.plus_milliseconds(1)
    assert len(later) >= 17
    if len(text) <= 17 and set(text) != {"9"}:
        assert later.is_after(time)


def test_a_time_that_is_no_date_counts_on() -> None:
    assert InstantTime("00000000000000001").plus_milliseconds(1) == "00000000000000002"


def test_a_file_group_is_a_tuple_of_its_parts() -> None:
    group = FileGroupId("2026/11", "f-0")
    assert group == ("2026/11", "f-0")
    assert pickle.loads(pickle.dumps(group)).file_id == "f-0"
