"""Changes of the timeline: creating instants, moving them to their next state, deleting them (format guide 2.4).

Each change is one file, created whole or not at all: readers and other writers see an instant in one state or the next.
Callers pass their snapshot of the table.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import AlreadyExistsError, CommitConflictError, StorageError
from skep_format.instant_time import BEFORE_ALL, CompletionTime, InstantTime
from skep_format.names import META_FOLDER
from skep_format.storage import Storage
from skep_format.table_config import TableConfig
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import Plan, encode_plan
from skep_format.timeline.timeline import Timeline, format_instant_time, load_timeline


class Seen(Protocol):
    """The caller's snapshot of a table."""

    @property
    def storage(self) -> Storage:
        """The files of the table."""

    @property
    def config(self) -> TableConfig:
        """The settings of the snapshot."""

    @property
    def timeline(self) -> Timeline:
        """The active timeline of the snapshot."""


Content = CommitMetadata | Plan | bytes | None

_ATTEMPTS: Final = 200
_STAGES: Final = f"{META_FOLDER}/.stages"


def request_instant(
    table: Seen,
    action: Action,
    content: Content = None,
    clock: Clock = SYSTEM_CLOCK,
    *,
    announce: Callable[[InstantTime], None] | None = None,
) -> tuple[Instant, Timeline]:
    """Creates a requested instant at an unused time after all others; also returns the timeline that contains it.

    `announce` is called with a time before its file exists; it raises AlreadyExistsError for a time that is in use.

    A writer that finds another instant at its time, of any action, or at a later one, deletes its own and chooses
    again: no two instants keep one time, and none ends up before an instant that was there first. CommitConflictError
    when other writers are faster every time.
    """
    timeline = table.timeline
    ahead = BEFORE_ALL
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
            interrupted = not isinstance(error, Exception)  # perhaps after creating the file
            if announce is not None and interrupted:
                with contextlib.suppress(StorageError):
                    table.storage.delete(timeline.layout.path(instant))
            raise
        try:
            archive = timeline.archive.reopened() if timeline.archive else None
            timeline = load_timeline(table.storage, timeline.layout, table.config.timezone, archive, timeline)
        except BaseException:  # interrupts as well
            if created:
                with contextlib.suppress(StorageError):
                    table.storage.delete(timeline.layout.path(instant))
            raise
        # It may stay if its file exists, no other has its time, and none is later.
        if created and timeline.since(instant.requested_time).instants == (instant,):
            return instant, timeline
        if created:
            table.storage.delete(timeline.layout.path(instant))
            ahead = instant.requested_time.plus_milliseconds(random.randint(0, attempt))  # so that ties end
    problem = f"other writers took each of {_ATTEMPTS} instant times first"
    raise CommitConflictError.of_table(table.config.name, problem, action=action.value)


def create_requested(table: Seen, instant: Instant, content: Content = None) -> Instant:
    """Creates the requested file. AlreadyExistsError when another writer has this time and action."""
    return _create(table, replace(instant, state=State.REQUESTED), content, durable=True)


def transition_to_inflight(table: Seen, instant: Instant, content: Content = None, *, durable: bool = True) -> Instant:
    """Creates the inflight file. AlreadyExistsError when it exists.

    `durable`: as for `Storage.create_exclusive`; where it is not, the caller syncs the file.
    """
    return _create(table, replace(instant, state=State.INFLIGHT), content, durable)


