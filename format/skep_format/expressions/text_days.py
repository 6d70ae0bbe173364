"""Texts as days, as Spark casts a text to a date."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.expressions.patterns import in_range

_AROUND: Final = r"[\x00-\x20\x7f]*"
# Behind a whole date Spark leaves out the rest. Month and day may be missing.
_TEXT: Final = (
    rf"(?s)^{_AROUND}(?P<sign>[+-]?)(?P<year>\d{{4,7}})"
    rf"(?:-(?P<month>\d{{1,2}})(?:-(?P<day>\d{{1,2}})(?:[ T].*)?)?)?{_AROUND}$"
)
_PLAIN: Final = r"(?s)^\d{4}-\d{2}-\d{2}(?:[ T].*)?$"
_SECONDS: Final = 86_400

_DAYS_IN_MONTH: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
# A whole number of the calendar's cycles of 400 years, which makes all years positive.
_CYCLES: Final = 25_000
_YEARS_OF_CYCLE, _DAYS_OF_CYCLE = 400, 146_097
_FROM_MARCH_0_TO_1970: Final = 719_468
_MOST: Final = 2**31


def days_of_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The date that each text states; null where it states none, which a session of Spark may take for an error."""
    if isinstance(texts, pa.ChunkedArray):
        return pa.chunked_array([days_of_texts(chunk) for chunk in texts.chunks], pa.date32())
    parts = pc.extract_regex(texts, _TEXT)
    year, month, day = (_number(pc.struct_field(parts, name)) for name in ("year", "month", "day"))
    year = np.where(np.asarray(pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False)), -year, year)
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = _DAYS_IN_MONTH[np.clip(month, 0, 12)] + ((month == 2) & is_leap)
    days = _days(year, month, day)
    there = np.asarray(pc.is_valid(parts)) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= longest)
    there &= (days >= -_MOST) & (days < _MOST)
    return pa.array(np.where(there, days, 0).astype(np.int32), mask=~there).cast(pa.date32())


def are_plain_days(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Whether a text is a date, with nothing or a time behind it, that each Spark reads alike; null for null."""
    seconds = pc.multiply(days_of_texts(texts).cast(pa.int32()).cast(pa.int64()), _SECONDS)
    return pc.and_(pc.match_substring_regex(texts, _PLAIN), pc.fill_null(in_range(seconds), False))


def _number(digits: pa.Array) -> Any:
    """Of months and days that a text does not have: 1."""
    stated = pc.fill_null(digits, "")
    return pc.if_else(pc.equal(stated, ""), "1", stated).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _days(year: Any, month: Any, day: Any) -> Any:
    """Since 1970, by a calendar whose years begin with March."""
    years = year + _CYCLES * _YEARS_OF_CYCLE - (month <= 2)
    months = (month + 9) % 12
    since = 365 * years + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 1
    return since - _FROM_MARCH_0_TO_1970 - _CYCLES * _DAYS_OF_CYCLE
