"""Times on a timeline: when an instant was requested and when it completed.

Both are texts in Hudi's spelling, so they serialise, hash and format as such. They have types of their own so that a
type checker separates them from other texts and from each other: a requested time and a completion time are compared
only by `CompletionTime.is_at_or_after_request`, whose rule the format states.
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from skep_format.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Self

DIGITS: Final = 17
"""`yyyyMMddHHmmssSSS`. Tables of Hudi before 0.10 have 14 digits, metadata tables append digits."""

_TIME = re.compile(r"\d+", re.ASCII)


class TimelineTime(str):
    """A time in the spelling of instant times, ordered as text (Hudi: InstantComparison.compareTimestamps).

    Seconds without milliseconds precede every time of the same second that has them. The constructor takes any text;
    `parse` checks it.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str, *, path: str | None = None) -> Self:
        """Digits only. FormatError naming `path`, the file that contains `text`."""
        if _TIME.fullmatch(text) is None:
            where = f"{path}: " if path else ""
            raise FormatError(f"{where}{text!r} is not an instant time", path=path, found=text, expected="digits")
        return cls(text)

    def is_before(self, other: Self) -> bool:
        """Whether this time precedes `other`."""
        return str.__lt__(self, other)

    def is_after(self, other: Self) -> bool:
        """Whether this time follows `other`."""
        return str.__gt__(self, other)

    def is_at_or_before(self, other: Self) -> bool:
        """Whether this time precedes or equals `other`."""
        return str.__le__(self, other)

    def is_at_or_after(self, other: Self) -> bool:
        """Whether this time follows or equals `other`."""
        return str.__ge__(self, other)

    def is_between(self, after: Self, before: Self) -> bool:
        """Whether it lies between two times, both exclusive."""
        return str.__lt__(after, self) and str.__lt__(self, before)

    def just_after(self) -> Self:
        """A bound behind this time and everything that begins with it, such as its milliseconds."""
        return type(self)(f"{self}~")

    def plus_milliseconds(self, milliseconds: int) -> Self:
        """A time of 17 digits. A shorter one counts as the last millisecond of its second, a longer one is cut."""
        full = self[:DIGITS].ljust(DIGITS, "9")
        with contextlib.suppress(ValueError):
            moment = datetime.strptime(full + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=milliseconds)
            return type(self)(f"{moment.year:04d}{moment:%m%d%H%M%S}{moment.microsecond // 1000:03d}")
        return type(self)(str(int(full) + milliseconds).zfill(DIGITS))


class InstantTime(TimelineTime):
    """The time at which an instant was requested: its identity on the timeline, and part of the names of its files."""

    __slots__ = ()


class CompletionTime(TimelineTime):
    """The time at which an instant completed, from layout 2 on part of the name of its completed file."""

    __slots__ = ()

    def is_at_or_after_request(self, requested: InstantTime) -> bool:
        """Whether the instant that was requested at `requested` sees this completion.

        A log file belongs to the slice with the largest base instant at or before the completion of its delta commit
        (Hudi: CompletionTimeQueryView, table version 8).
        """
        return str.__ge__(self, requested)


BEGINNING: Final = InstantTime("000")
"""Before every instant."""

BEFORE_ALL: Final = InstantTime("")
"""A bound that no instant lies before, and every instant after."""

AFTER_ALL: Final = InstantTime("~")
"""After every instant."""
