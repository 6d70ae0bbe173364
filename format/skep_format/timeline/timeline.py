"""The timeline of a table at one moment: its instants in order, and queries over them."""

from __future__ import annotations

import contextlib
import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from operator import attrgetter
from typing import Final, Protocol

from skep_format.instant_time import AFTER_ALL, BEFORE_ALL, DIGITS, CompletionTime, InstantTime
from skep_format.names import META_FOLDER
from skep_format.storage import FileStatus, Storage
from skep_format.table_config import TimelineZone
from skep_format.table_config.keys import PROPERTIES_PATH
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.layout import MOVED, NamedInstant, TimelineLayout, instant_of

_SETTLED_MS: Final = 2_000
_FINELY_SETTLED_MS: Final = 200
_REQUESTED: Final = attrgetter("requested_time")
_ORDER: Final = attrgetter("sort_key")
_COMPLETED_AS: Final = {action: action.completed_as.value for action in Action}
WRITE_ACTIONS: Final = DATA_ACTIONS | {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING}
"""Actions that write data files, in all states of these actions."""


class Archive(Protocol):
    """The archived part of a timeline, read on first use."""

    def instants(self, since: InstantTime = BEFORE_ALL) -> tuple[Instant, ...]:
        """Completed instants whose later time is `since` or after, oldest first."""

    def reopened(self) -> Archive:
        """The archive as it is now."""

    def completion_time_of(self, requested_time: InstantTime) -> CompletionTime | None:
        """When an archived write completed; None where the archive does not record it."""

    def completed_content(self, instant: Instant) -> object | None:
        """The content of a completed instant, a CommitMetadata or a Plan; None where the archive lacks it."""

    def holding(self, text: str) -> tuple[Instant, ...]:
        """Instants whose content may contain `text`, oldest first; none that does is missing."""

    def damages(self) -> Iterator[tuple[str, str]]:
        """The files that are missing or can't be read, each with the reason. Reads all of them to the end."""