def complete(
    table: Seen,
    instant: Instant,
    content: Content,
    clock: Clock = SYSTEM_CLOCK,
    *,
    alone: bool = False,
    durable: bool = True,
) -> Instant:
    """Creates the completed file, which is the commit point: everything that the instant wrote becomes visible.

    In layout 2, `table` must be a snapshot made under the table's lock. AlreadyExistsError when the instant is
    completed, which nobody else can have done when this process is `alone`. `durable`: as for `transition_to_inflight`.
    """
    done = _completed(table, instant, clock)
    if not alone:
        _refuse_second(table, done)
    return _create(table, done, content, durable)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A completed file outside the timeline: completing moves `path` to the path of `instant`."""

    path: str
    instant: Instant


def stage(table: Seen, instant: Instant, content: Content, clock: Clock = SYSTEM_CLOCK) -> StagedFile:
    """Writes the completed file outside the timeline. Another process prevents the completion by deleting that file."""
    done = _completed(table, instant, clock)
    staged = StagedFile(f"{_STAGES}/{instant.requested_time}.{uuid.uuid4().hex}", done)
    table.storage.create_exclusive(staged.path, _encode(table, content))
    return staged


def complete_staged(table: Seen, staged: StagedFile) -> Instant:
    """The commit point, in one rename. FileNotFoundError when the staged file was deleted.

    AlreadyExistsError when the instant is completed.
    """
    _refuse_second(table, staged.instant)
    table.storage.rename(staged.path, table.timeline.layout.path(staged.instant))
    return staged.instant


def remove_stages(storage: Storage) -> list[str]:
    """Deletes all staged files, which prevents their completion. Call it with the table's lock held."""
    stages = [file.path for file in storage.list_prefix(_STAGES)]
    for path in stages:
        storage.delete(path)
    return stages


def _completed(table: Seen, instant: Instant, clock: Clock) -> Instant:
    done = replace(instant, action=instant.action.completed_as, state=State.COMPLETED)
    if table.timeline.layout.has_completion_times:
        time = _time_after(table.timeline, table.config, clock, instant.requested_time)
        done = replace(done, completion_time=CompletionTime(time))
    return done


def _refuse_second(table: Seen, done: Instant) -> None:
    """AlreadyExistsError where the instant is completed: at another time its completed file has another name."""
    found = [] if table.timeline.layout.one_completed_name else completed_files(table, done)
    if found:
        raise AlreadyExistsError(f"{found[0]}: {done.requested_time} is completed already", path=found[0])


def completed_files(table: Seen, done: Instant) -> list[str]:
    """The paths of the completed files of a completed instant: one at most, unless two processes completed it at once.

    Where a name states when the instant completed, the timeline's folder is listed (format guide 14.1).
    """
    layout = table.timeline.layout
    if layout.one_completed_name:
        path = layout.path(done)
        return [path] if table.storage.exists(path) else []
    named = ((file.path, layout.parse(file.name)) for file in table.storage.list_folder(layout.folder).files)
    of_done = done.requested_time, done.action
    return [
        path
        for path, found in named
        if found is not None and found.is_completed and (found.requested_time, found.action) == of_done
    ]


def delete_pending(table: Seen, instant: Instant, *, keep_requested: bool = False) -> None:
    """Deletes a pending instant from the timeline, the inflight file first: a crash in between leaves it requested.

    `keep_requested` keeps a plan for another attempt.
    """
    layout = table.timeline.layout
    table.storage.delete(layout.path(replace(instant, state=State.INFLIGHT, completion_time=None)))
    if not keep_requested and instant.action is not Action.SAVEPOINT:
        table.storage.delete(layout.path(replace(instant, state=State.REQUESTED, completion_time=None)))


def delete_completed(table: Seen, instant: Instant) -> Instant:
    """Deletes the completed file: the instant is pending again."""
    table.storage.delete(table.timeline.layout.path(instant))
    return replace(instant, state=State.INFLIGHT, completion_time=None, by_modification=False)


def _create(table: Seen, instant: Instant, content: Content, durable: bool) -> Instant:
    table.storage.create_exclusive(table.timeline.layout.path(instant), _encode(table, content), durable=durable)
    return instant


def _encode(table: Seen, content: Content) -> bytes:
    layout = table.timeline.layout
    if content is None or isinstance(content, bytes):
        return content or b""
    if isinstance(content, CommitMetadata):
        return layout.encode_commit(content)
    return encode_plan(content, layout.release)


def _time_after(timeline: Timeline, config: TableConfig, clock: Clock, also: InstantTime = BEFORE_ALL) -> InstantTime:
    """Now, or a millisecond after the latest requested or completion time where the clock is behind it."""
    latest = max(timeline.latest_time, also)
    now = format_instant_time(clock.now(), config.timezone)
    return now if now.is_after(latest) else latest.plus_milliseconds(1)
