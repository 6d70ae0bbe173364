"""The timeline of a table at one moment: its instants in order, and queries over them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Final, Protocol

from skep_format.instant_time import BEFORE_ALL, DIGITS, CompletionTime, InstantTime
from skep_format.names import META_FOLDER
from skep_format.storage import FileStatus, Storage
from skep_format.table_config import TimelineZone
from skep_format.table_config.keys import PROPERTIES_PATH
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.layout import MOVED, TimelineLayout

_SETTLED_MS: Final = 2_000
WRITE_ACTIONS: Final = DATA_ACTIONS | {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING}
"""Actions that write data files, in all states of these actions."""


class Archive(Protocol):
    """The archived part of a timeline, read on first use."""

    def instants(self, since: InstantTime = BEFORE_ALL) -> tuple[Instant, ...]:
        """Completed instants whose later time is `since` or after, oldest first."""
        ...

    def reopened(self) -> Archive:
        """The archive as it is now."""
        ...

    def completion_time_of(self, requested_time: InstantTime) -> CompletionTime | None:
        """When an archived write completed; None where the archive does not record it."""
        ...

    def completed_content(self, instant: Instant) -> object | None:
        """The content of a completed instant, a CommitMetadata or a Plan; None where the archive lacks it."""
        ...

    def holding(self, text: str) -> tuple[Instant, ...]:
        """Instants whose content may contain `text`, oldest first; none that does is missing."""
        ...

    def damages(self) -> Iterator[tuple[str, str]]:
        """The files that are missing or can't be read, each with the reason. Reads all of them to the end."""
        ...


@dataclass(frozen=True, slots=True)
class TimelineFiles:
    """What the listing of a timeline's folder shows beside the names of instants.

    `completed_ms`: when the completed file of each write was modified, in milliseconds; in layout 1 that is when it
    completed. `completed_bytes`: how large it is. `properties`: the table's property file, None in layouts that keep
    the timeline in another folder. `folders` are the names of the folders in `.hoodie`, None in those layouts.
    `log_compactions` are the requested times of the log compactions, pending ones and those completed as delta
    commits. `moved`: the table may have another timeline by now.
    """

    completed_ms: Mapping[InstantTime, int] = field(default_factory=dict)
    properties: FileStatus | None = None
    latest_ms: int = 0
    folders: frozenset[str] | None = None
    log_compactions: frozenset[InstantTime] = frozenset()
    moved: bool = False
    completed_bytes: Mapping[InstantTime, int] = field(default_factory=dict)

    @property
    def properties_are_settled(self) -> bool:
        """Whether any later change of the property file shows in its time.

        Storage states times to the second or better. A file of this listing that is two seconds younger proves that
        such a change has another second.
        """
        return self.properties is not None and self.latest_ms >= self.properties.modified_ms + _SETTLED_MS


_NO_FILES: Final = TimelineFiles()