@dataclass(frozen=True, slots=True)
class TimelineFiles:
    """What the listing of a timeline's folder shows beside the names of instants.

    `completed`: the completed file of each write; in layout 1 the write completed when that was modified.
    `properties`: the table's property file, None in layouts that keep the timeline in another folder. `folders` are the
    names of the folders in `.hoodie`, None in those layouts. `log_compactions` are the requested times of the log
    compactions, pending ones and those completed as delta commits. `moved`: the table may have another timeline by now.
    `rewritten`: a completed file is another one than an earlier listing showed under its name.
    `listed`: the files of all instants, by name, and `instants` what they show.
    """

    completed: Mapping[InstantTime, FileStatus] = field(default_factory=dict)
    properties: FileStatus | None = None
    latest_ms: int = 0
    folders: frozenset[str] | None = None
    log_compactions: frozenset[InstantTime] = frozenset()
    moved: bool = False
    rewritten: bool = field(default=False, compare=False)
    listed: Sequence[FileStatus] = ()
    instants: tuple[Instant, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        shown = (self.completed, self.properties, self.latest_ms, self.folders, self.log_compactions, self.moved)
        return TimelineFiles, shown  # what is listed serves the next listing, which another process seldom makes

    @property
    def properties_are_settled(self) -> bool:
        """Whether any later change of the property file shows in its time.

        Storage states times to the second or better, and better where a time is between two seconds. A file of this
        listing that is younger by more than that proves that such a change has another time.
        """
        if self.properties is None:
            return False
        modified = self.properties.modified_ms
        return self.latest_ms >= modified + (_SETTLED_MS if modified % 1000 == 0 else _FINELY_SETTLED_MS)


_NO_FILES: Final = TimelineFiles()
_FIRST_OF_CLOCKS: Final = "1"
"""What no time before begins with, in the order of names."""


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
        ordered: bool = False,
    ) -> None:
        self.instants = tuple(instants if ordered else sorted(instants, key=_ORDER))
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

    def _part(self, instants: Iterable[Instant]) -> Timeline:
        return Timeline(instants, self.layout, self.archive, active=self._active, ordered=True)

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        """The instants for which `keep` returns true."""
        return self._part(filter(keep, self.instants))

    def completed(self) -> Timeline:
        """Completed instants."""
        return self._part([instant for instant in self.instants if instant.state is State.COMPLETED])

    def pending(self) -> Timeline:
        """Requested and inflight instants."""
        return self._part([instant for instant in self.instants if instant.state is not State.COMPLETED])

    def pending_changes(self) -> Timeline:
        """Pending instants of actions that change files: no savepoints, which have the time of a completed commit, and
        no indexing."""
        return self.pending().filter(lambda instant: instant.action not in (Action.SAVEPOINT, Action.INDEXING))

    def data(self) -> Timeline:
        """Commits, delta commits and replace commits in any state (Hudi: the commits timeline)."""
        return self.of(Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)

    def until(self, time: InstantTime) -> Timeline:
        """Instants requested at `time` or before."""
        return self._part(self.instants[: bisect_right(self.instants, time, key=_REQUESTED)])

    def before(self, time: InstantTime) -> Timeline:
        """Instants requested before `time`."""
        return self._part(self.instants[: bisect_left(self.instants, time, key=_REQUESTED)])

    def after(self, time: InstantTime) -> Timeline:
        """Instants requested after `time`."""
        return self._part(self.instants[bisect_right(self.instants, time, key=_REQUESTED) :])

    def since(self, time: InstantTime) -> Timeline:
        """Instants requested at `time` or after."""
        return self._part(self.instants[bisect_left(self.instants, time, key=_REQUESTED) :])

    def of(self, *actions: Action) -> Timeline:
        """Instants of these actions."""
        # In a tuple members are found by identity: a set would call Python's code for the hash of each.
        return self._part([instant for instant in self.instants if instant.action in actions])

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
        others = [i for i in self.since(time).until(time) if i.action.completed_as is not action]
        instants = (*self.before(time), *sorted([*others, done], key=_ORDER), *self.after(time))
        return Timeline(instants, self.layout, self.archive, files=self.files, ordered=True)

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
    def latest_time(self) -> InstantTime:
        """The last time of all at which an instant was requested or completed; before all of an empty timeline."""
        return max((instant.latest_time for instant in self.instants), default=BEFORE_ALL)

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

    def completed_write(self, time: InstantTime) -> Instant | None:
        """The completed write of the active timeline that was requested at `time`."""
        return self._active._completed_writes.get(time)

    def completion_time_of(self, time: InstantTime) -> CompletionTime | None:
        """When the write requested at `time` completed; None while it is pending, and in layout 1.

        For an archived write that the history lacks, it is the requested time (format guide 10.3).
        """
        if not self.layout.has_completion_times:
            return None
        active = self.completed_write(time)
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
    storage: Storage,
    layout: TimelineLayout,
    zone: TimelineZone,
    archive: Archive | None = None,
    known: Timeline | None = None,
) -> Timeline:
    """The active timeline by one listing of its folder; no instant file is opened.

    `known` is an earlier timeline of the table. What its files showed is not found out again, but for instants of which
    a file has been created, deleted or become another one since, and all after them. Times of a clock are taken once,
    so that under its name a file never changes. Those of bootstraps are fixed: after one that was undone, or whose
    table was dropped, the next one has files of the same names.
    """
    before = known.files if known is not None and known.layout == layout else _NO_FILES
    begin = len(layout.folder) + 1
    first = bisect_left(before.listed, _FIRST_OF_CLOCKS, key=lambda file: file.path[begin:])
    listed = storage.list_folder(layout.folder, known=before.listed[first:])
    files: list[FileStatus] = []
    others: list[FileStatus] = []
    for file in listed.files:  # names of instants begin with a digit
        (files if "0" <= file.path[begin] <= "9" else others).append(file)
    since = _first_change(before.listed, files, begin)
    same = bisect_left(before.instants, since, key=_REQUESTED)
    completed = dict(before.completed)
    for instant in before.instants[same:]:
        completed.pop(instant.requested_time, None)
    log_compactions = {time for time in before.log_compactions if time.is_before(since)}
    furthest: dict[tuple[str, str], tuple[State, NamedInstant, FileStatus]] = {}
    for file in files[bisect_left(files, str(since), key=lambda file: file.path[begin:]) :]:
        named = layout.parse_name(file.path[begin:])
        if named is None:
            continue
        requested, _, (action, state) = named
        if action is Action.LOG_COMPACTION:
            log_compactions.add(InstantTime(requested))
        # A compaction is requested under another action than it completes with: both are one instant.
        key = requested, _COMPLETED_AS[action]
        found = furthest.get(key)
        if found is None or found[0].rank < state.rank:
            furthest[key] = state, named, file
    changed: list[Instant] = []
    for state, named, file in furthest.values():
        instant = instant_of(named)
        if instant.requested_time.is_before(since):
            continue  # a longer time begins with it, and the names of the two mingle
        if state is State.COMPLETED:
            if instant.action in DATA_ACTIONS:
                completed[instant.requested_time] = file
            if layout.has_completion_times and instant.completion_time is None:
                # Files of layout 1 that were moved as they were.
                moment = time_of_modification(file.modified_ms, zone)
                instant = replace(instant, completion_time=moment, by_modification=True)
        changed.append(instant)
    facts = TimelineFiles(
        completed,
        properties=next((file for file in others if file.path == PROPERTIES_PATH), None),
        latest_ms=max((file.modified_ms for file in listed.files), default=0),
        folders=frozenset(listed.folders) if layout.folder == META_FOLDER else None,
        log_compactions=frozenset(log_compactions),
        moved=any(file.name == MOVED for file in others),
        rewritten=any(_is_another(before.completed, completed, instant.requested_time) for instant in changed),
        listed=files,
        instants=(*before.instants[:same], *sorted(changed, key=_ORDER)),
    )
    return Timeline(facts.instants, layout, archive, files=facts, ordered=True)


def _is_another(
    before: Mapping[InstantTime, FileStatus], now: Mapping[InstantTime, FileStatus], time: InstantTime
) -> bool:
    one, other = before.get(time), now.get(time)
    return one is not None and other is not None and one.path == other.path and one != other


def _first_change(before: Sequence[FileStatus], now: Sequence[FileStatus], begin: int) -> InstantTime:
    """The first requested time of which two listings have other files. `begin`: where names begin in their paths."""
    pairs = enumerate(zip(before, now, strict=False))
    differ = (place for place, (one, other) in pairs if one is not other and one != other)
    place = next(differ, min(len(before), len(now)))
    names = (file.path[begin:] for file in (*before[place:], *now[place:]))
    return InstantTime(min((name.partition(".")[0].partition("_")[0] for name in names), default=AFTER_ALL))


def completion_times(storage: Storage, timeline: Timeline, zone: TimelineZone) -> dict[InstantTime, CompletionTime]:
    """When each completed write of the active timeline completed, by its requested time.

    Layout 1 does not record it: the modification time of the completed file is used, from the listing of the timeline.
    """
    layout = timeline.layout
    if layout.has_completion_times:
        completed = timeline.data().completed()
        return {each.requested_time: each.completion_time for each in completed if each.completion_time is not None}
    listed = {time: file.modified_ms for time, file in timeline.files.completed.items()}
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
