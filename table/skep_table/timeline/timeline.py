"""The timeline of a table at one moment: its instants in order, and what readers and writers ask of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import Final, Protocol

from skep_table.names import join
from skep_table.storage import Storage
from skep_table.table_config import TableConfig, TimelineZone
from skep_table.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_table.timeline.layout import Layout, layout_of

WRITE_ACTIONS: Final = DATA_ACTIONS | {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING}
"""Actions that write data files, in any state."""


class Archive(Protocol):
    """The archived part of a timeline, read when asked for."""

    def instants(self) -> tuple[Instant, ...]:
        """Completed instants, oldest first."""
        ...

    def completion_time_of(self, requested_time: str) -> str | None: ...

    def completed_content(self, instant: Instant) -> object | None:
        """What the archive keeps of a completed instant: a CommitMetadata or a plan's class; None when not there."""
        ...

    def holding(self, text: str) -> tuple[Instant, ...]:
        """Instants, oldest first, among which are all whose completed file held `text`."""
        ...


class Timeline:
    """Instants of the active timeline, each in its furthest state, by requested time. Immutable.

    What `completed`, `pending`, `data` and `filter` answer is a timeline of fewer instants; it still knows where the
    active timeline starts and what is archived.
    """

    def __init__(
        self,
        instants: Iterable[Instant],
        layout: Layout,
        archive: Archive | None = None,
        *,
        active: Timeline | None = None,
    ) -> None:
        self.instants = tuple(sorted(instants, key=lambda instant: instant.sort_key))
        self.layout = layout
        self.archive = archive
        self._active = active or self

    def __repr__(self) -> str:
        return f"Timeline({len(self.instants)} instants, last {self.last()})"

    def __len__(self) -> int:
        return len(self.instants)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        return Timeline(filter(keep, self.instants), self.layout, self.archive, active=self._active)

    def completed(self) -> Timeline:
        return self.filter(lambda instant: instant.is_completed)

    def pending(self) -> Timeline:
        """Requested and inflight instants."""
        return self.filter(lambda instant: not instant.is_completed)

    def data(self) -> Timeline:
        """Hudi's commits timeline: commits, delta commits and replace commits, whatever their state."""
        return self.filter(lambda instant: instant.action in DATA_ACTIONS)

    def until(self, time: str) -> Timeline:
        """Instants requested at `time` or before."""
        return self.filter(lambda instant: instant.requested_time <= time)

    def of(self, *actions: Action) -> Timeline:
        return self.filter(lambda instant: instant.action in actions)

    def last(self) -> Instant | None:
        return self.instants[-1] if self.instants else None

    @property
    def first_time(self) -> str | None:
        """Where the active timeline starts: whatever was written before it is committed (format guide 10.1).

        That is its first write, pending ones too, not counting commits that are only kept for their savepoint.
        """
        return self._active._start

    @functools.cached_property
    def _start(self) -> str | None:
        savepoints = {instant.requested_time for instant in self.instants if instant.action is Action.SAVEPOINT}
        writes = [instant.requested_time for instant in self.instants if instant.action in WRITE_ACTIONS]
        return next((time for time in writes if time not in savepoints), writes[0] if writes else None)

    @functools.cached_property
    def _times(self) -> frozenset[str]:
        return frozenset(instant.requested_time for instant in self.instants)

    def contains(self, time: str) -> bool:
        """Whether an instant of this timeline was requested at `time`."""
        return time in self._times

    def is_archived(self, time: str) -> bool:
        """Whether `time` lies before the start of the active timeline."""
        return self.first_time is not None and time < self.first_time

    def is_completed_or_archived(self, time: str) -> bool:
        """Whether what a write of `time` left is committed."""
        return time in self._active._completed_writes or self.is_archived(time)

    @functools.cached_property
    def _completed_writes(self) -> dict[str, Instant]:
        return {
            instant.requested_time: instant
            for instant in self.instants
            if instant.is_completed and instant.action in DATA_ACTIONS
        }

    def completion_time_of(self, time: str) -> str | None:
        """When the write requested at `time` completed; None while it is pending, and in layout 1.

        Of archived writes the history says it; where that has been lost, the requested time stands in.
        """
        if not self.layout.has_completion_times:
            return None
        active = self._active._completed_writes.get(time)
        if active is not None:
            return active.completion_time
        if not self.is_archived(time):
            return None
        return (self.archive and self.archive.completion_time_of(time)) or time

    def archived(self) -> tuple[Instant, ...]:
        """The archived instants, oldest first: completed ones that are not in the active timeline any more."""
        if self.archive is None:
            return ()
        active = {(instant.requested_time, instant.action) for instant in self._active.instants}
        return tuple(i for i in self.archive.instants() if (i.requested_time, i.action) not in active)

    def archived_holding(self, text: str) -> tuple[Instant, ...]:
        """Archived instants, oldest first, among which are all whose completed file held `text`."""
        if self.archive is None:
            return ()
        return tuple(i for i in self.archive.holding(text) if not self._active.contains(i.requested_time))


def load_timeline(storage: Storage, config: TableConfig, archive: Archive | None = None, *, base: str = "") -> Timeline:
    """The active timeline by one listing of its folder; no instant file is opened.

    `base` is the folder of a table that lies within another's: the metadata table.
    """
    layout = layout_of(config)
    furthest: dict[tuple[str, Action], Instant] = {}
    for file in storage.list_prefix(join(base, layout.folder)):
        instant = layout.parse(file.name)
        if instant is None:
            continue
        if layout.has_completion_times and instant.is_completed and instant.completion_time is None:
            # A file in the manner of layout 1, as upgrades leave them.
            completed = format_instant_time(
                datetime.fromtimestamp(file.modified_ms / 1000, timezone.utc), config.timezone
            )
            instant = Instant(instant.requested_time, instant.action, instant.state, completed)
        # A compaction is requested under another name than it completes with: both are one instant.
        key = instant.requested_time, instant.action.completed_as
        known = furthest.get(key)
        if known is None or known.state < instant.state:
            furthest[key] = instant
    return Timeline(furthest.values(), layout, archive)


def format_instant_time(moment: datetime, zone: TimelineZone) -> str:
    """A moment as the 17 digits of an instant time in the table's time zone."""
    local = moment.astimezone(timezone.utc) if zone is TimelineZone.UTC else moment.astimezone()
    return f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}"
