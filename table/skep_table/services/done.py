"""The results of services in one form: for the command line, events, and the hooks that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skep_format.errors import CommitConflictError, SkepError
from skep_format.timeline.instant import Instant
from skep_table.hooks import Committed

Detail = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """One result: completed, planned, put off or failed. `committed` is set where readers see other files after it.

    `details` has a row for each file slice, file group, partition or file of a preview, for each file of a clean and
    for each partition that expired.
    """

    service: str
    instant: str | None
    state: str
    what: str
    committed: Committed | None = None
    error: Exception | None = None
    details: Sequence[Detail] = field(default=(), compare=False)

    def __repr__(self) -> str:
        name = self.service if self.instant is None else f"{self.service} {self.instant}"
        state = "" if self.state == "completed" else f"{self.state}, "
        return f"<{name}: {state}{self.what}>"


def put_off(service: str, error: CommitConflictError) -> Done:
    """An active writer or executor blocks the service: it is tried again the next time."""
    time = error.fields.get("instant")
    return Done(service, None if time is None else str(time), "put off", error.message)


def failed(service: str, error: Exception) -> Done:
    """A service that raised `error`."""
    return Done(service, None, "failed", error.message if isinstance(error, SkepError) else str(error), error=error)


def planned(service: str, details: Sequence[Detail], what: str) -> list[Done]:
    """A preview of so many; empty when there are none."""
    return [Done(service, None, "planned", count(len(details), what), details=details)] if details else []


def scheduled(service: str, instant: Instant, details: Sequence[Detail] = ()) -> Done:
    """A plan that was written onto the timeline."""
    return Done(service, instant.requested_time, "scheduled", "planned, to be executed", details=details)


def count(number: int, what: str) -> str:
    """A number of things, by the word for one."""
    return f"{number} {what}" + ("" if number == 1 else "s")
