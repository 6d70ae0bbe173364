"""Dates and times as texts by a pattern of Spark's. Times are UTC.

Where the year is first, and each part smaller than the one before, texts are in the order of the times: bounds of texts
are those of times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

DEFAULT: Final = "yyyy-MM-dd HH:mm:ss"
"""What Spark's `from_unixtime` writes without a pattern."""

FIRST_SECOND: Final = -62_135_596_800
"""0001-01-01 00:00:00: years before are written as those of another era."""
LAST_SECOND: Final = 253_402_300_799
"""9999-12-31 23:59:59: years behind have a sign."""

LARGEST_OFFSET: Final = 18 * 3600
"""Of a time zone in Java, in seconds."""

_PARTS: Final = ("yyyy", "MM", "dd", "HH", "mm", "ss")
_DIRECTIVES: Final = ("%Y", "%m", "%d", "%H", "%M", "%S")
_DIGITS: Final = (4, 2, 2, 2, 2, 2)
_SECONDS: Final = (366 * 86_400, 31 * 86_400, 86_400, 3600, 60, 0)
_FIRST: Final = ("0001", "01", "01", "00", "00", "00")
_BETWEEN: Final = ("-", "-", " ", ":", ":")
_SEPARATOR: Final = r"[-/:. _]*(?:'T')?[-/:. _]*"  # two apostrophes in a row are one in the text
_PART: Final = "|".join(_PARTS)
_PATTERN: Final = re.compile(f"(?:{_PART})(?:{_SEPARATOR}(?:{_PART}))*")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that has some parts of a time, each once, with `separators` between them."""

    text: str
    parts: tuple[str, ...]
    separators: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern | None:
        """None for a pattern of another form."""
        if _PATTERN.fullmatch(text) is None:
            return None
        first, *others = re.findall(f"({_SEPARATOR})({_PART})", text)
        parts = (first[1], *(part for _, part in others))
        separators = tuple(separator.replace("'", "") for separator, _ in others)
        return cls(text, parts, separators) if len(set(parts)) == len(parts) else None

    @property
    def has_times(self) -> bool:
        """Whether there are parts of a day among the parts."""
        return not {*self.parts}.isdisjoint(_PARTS[3:])

    @property
    def is_ordered(self) -> bool:
        """Whether the texts are in the order of the times."""
        return self.parts == _PARTS[: len(self.parts)]

    def texts(self, seconds: pa.Array) -> pa.Array:
        """Of timestamps in whole seconds."""
        pieces = zip(("", *self.separators), (_DIRECTIVES[_PARTS.index(part)] for part in self.parts), strict=True)
        return pc.strftime(seconds, format="".join(separator + directive for separator, directive in pieces))

    def widened(self, low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Bounds of the texts in UTC, where these are bounds of the texts in a time zone that is not known.

        For patterns that are ordered. Null where one of the bounds is not by the pattern, or too near to the first or
        last year.
        """
        first, last = self._seconds(low), self._seconds(high)
        unit = _SECONDS[len(self.separators)]
        return (
            self.texts(_moved(first, -LARGEST_OFFSET)),
            self.texts(_moved(last, unit + LARGEST_OFFSET)),
        )

    def _seconds(self, texts: pa.Array) -> pa.Array:
        digits = zip(("", *map(re.escape, self.separators)), _DIGITS, strict=False)
        form = "".join(rf"{separator}\d{{{count}}}" for separator, count in digits)
        known = pc.match_substring_regex(texts, rf"^{form}$")
        known = pc.and_(known, pc.and_(pc.greater(texts, "0002"), pc.less(texts, "9998"))).fill_null(False)
        numbers = pc.replace_substring_regex(texts, r"\D", "")
        at, parts = 0, []
        for place, count in enumerate(_DIGITS):
            there = place <= len(self.separators)
            parts.append(pc.utf8_slice_codeunits(numbers, at, at + count) if there else pa.scalar(_FIRST[place]))
            at += count
        pieces = [each for pair in zip(parts, (*_BETWEEN, ""), strict=True) for each in pair]
        stated = pc.binary_join_element_wise(*pieces, "")
        return pc.if_else(known, stated, pa.scalar(None, pa.string())).cast(pa.timestamp("s"))


def _moved(times: pa.Array, seconds: int) -> pa.Array:
    return pc.add(times, pa.scalar(seconds, pa.duration("s")))


def in_range(seconds: pa.Array) -> pa.Array:
    """Where a number of seconds is in the years from 1 to 9999; null where it is null."""
    return pc.and_(pc.greater_equal(seconds, FIRST_SECOND), pc.less_equal(seconds, LAST_SECOND))
