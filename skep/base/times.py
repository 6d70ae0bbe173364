"""Times and instants of a table as callers give them: by what a write returned, as text, or as Python's times."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, TypeAlias

from skep_format.errors import InputError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_table.query.request import instant_text
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep.base.history import Commit
    from skep_table.services.done import Done
    from skep_table.write.result import WriteResult

Moment: TypeAlias = "str | dt.date | Instant | WriteResult | Commit | Done"
"""A datetime is a date, and pandas' Timestamp a datetime."""


def time_text(given: Moment | None, option: str) -> str | None:
    """The requested time of an instant, or of what has one; a date or time as ISO text. InputError for other types."""
    found = requested_time_of(given)
    if found is None or isinstance(found, str):
        if found is None and given is not None:
            raise InputError(f"{option}: {given!r} has no instant", option=option)
        return found
    if isinstance(found, dt.datetime):
        return found.isoformat(timespec="milliseconds")
    if isinstance(found, dt.date):
        return found.isoformat()
    raise InputError(
        f"{option} is a time or an instant, not {given!r}",
        hint="an instant, what a write returned, a text, a datetime or a date",
        option=option,
        found=type(given).__name__,
        expected="a time",
    )


def requested_time_of(given: object) -> Any:
    """Of an instant, or of what has one; anything else as it is."""
    found = getattr(given, "instant", given)
    return getattr(found, "requested_time", found)


def instant_of(table: HudiTable, given: Moment, option: str) -> InstantTime:
    """The requested time that is meant; digits are one as they are."""
    text = str(time_text(given, option))
    return InstantTime(text) if text.isdecimal() else instant_text(text, table.config.timezone.value)


def range_text(table: HudiTable, given: Moment | None, option: str) -> str | None:
    """An end of a range. A commit of the table, also one named by its requested time, stands for itself: where ranges
    are of completion times, for the time at which it completed.
    """
    text = time_text(given, option)
    reads = table.format.reads
    if text is None or not reads.ranges_by_completion_time:
        return text
    found = getattr(given, "instant", given)
    if isinstance(found, Instant):
        return reads.time_in_range(found)
    if isinstance(found, CompletionTime) or not text.isdecimal():
        return text
    time = InstantTime(text)
    instants = list(table.timeline.data().completed())
    if table.timeline.is_archived(time):
        instants += (each for each in table.timeline.archived(time) if each.action in DATA_ACTIONS)
    if any(each.completion_time == text for each in instants):
        return text
    named = next((each for each in instants if each.requested_time == text), None)
    return text if named is None else reads.time_in_range(named)
