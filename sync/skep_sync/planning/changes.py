"""The partitions that were written, or emptied, since the last sync, by the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Final, TypeVar

from skep_format.batching import pieces
from skep_format.clock import SYSTEM_CLOCK
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.runner import ThreadRunner
from skep_format.timeline.instant import Instant
from skep_format.timeline.timeline import completion_times, format_instant_time
from skep_table.table import HudiTable
from skep_table.view import FileView

T = TypeVar("T")
_PORTION: Final = 256  # partitions a task: a task for each of 100,000 would take more memory than what they find


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """Up to where an entry is synced: the latest requested time, and the latest completion time where it is known."""

    requested_time: InstantTime
    completion_time: CompletionTime | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a partition's latest slices."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """Partitions by path. `complete`: `live` are all partitions of the table, else those written since the last sync.

    `files` counts the files of live partitions (None: a partition has none); it may list storage.
    """

    complete: bool
    live: frozenset[str]
    emptied: frozenset[str]
    files: Callable[[Sequence[str]], Mapping[str, Files | None]]


@dataclass(frozen=True, slots=True)
class TimelineState:
    """The completed writes of a table's active timeline, each with its completion time."""

    table: HudiTable
    commits: tuple[tuple[Instant, CompletionTime | None], ...]

    @classmethod
    def of(cls, table: HudiTable) -> TimelineState:
        """The state of a snapshot of a table."""
        times = completion_times(table.storage, table.timeline, table.config.timezone)
        commits = table.timeline.data().completed()
        return cls(table, tuple((instant, times.get(instant.requested_time)) for instant in commits))

    @property
    def point(self) -> SyncPoint | None:
        """Where the table is now; None before its first commit."""
        if not self.commits:
            return None
        completions = [completion for _, completion in self.commits if completion is not None]
        return SyncPoint(max(i.requested_time for i, _ in self.commits), max(completions, default=None))

    def knows(self, point: SyncPoint) -> bool:
        """Whether the active timeline holds the write that `point` names."""
        return any(instant.requested_time == point.requested_time for instant, _ in self.commits)

    def after(self, point: SyncPoint) -> list[Instant]:
        """The writes that an entry synced up to `point` has not seen; also those that began earlier and ended later."""
        return [
            instant
            for instant, completion in self.commits
            if instant.requested_time.is_after(point.requested_time)
            or (
                completion is not None
                and point.completion_time is not None
                and completion.is_after(point.completion_time)
            )
        ]

    def beside(self, point: SyncPoint, within_seconds: float | None = None) -> list[Instant]:
        """The earlier writes that completed in the very second of `point`, on storage with times in seconds: an entry
        synced up to there may include them or not. `within_seconds`: only where that is no longer ago."""
        second = point.completion_time
        if second is None or not second.endswith("000"):
            return []
        if within_seconds is not None:
            then = SYSTEM_CLOCK.now() - timedelta(seconds=within_seconds)
            if second.is_before(CompletionTime(format_instant_time(then, self.table.config.timezone))):
                return []
        return [
            i
            for i, completion in self.commits
            if completion == second and i.requested_time.is_before(point.requested_time)
        ]

    def changes_since(self, point: SyncPoint | None) -> PartitionChanges:
        """What happened after `point`: everything, when there is none or the timeline no longer knows it."""
        if point is None or not self.knows(point):
            return _all(self.table)
        return _of_instants(self.table, [*self.beside(point), *self.after(point)])


def _of_instants(table: HudiTable, instants: list[Instant]) -> PartitionChanges:
    written: dict[str, Files] = {}
    replaced: set[str] = set()
    for metadata in map(table.commit_metadata, instants):
        for path, stats in metadata.partition_to_write_stats.items():
            before = written.get(path, Files(0, 0))
            written[path] = Files(
                before.count + len({stat.path for stat in stats}),
                before.size_bytes + sum(stat.file_size_in_bytes for stat in stats),
            )
        replaced |= set(metadata.partition_to_replace_file_ids or ())
    listed = _listed(table.view(), sorted(replaced)) if replaced else {}
    emptied = frozenset(path for path, files in listed.items() if files is None)
    # A partition that is new to the metastore was, as a rule, made by these instants: their commit metadata is enough.
    known = {**written, **listed}
    live = frozenset(known) - emptied
    return PartitionChanges(False, live, emptied, lambda paths: {path: known[path] for path in paths})


def _all(table: HudiTable) -> PartitionChanges:
    view = table.view()
    paths = frozenset(view.partitions())
    replaced = _listed(view, sorted({path for path, _ in view.states.replaced} & paths))
    emptied = frozenset(path for path, files in replaced.items() if files is None)
    return PartitionChanges(True, paths - emptied, emptied, lambda wanted: _listed(view, wanted))


def _listed(view: FileView, paths: Sequence[str]) -> dict[str, Files | None]:
    """The files of these partitions by the file-system view."""

    def files(path: str) -> Files | None:
        slices = view.slices(path)
        if not slices:
            return None
        sizes = [
            *(slice_.base_file.size_bytes for slice_ in slices if slice_.base_file is not None),
            *(log.size_bytes for slice_ in slices for log in slice_.log_files),
        ]
        return Files(len(sizes), sum(sizes))

    if not paths:
        return {}
    return dict(zip(paths, each_path(files, paths), strict=True))


def each_path(function: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    """On threads, in portions."""
    found = ThreadRunner().map(lambda portion: [function(path) for path in portion], pieces(paths, _PORTION))
    return list(chain.from_iterable(found))
