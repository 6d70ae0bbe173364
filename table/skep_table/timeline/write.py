"""Changing the timeline: instants that come into being, go on to their next state, or are taken back.

Format guide 2.4. Each change is one file, created whole or not at all, so that readers and other writers see an
instant in one state or the next. Callers pass the table as they last saw it.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from skep_table.clock import SYSTEM_CLOCK, Clock
from skep_table.errors import AlreadyExistsError, CommitConflictError, StorageError
from skep_table.names import META_FOLDER
from skep_table.storage import Storage
from skep_table.table_config import TableConfig
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.plans import Plan, encode_plan
from skep_table.timeline.timeline import Timeline, format_instant_time, load_timeline


class Seen(Protocol):
    """A table as its caller saw it last."""

    @property
    def storage(self) -> Storage: ...
    @property
    def config(self) -> TableConfig: ...
    @property
    def timeline(self) -> Timeline: ...


Content = CommitMetadata | Plan | bytes | None

_ATTEMPTS: Final = 200
_DIGITS: Final = 17
_STAGES: Final = f"{META_FOLDER}/.stages"


def new_instant_time(table: Seen, clock: Clock = SYSTEM_CLOCK) -> str:
    """A time later than every instant of the timeline: now, or a millisecond after the last where the clock is behind.

    Two writers may be given the same one; creating the requested file decides (see `request_instant`).
    """
    return _time_after(table.timeline, table.config, clock)


def request_instant(
    table: Seen,
    action: Action,
    content: Content = None,
    clock: Clock = SYSTEM_CLOCK,
    *,
    announce: Callable[[str], None] | None = None,
) -> tuple[Instant, Timeline]:
    """A requested instant of its own time, later than all others, and the timeline with it.

    `announce` is told a time before anybody can see it; it raises AlreadyExistsError for one that is not to be taken.

    A writer that finds another one at its time, whatever the action, or at a later one takes its own back and chooses
    again, so no two keep one time and nobody ends up below an instant that was there first. CommitConflictError when
    others are faster every time.
    """
    timeline = table.timeline
    ahead = ""
    for attempt in range(_ATTEMPTS):
        instant = Instant(_time_after(timeline, table.config, clock, ahead), action, State.REQUESTED)
        created = True
        try:
            if announce is not None:
                announce(instant.requested_time)
            create_requested(table, instant, content)
        except AlreadyExistsError:
            created = False
            ahead = instant.requested_time
        except BaseException as error:
            if announce is not None and not isinstance(error, Exception):  # interrupted, perhaps after it was created
                with contextlib.suppress(StorageError):
                    table.storage.delete(timeline.layout.path(instant))
            raise
        try:
            timeline = load_timeline(table.storage, table.config, timeline.archive)
        except BaseException:  # interrupts as well
            if created:
                with contextlib.suppress(StorageError):
                    table.storage.delete(timeline.layout.path(instant))
            raise
        if created and _keeps(instant, timeline):
            return instant, timeline
        if created:
            table.storage.delete(timeline.layout.path(instant))
            ahead = _add_milliseconds(instant.requested_time, random.randint(0, attempt))  # ties don't meet for ever
    raise CommitConflictError(
        f"table {table.config.name}: other writers took each of {_ATTEMPTS} instant times first",
        table=table.config.name,
        action=action.value,
    )


def create_requested(table: Seen, instant: Instant, content: Content = None) -> Instant:
    """AlreadyExistsError when another writer has this time and action."""
    return _create(table, replace(instant, state=State.REQUESTED), content)


def transition_to_inflight(table: Seen, instant: Instant, content: Content = None) -> Instant:
    return _create(table, replace(instant, state=State.INFLIGHT), content)


def complete(table: Seen, instant: Instant, content: Content, clock: Clock = SYSTEM_CLOCK) -> Instant:
    """The commit point: with the completed file everything that the instant wrote is visible.

    Where the layout has completion times, `table` has to be a look taken under the table's lock.
    """
    return _create(table, _completed(table, instant, clock), content)


@dataclass(frozen=True, slots=True)
class Stage:
    """A completed file that is not at its place yet: `path` moves to where `instant` is."""

    path: str
    instant: Instant


def stage(table: Seen, instant: Instant, content: Content, clock: Clock = SYSTEM_CLOCK) -> Stage:
    """Writes the completed file beside the timeline. Whoever takes the stage away prevents the completion."""
    done = _completed(table, instant, clock)
    staged = Stage(f"{_STAGES}/{instant.requested_time}.{uuid.uuid4().hex}", done)
    table.storage.create_exclusive(staged.path, _encode(table, content))
    return staged


def complete_staged(table: Seen, staged: Stage) -> Instant:
    """The commit point, in one rename. FileNotFoundError when the stage was taken away."""
    table.storage.rename(staged.path, table.timeline.layout.path(staged.instant))
    return staged.instant


def remove_stages(storage: Storage) -> list[str]:
    """For the holder of the table's lock: who staged a completion before may not complete it any more."""
    stages = [file.path for file in storage.list_prefix(_STAGES)]
    for path in stages:
        storage.delete(path)
    return stages


