"""Where a stream is: its newest checkpoint, the one a round would go on from, and what waits in the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from skep_format.timeline.timeline import milliseconds_of
from skep_stream.checkpoints import newest, resumed
from skep_stream.protocols import Position
from skep_stream.rounds import Stream


@runtime_checkable
class Measured(Protocol):
    """A source that knows what it has not read, without reading it."""

    def waiting(self, last: Position) -> Mapping[str, object]:
        """What lies behind `last`, by name."""
        ...


def lag(stream: Stream) -> dict[str, object]:
    """What waits behind the newest checkpoint, where the source knows it, and in `last_commit` the time of the commit
    that has it, in ms since 1970."""
    table = stream.target.table()
    found = newest(table, stream.asked.writer)
    facts: dict[str, object] = {}
    if table is not None and found is not None:
        facts["last_commit"] = milliseconds_of(found.instant.requested_time, table.config.timezone)
    return {**facts, **_waiting(stream, resumed(found, stream.asked))}


def _waiting(stream: Stream, last: Position) -> Mapping[str, object]:
    return stream.source.waiting(last) if isinstance(stream.source, Measured) else {}


def status(stream: Stream) -> dict[str, Any]:
    """The facts, by name. Nothing is read of the source but a listing."""
    table = stream.target.table()
    found = newest(table, stream.asked.writer)
    last = resumed(found, stream.asked)
    pending = () if table is None else table.timeline.pending().instants
    return {
        "table": None if table is None else table.config.name,
        "commits": 0 if table is None else len(table.timeline.data().completed()),
        "instant": None if found is None else str(found.instant.requested_time),
        "checkpoint": None if found is None else found.checkpoint,
        "next": last.checkpoint,
        "pending": [f"{each.action.value} {each.requested_time}" for each in pending],
        **_waiting(stream, last),
    }