class Timeline:
    """Instants of the active timeline, each in its furthest state, by requested time. Immutable.

    `completed`, `pending`, `data` and the other filters return a timeline of fewer instants, with the same start of the
    active timeline and the same archive.
    """

    def __init__(
        self,
        instants: Iterable[Instant],
        layout: TimelineLayout,
        archive: Archive | None = None,
        *,
        active: Timeline | None = None,
        files: TimelineFiles = _NO_FILES,
    ) -> None:
        # A part of a timeline is in its order.
        ordered = instants if active is not None else sorted(instants, key=lambda instant: instant.sort_key)
        self.instants = tuple(ordered)
        self.layout = layout
        self.archive = archive
        self._active = active or self
        self._files = files

    def __repr__(self) -> str:
        return f"Timeline({len(self.instants)} instants, last {self.last()})"

    def __len__(self) -> int:
        return len(self.instants)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        """The instants for which `keep` returns true."""
        return Timeline(filter(keep, self.instants), self.layout, self.archive, active=self._active)

    def completed(self) -> Timeline:
        """Completed instants."""
        return self.filter(lambda instant: instant.is_completed)

    def pending(self) -> Timeline:
        """Requested and inflight instants."""
        return self.filter(lambda instant: not instant.is_completed)

    def pending_changes(self) -> Timeline:
        """Pending instants of actions that change files: no savepoints, which have the time of a completed commit, and
        no indexing."""
        return self.pending().filter(lambda instant: instant.action not in (Action.SAVEPOINT, Action.INDEXING))

    def data(self) -> Timeline:
        """Commits, delta commits and replace commits in any state (Hudi: the commits timeline)."""
        return self.filter(lambda instant: instant.action in DATA_ACTIONS)

    def until(self, time: InstantTime) -> Timeline:
        """Instants requested at `time` or before."""
        return self.filter(lambda instant: instant.requested_time.is_at_or_before(time))

    def before(self, time: InstantTime) -> Timeline:
        """Instants requested before `time`."""
        return self.filter(lambda instant: instant.requested_time.is_before(time))

    def after(self, time: InstantTime) -> Timeline:
        """Instants requested after `time`."""
        return self.filter(lambda instant: instant.requested_time.is_after(time))

    def since(self, time: InstantTime) -> Timeline:
        """Instants requested at `time` or after."""
        return self.filter(lambda instant: instant.requested_time.is_at_or_after(time))

    def of(self, *actions: Action) -> Timeline:
        """Instants of these actions."""
        return self.filter(lambda instant: instant.action in actions)

    def last(self) -> Instant | None:
        """The instant requested last; None for an empty timeline."""
        return self.instants[-1] if self.instants else None

    @property
    def files(self) -> TimelineFiles:
        """Facts from the listing of the active timeline; empty for a timeline that was not listed."""
        return self._active._files

    def completing(self, done: Instant) -> Timeline:
        """This timeline with an instant completed, without a listing."""
        time, action = done.requested_time, done.action.completed_as
        others = [i for i in self.instants if (i.requested_time, i.action.completed_as) != (time, action)]
        return Timeline([*others, done], self.layout, self.archive, files=self.files)

    @property
    def first_time(self) -> InstantTime | None:
        """The start of the active timeline: every write requested before it is committed (format guide 10.1).

        It is the first write, completed or pending, without commits that are retained only for a savepoint.
        """
        return self._active._start

    @functools.cached_property
    def _start(self) -> InstantTime | None:
        savepoints = {instant.requested_time for instant in self.instants if instant.action is Action.SAVEPOINT}
        writes = [instant.requested_time for instant in self.instants if instant.action in WRITE_ACTIONS]
        return next((time for time in writes if time not in savepoints), writes[0] if writes else None)

    @functools.cached_property
    def _times(self) -> frozenset[InstantTime]:
        return frozenset(instant.requested_time for instant in self.instants)

    def contains(self, time: InstantTime) -> bool:
        """Whether an instant of this timeline was requested at `time`."""
        return time in self._times

    def is_archived(self, time: InstantTime) -> bool:
        """Whether `time` precedes the start of the active timeline."""
        return self.first_time is not None and self.first_time.is_after(time)

    def is_completed_or_archived(self, time: InstantTime) -> bool:
        """Whether the write requested at `time` is committed."""
        return time in self._active._completed_writes or self.is_archived(time)

    @functools.cached_property
    def _completed_writes(self) -> dict[InstantTime, Instant]:
        return {
            instant.requested_time: instant
            for instant in self.instants
            if instant.is_completed and instant.action in DATA_ACTIONS
        }

    def completion_time_of(self, time: InstantTime) -> CompletionTime | None:
        """When the write requested at `time` completed; None while it is pending, and in layout 1.

        For an archived write that the history lacks, it is the requested time (format guide 10.3).
        """
        if not self.layout.has_completion_times:
            return None
        active = self._active._completed_writes.get(time)
        if active is not None:
            return active.completion_time
        if not self.is_archived(time):
            return None
        known = self.archive.completion_time_of(time) if self.archive else None
        return known or CompletionTime(time)

    def archived(self, since: InstantTime = BEFORE_ALL) -> tuple[Instant, ...]:
        """Completed instants that are no longer in the active timeline, oldest first: those whose later time is `since`
        or after."""
        if self.archive is None:
            return ()
        active = {(instant.requested_time, instant.action) for instant in self._active.instants}
        return tuple(i for i in self.archive.instants(since) if (i.requested_time, i.action) not in active)

    def archived_holding(self, text: str) -> tuple[Instant, ...]:
        """Archived instants whose content may contain `text`, oldest first; none that does is missing."""
        if self.archive is None:
            return ()
        return tuple(i for i in self.archive.holding(text) if not self._active.contains(i.requested_time))