def _completed(table: Seen, instant: Instant, clock: Clock) -> Instant:
    done = replace(instant, action=instant.action.completed_as, state=State.COMPLETED)
    if table.timeline.layout.has_completion_times:
        done = replace(done, completion_time=_time_after(table.timeline, table.config, clock, instant.requested_time))
    return done


def delete_pending(table: Seen, instant: Instant, *, keep_requested: bool = False) -> None:
    """Takes a pending instant off the timeline, inflight first: a crash in between leaves it requested.

    `keep_requested` is for plans that are to be tried again.
    """
    layout = table.timeline.layout
    table.storage.delete(layout.path(replace(instant, state=State.INFLIGHT, completion_time=None)))
    if not keep_requested and instant.action is not Action.SAVEPOINT:
        table.storage.delete(layout.path(replace(instant, state=State.REQUESTED, completion_time=None)))


def delete_completed(table: Seen, instant: Instant) -> Instant:
    """Makes a completed instant pending again, the first step of its rollback."""
    table.storage.delete(table.timeline.layout.path(instant))
    return replace(instant, state=State.INFLIGHT, completion_time=None)


def _create(table: Seen, instant: Instant, content: Content) -> Instant:
    table.storage.create_exclusive(table.timeline.layout.path(instant), _encode(table, content))
    return instant


def _encode(table: Seen, content: Content) -> bytes:
    layout = table.timeline.layout
    if content is None or isinstance(content, bytes):
        return content or b""
    if isinstance(content, CommitMetadata):
        return layout.encode_commit(content)
    return encode_plan(content, layout.release)


def _keeps(instant: Instant, timeline: Timeline) -> bool:
    """Whether a new instant may stay: it is (still) there, alone at its time, and none is later."""
    at_or_after = [other for other in timeline.instants if other.requested_time >= instant.requested_time]
    return at_or_after == [instant]


def _time_after(timeline: Timeline, config: TableConfig, clock: Clock, also: str = "") -> str:
    times = [time for i in timeline.instants for time in (i.requested_time, i.completion_time) if time]
    latest = max([also, *times])
    now = format_instant_time(clock.now(), config.timezone)
    return now if now > latest else _add_milliseconds(latest, 1)


def _add_milliseconds(time: str, milliseconds: int) -> str:
    """A 17-digit time after one that may be shorter (seconds stand for their last millisecond) or longer."""
    full = time[:_DIGITS].ljust(_DIGITS, "9")
    with contextlib.suppress(ValueError):
        moment = datetime.strptime(full + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=milliseconds)
        return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
    return str(int(full) + milliseconds).zfill(_DIGITS)
