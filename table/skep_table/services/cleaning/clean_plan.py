"""Which files a clean may delete, and which none may: those of savepoints and pending plans (format guide 2.8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from skep_format.instant_time import InstantTime
from skep_format.names import LogFileName
from skep_format.options import Options
from skep_format.storage import FileStatus
from skep_format.table_config import TimelineZone
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanMetadata
from skep_format.timeline.timeline import WRITE_ACTIONS, Timeline, format_instant_time
from skep_table.commit.concurrency.changes import planned_slices
from skep_table.services.options import (
    CLEAN_POLICY,
    COMMITS_RETAINED,
    FILE_VERSIONS_RETAINED,
    HOURS_RETAINED,
    CleanPolicy,
)
from skep_table.table import HudiTable
from skep_table.view import FileGroup, FileSlice


@dataclass(frozen=True, slots=True)
class Retention:
    """A policy with its number: commits, hours, or versions."""

    policy: CleanPolicy
    number: int

    @classmethod
    def of(cls, options: Options) -> Retention:
        """The policy that the options name."""
        policy = options.value(CLEAN_POLICY)
        number = {
            CleanPolicy.KEEP_LATEST_COMMITS: COMMITS_RETAINED,
            CleanPolicy.KEEP_LATEST_BY_HOURS: HOURS_RETAINED,
            CleanPolicy.KEEP_LATEST_FILE_VERSIONS: FILE_VERSIONS_RETAINED,
        }[policy]
        return cls(policy, options.value(number))

    @property
    def is_by_versions(self) -> bool:
        """Whether it counts file versions, not commits or hours."""
        return self.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS


def earliest_to_retain(timeline: Timeline, retention: Retention, now: datetime, zone: TimelineZone) -> Instant | None:
    """The oldest commit as of which the table stays readable; None when the policy has none, or keeps all there are.

    Never later than a pending write: what that is based on is still wanted.
    """
    commits = timeline.data().completed().instants
    if retention.policy is CleanPolicy.KEEP_LATEST_COMMITS:
        chosen = commits[-retention.number] if len(commits) > retention.number else None
    elif retention.policy is CleanPolicy.KEEP_LATEST_BY_HOURS:
        bound = format_instant_time(now - timedelta(hours=retention.number), zone)
        chosen = next((commit for commit in commits if commit.requested_time.is_at_or_after(bound)), None)
    else:
        chosen = None
    pending = min((i.requested_time for i in timeline.pending() if i.action in WRITE_ACTIONS), default=None)
    if chosen is None or pending is None or chosen.requested_time.is_before(pending):
        return chosen
    return next((commit for commit in reversed(commits) if commit.requested_time.is_before(pending)), None)


def files_to_delete(
    groups: Iterable[FileGroup],
    files: Collection[FileStatus],
    retention: Retention,
    earliest: Instant | None,
    protected: Collection[str],
) -> list[str]:
    """Paths of one partition, sorted. `groups` are all its file groups, replaced ones too; `files` all its files.

    `protected` are names; a slice goes or stays as a whole.
    """
    if earliest is None and not retention.is_by_versions:
        return []
    stale = _by_versions(retention.number) if retention.is_by_versions else _by_time(earliest)
    kept = frozenset(protected)
    going = [slice_ for group in groups for slice_ in stale(group) if kept.isdisjoint(slice_.file_names)]
    changes = _change_logs(files)
    paths = {path for slice_ in going for path in _paths(slice_)}
    paths.update(
        path
        for slice_ in going
        for path in changes.get((slice_.file_id, slice_.base_instant), ())
        if path.rpartition("/")[2] not in protected
    )
    return sorted(paths)


_Stale = Callable[[FileGroup], Iterator[FileSlice]]


def _by_time(earliest: Instant | None) -> _Stale:
    assert earliest is not None
    bound = earliest.requested_time

    def stale(group: FileGroup) -> Iterator[FileSlice]:
        if group.replaced_by is not None:
            # Hudi keeps it whole until no retained commit reads it.
            yield from group.slices if group.replaced_by < bound else ()
            return
        # The newest slice is read now, the newest one before the bound is read as of the bound.
        before = [slice_ for slice_ in group.slices[1:] if slice_.base_instant.is_before(bound)]
        if group.slices and group.slices[0].base_instant.is_at_or_after(bound):
            before = before[1:]
        yield from _unless_compacted(group, before)

    return stale


def _by_versions(number: int) -> _Stale:
    def stale(group: FileGroup) -> Iterator[FileSlice]:
        if group.replaced_by is not None:
            yield from group.slices
        else:
            yield from _unless_compacted(group, islice(group.slices, number, None))

    return stale


def _unless_compacted(group: FileGroup, slices: Iterable[FileSlice]) -> Iterator[FileSlice]:
    """While a compaction is pending, its input is the slice to read: the newest that is not the compaction's own."""
    wanted = None
    if group.pending_compaction is not None:
        wanted = next((s for s in group.slices if s.base_instant != group.pending_compaction), None)
    return (slice_ for slice_ in slices if slice_ is not wanted)


def _paths(slice_: FileSlice) -> Iterator[str]:
    if slice_.base_file is not None:
        yield slice_.base_file.path
    yield from (log.path for log in slice_.log_files)


def _change_logs(files: Collection[FileStatus]) -> dict[tuple[str, InstantTime], list[str]]:
    """Logs of change data, which no slice has, by the file and instant that they came with."""
    found: dict[tuple[str, InstantTime], list[str]] = {}
    for file in files:
        name = LogFileName.parse(file.name) if file.name.endswith(".cdc") else None
        if name is not None:
            found.setdefault((name.file_id, name.instant_time), []).append(file.path)
    return found


def last_clean(table: HudiTable) -> CleanMetadata | None:
    """The metadata of the last completed clean of the active timeline."""
    last = table.timeline.completed().of(Action.CLEAN).last()
    metadata = table.plan(last) if last is not None else None
    return metadata if isinstance(metadata, CleanMetadata) else None


def protected_files(table: HudiTable) -> Mapping[str, frozenset[str]]:
    """Names of files, by partition path, that savepoints keep or that a pending compaction or clustering reads."""
    found: dict[str, set[str]] = defaultdict(set)
    for savepoint in table.savepoints().values():
        for partition, kept in savepoint.partition_metadata.items():
            found[partition].update(kept.savepoint_data_file)
    for instant in table.timeline.pending():
        for slice_ in planned_slices(table, instant):
            found[slice_.group.partition_path].update(slice_.file_names)
    return {partition: frozenset(names) for partition, names in found.items()}