def load_timeline(
    storage: Storage, layout: TimelineLayout, zone: TimelineZone, archive: Archive | None = None
) -> Timeline:
    """The active timeline by one listing of its folder; no instant file is opened."""
    furthest: dict[tuple[InstantTime, Action], Instant] = {}
    properties, latest, completed_ms, moved = None, 0, {}, False
    completed_bytes = {}
    log_compactions = set()
    listed = storage.list_folder(layout.folder)
    for file in listed.files:
        latest = max(latest, file.modified_ms)
        instant = layout.parse(file.name)
        if instant is None:
            properties = file if file.path == PROPERTIES_PATH else properties
            moved = moved or file.name == MOVED
            continue
        if instant.action is Action.LOG_COMPACTION:
            log_compactions.add(instant.requested_time)
        if instant.is_completed and instant.action in DATA_ACTIONS:
            completed_ms[instant.requested_time] = file.modified_ms
            completed_bytes[instant.requested_time] = file.size_bytes
        if layout.has_completion_times and instant.is_completed and instant.completion_time is None:
            # Files of layout 1 that were moved as they were.
            completed = time_of_modification(file.modified_ms, zone)
            instant = replace(instant, completion_time=completed, by_modification=True)
        # A compaction is requested under another action than it completes with: both are one instant.
        key = instant.requested_time, instant.action.completed_as
        known = furthest.get(key)
        if known is None or known.state < instant.state:
            furthest[key] = instant
    folders = frozenset(listed.folders) if layout.folder == META_FOLDER else None
    files = TimelineFiles(completed_ms, properties, latest, folders, frozenset(log_compactions), moved, completed_bytes)
    return Timeline(furthest.values(), layout, archive, files=files)


def completion_times(storage: Storage, timeline: Timeline, zone: TimelineZone) -> dict[InstantTime, CompletionTime]:
    """When each completed write of the active timeline completed, by its requested time.

    Layout 1 does not record it: the modification time of the completed file is used, from the listing of the timeline.
    """
    layout = timeline.layout
    if layout.has_completion_times:
        completed = timeline.data().completed()
        return {each.requested_time: each.completion_time for each in completed if each.completion_time is not None}
    listed = dict(timeline.files.completed_ms)
    for instant in timeline.data().completed():
        if instant.requested_time not in listed:  # completed after the timeline was listed
            with contextlib.suppress(FileNotFoundError):
                listed[instant.requested_time] = storage.status(layout.path(instant)).modified_ms
    return {time: time_of_modification(milliseconds, zone) for time, milliseconds in listed.items()}


def time_of_modification(modified_ms: int, zone: TimelineZone) -> CompletionTime:
    """The completion time that the modification time of a completed file stands for."""
    return CompletionTime(format_instant_time(datetime.fromtimestamp(modified_ms / 1000, timezone.utc), zone))


def format_instant_time(moment: datetime, zone: TimelineZone) -> InstantTime:
    """The 17 digits of a moment in the table's time zone."""
    local = moment.astimezone(timezone.utc) if zone is TimelineZone.UTC else moment.astimezone()
    return InstantTime(f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}")


def milliseconds_of(time: InstantTime, zone: TimelineZone) -> int:
    """An instant time as milliseconds since 1970, as Hudi's record index has it. One of seconds counts as the last
    millisecond of its second, and one that is no date (of a bootstrap) as the number that it is.
    """
    try:
        moment = datetime.strptime(time[:DIGITS].ljust(DIGITS, "9") + "000", "%Y%m%d%H%M%S%f")
    except ValueError:
        return int(time)
    moment = moment.replace(tzinfo=timezone.utc) if zone is TimelineZone.UTC else moment
    return int(moment.timestamp() * 1000)
