"""Clean: deletes the files of old slices that nothing within the retention reads any more.

The timeline is changed under the lock; deleting needs none. A clean whose executor died is finished from its plan by
the next executor, and two executors of one plan delete the same files.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from skep_format.errors import AlreadyExistsError, FormatError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.metafile import METAFILES
from skep_format.names import LogFileName, join
from skep_format.options import Options
from skep_format.storage import FileStatus, Storage
from skep_format.table_config import TableConfig, TimelineZone, load_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
)
from skep_format.timeline.timeline import WRITE_ACTIONS, Timeline, format_instant_time
from skep_format.timeline.write import delete_pending, transition_to_inflight
from skep_format.versions import format_of
from skep_table.commit.concurrency.changes import planned_slices
from skep_table.commit.instants import complete_once, request_plan
from skep_table.commit.options import Concurrency, FailedWritesPolicy
from skep_table.commit.parts.metadata_table import record_in_metadata_table
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_writable, prepared, take_lock_over
from skep_table.metadata_write.own import has_metadata_table, with_building
from skep_table.metadata_write.updates import updates_of_clean
from skep_table.services.execution import execute_each, refuse_while_active
from skep_table.services.options import (
    CLEAN_COMMITS,
    CLEAN_POLICY,
    COMMITS_RETAINED,
    FILE_VERSIONS_RETAINED,
    HOURS_RETAINED,
    INCREMENTAL_CLEAN,
    KEEP_MAX_COMMITS,
    KEEP_MIN_COMMITS,
    CleanPolicy,
)
from skep_table.table import HudiTable
from skep_table.view import FileGroup, FileSlice, FileView
from skep_table.view.slicing import file_groups

log = logging.getLogger("skep.clean")
SAVEPOINTS: Final = "savepointed_timestamps"
"""Hudi's key in the plan's extra metadata: the savepoints there were when it was made."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A policy with its number: commits, hours, or versions."""

    policy: CleanPolicy
    number: int

    @classmethod
    def of(cls, options: Options) -> Retention:
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
    kept = frozenset(protected)
    stale = partial(_stale, retention, earliest.requested_time if earliest else BEFORE_ALL)
    going = [slice_ for group in groups for slice_ in stale(group) if kept.isdisjoint(slice_.file_names)]
    versions = {(slice_.file_id, slice_.base_instant) for slice_ in going}
    paths = {file.path for slice_ in going for file in slice_.files}
    for file in files:  # logs of change data, which no slice has, by the file and instant that they came with
        name = LogFileName.parse(file.name) if file.name.endswith(".cdc") else None
        if name is not None and (name.file_id, name.instant_time) in versions and file.name not in kept:
            paths.add(file.path)
    return sorted(paths)


def _stale(retention: Retention, bound: InstantTime, group: FileGroup) -> Iterable[FileSlice]:
    """What nothing reads any more as of `bound`, or beyond the number of versions."""
    if group.replaced_by is not None:
        # Hudi keeps it whole until no retained commit reads it.
        return group.slices if retention.is_by_versions or group.replaced_by < bound else ()
    if retention.is_by_versions:
        return _unless_compacted(group, group.slices[retention.number :])
    # The newest slice is read now, the newest one before the bound is read as of the bound.
    before = [slice_ for slice_ in group.slices[1:] if slice_.base_instant.is_before(bound)]
    if group.slices and group.slices[0].base_instant.is_at_or_after(bound):
        before = before[1:]
    return _unless_compacted(group, before)


def _unless_compacted(group: FileGroup, slices: Iterable[FileSlice]) -> Iterator[FileSlice]:
    """While a compaction is pending, its input is the slice to read: the newest that is not the compaction's own."""
    wanted = None
    if group.pending_compaction is not None:
        wanted = next((s for s in group.slices if s.base_instant != group.pending_compaction), None)
    return (slice_ for slice_ in slices if slice_ is not wanted)


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


@dataclass(frozen=True, slots=True)
class CleanResult:
    """A completed clean. `deleted` are paths relative to the table."""

    instant: Instant
    metadata: CleanMetadata
    deleted: tuple[str, ...]


def clean(table: HudiTable) -> list[CleanResult]:
    """Finishes pending cleans, then plans one and executes it. Returns those that completed."""
    done: list[CleanResult] = []
    with table.context.locked():
        table = prepared(table)
        pending = table.timeline.pending().of(Action.CLEAN).instants
        planned = None if pending else _schedule(table)
    if pending:
        done, planned = execute_each(table, pending, execute_clean), schedule_clean(table)
    return done + execute_each(table, [planned], execute_clean)


def schedule_clean(table: HudiTable) -> Instant | None:
    """Writes a plan onto the timeline; None when there is nothing to delete."""
    with table.context.locked():
        return _schedule(prepared(table))


def _schedule(table: HudiTable) -> Instant | None:
    """The same with the lock held, on a table that is prepared."""
    if Concurrency.of(table.options).failed_writes is FailedWritesPolicy.LAZY:
        table = roll_back_failed(table)
    plan = plan_clean(table)
    if not plan.file_paths_to_be_deleted_per_partition and not _moves_on(table, plan, table.options):
        return None
    table.context.lock.ensure_held()
    return request_plan(table, Action.CLEAN, plan)


def is_clean_due(table: HudiTable) -> bool:
    """Whether a clean may find something: enough commits since the last one, and one that is to be retained no more."""
    timeline, retention = table.timeline, Retention.of(table.options)
    if timeline.pending().of(Action.CLEAN):
        return True
    last = timeline.completed().of(Action.CLEAN).last()
    since = timeline.data().completed() if last is None else timeline.data().completed().after(last.requested_time)
    if len(since) < table.options.value(CLEAN_COMMITS):
        return False
    now, zone = table.context.clock.now(), table.config.timezone
    return retention.is_by_versions or earliest_to_retain(timeline, retention, now, zone) is not None


def plan_clean(table: HudiTable) -> CleanerPlan:
    """The plan of a clean of this snapshot. Changes nothing."""
    retention = Retention.of(table.options)
    now, timeline = table.context.clock.now(), table.timeline
    earliest = earliest_to_retain(timeline, retention, now, table.config.timezone)
    last = timeline.data().completed().last()
    savepoints = ",".join(sorted(table.savepoints()))
    found: dict[str, tuple[CleanFileInfo, ...]] = {}
    if earliest is not None or retention.is_by_versions:
        view, protected = table.view(metadata=False), protected_files(table)

        def to_delete(partition: str) -> tuple[CleanFileInfo, ...]:
            files = view.listing.files(partition)
            groups = file_groups(partition, files, view.states)
            paths = files_to_delete(groups, files, retention, earliest, protected.get(partition, ()))
            uris = map(table.storage.uri, paths)
            return tuple(CleanFileInfo(file_path=uri, is_bootstrap_base_file=False) for uri in uris)

        partitions = _partitions(table, view, earliest, table.options)
        found = dict(zip(partitions, table.context.threads.map(to_delete, partitions), strict=True))
    retained = None
    if earliest is not None:
        time, action, state = earliest.requested_time, earliest.action.value, earliest.state.name
        retained = ActionInstant(timestamp=time, action=action, state=state)
    return CleanerPlan(
        earliest_instant_to_retain=retained,
        last_completed_commit_timestamp=last.requested_time if last else BEFORE_ALL,
        policy=retention.policy.value,
        files_to_be_deleted_per_partition={},
        file_paths_to_be_deleted_per_partition={partition: files for partition, files in found.items() if files},
        partitions_to_be_deleted=(),
        extra_metadata={SAVEPOINTS: savepoints} if savepoints else {},
    )


def _moves_on(table: HudiTable, plan: CleanerPlan, options: Options) -> bool:
    """Whether a clean that deletes nothing is worth its instant: the next one need not list all partitions again, or
    those of many commits, and these commits can be archived."""
    earliest = plan.earliest_instant_to_retain
    if earliest is None or not options.value(INCREMENTAL_CLEAN):
        return False
    last = last_clean(table)
    since = last.earliest_commit_to_retain if last else BEFORE_ALL
    passed = table.timeline.data().completed().since(since).before(earliest.timestamp)
    return len(passed) >= options.value(KEEP_MAX_COMMITS) - options.value(KEEP_MIN_COMMITS)


def _partitions(table: HudiTable, view: FileView, earliest: Instant | None, options: Options) -> list[str]:
    """The partitions to list: those touched since the last clean, where the timeline shows it; else all."""
    last, timeline = last_clean(table), table.timeline
    if earliest is None or not options.value(INCREMENTAL_CLEAN):
        return view.partitions()
    if last is None:
        since, kept_before, failed = BEFORE_ALL, set[InstantTime](), set[str]()
        archive = table.storage.list_prefix(table.layout.archive_folder)
        if any(file.path != table.layout.placeholder for file in archive):  # archived commits may have left files
            return view.partitions()
    else:
        since = last.earliest_commit_to_retain
        kept_before = {InstantTime(time) for time in (last.extra_metadata or {}).get(SAVEPOINTS, "").split(",") if time}
        failed = {name for name, cleaned in last.partition_metadata.items() if cleaned.failed_delete_files}
        if not since or timeline.is_archived(since):
            return view.partitions()
    if not kept_before <= set(table.savepoints()):
        return view.partitions()
    # What left the retention since was superseded by a commit between the two bounds.
    between = timeline.data().completed().since(since).before(earliest.requested_time)
    touched = {partition for instant in between for partition in table.commit_partitions(instant)}
    return sorted(touched | failed)


def execute_pending_cleans(table: HudiTable, only: Instant | None = None) -> list[CleanResult]:
    """Executes the pending cleans (or `only` one of them), also those whose executor died."""
    with table.context.locked():
        table = prepared(table)
    pending = [only] if only is not None else table.timeline.pending().of(Action.CLEAN).instants
    return execute_each(table, pending, execute_clean)


def finish_cleans(table: HudiTable) -> list[CleanResult]:
    """As `execute_pending_cleans`, with the lock held, on a table that is prepared: the files that a plan names are
    deleted after it."""
    return execute_each(table, table.timeline.pending().of(Action.CLEAN), partial(execute_clean, exclusive=nullcontext))


def execute_clean(
    table: HudiTable, instant: Instant, exclusive: Callable[[], AbstractContextManager[object]] | None = None
) -> CleanResult | None:
    """Executes a planned clean; `exclusive` holds the lock while the timeline changes, where nobody holds it.

    None when its plan is unreadable (it is rolled back), another executor was faster, or the table has another version
    by now: the plan went with the timeline.
    """
    with table.context.events.step("clean", instant=instant.requested_time) as found:
        done = _carry_out(table, instant, exclusive or table.context.locked)
        if done is not None:
            found["files"] = done.metadata.total_files_deleted
        return done


def _carry_out(
    table: HudiTable, instant: Instant, exclusive: Callable[[], AbstractContextManager[object]]
) -> CleanResult | None:
    start = table.context.clock.monotonic()
    with exclusive():
        if _settings_now(table) is None:
            return None
        plan = table.requested_plan(CleanerPlan, instant)
        if plan is None:
            delete_pending(table, instant)
            return None
        if instant.state is State.REQUESTED:
            with contextlib.suppress(AlreadyExistsError):
                transition_to_inflight(table, instant, plan if table.layout.repeats_clean_plan else None)
    planned = {path: [join(path, name) for name in names] for path, names in plan.file_names.items()}
    # A missing file was deleted by an executor before this one.
    table.storage.delete_many([path for listed in planned.values() for path in listed])
    emptied = {name for name in plan.partitions_to_be_deleted or () if _delete_if_empty(table.storage, name)}
    metadata = _metadata(instant, plan, planned, emptied, table.context.clock.monotonic() - start)
    try:
        with exclusive():
            config = _settings_now(table)
            if config is None:
                return None
            time, fresh = instant.requested_time, table.reload() if has_metadata_table(config) else None
            if fresh is not None and fresh.timeline.pending().of(Action.CLEAN).contains(time):
                # no other executor has completed the clean
                record_in_metadata_table(fresh, time, updates_of_clean(with_building(fresh), instant, metadata))
            done = complete_once(table, instant, metadata)
    except AlreadyExistsError:
        return None
    log.info("table %s: %s cleaned %d files", table.config.name, instant.requested_time, metadata.total_files_deleted)
    return CleanResult(done, metadata, tuple(path for paths in planned.values() for path in paths))


def _settings_now(table: HudiTable) -> TableConfig | None:
    """The table's settings; None where the snapshot's timeline is not that of the table any more."""
    now = load_table_config(table.storage)
    if format_of(now) is table.format:
        return now
    log.info("table %s has version %s by now: this clean is left to others", now.name, now.version)
    return None


def _delete_if_empty(storage: Storage, partition: str) -> bool:
    if partition == "" or {file.name for file in storage.list_prefix(partition, recursive=True)} - METAFILES:
        return False
    storage.delete_folder(partition)
    return True


def _metadata(
    instant: Instant, plan: CleanerPlan, planned: Mapping[str, list[str]], emptied: Collection[str], seconds: float
) -> CleanMetadata:
    earliest, partitions = plan.earliest_instant_to_retain, {}
    for partition in sorted({*planned, *emptied}):
        names = tuple(path.rpartition("/")[2] for path in planned.get(partition, ()))
        partitions[partition] = CleanPartitionMetadata(
            partition_path=partition,
            policy=plan.policy,
            delete_path_patterns=names,
            success_delete_files=names,
            is_partition_deleted=partition in emptied,
        )
    return CleanMetadata(
        start_clean_time=instant.requested_time,
        time_taken_in_millis=int(seconds * 1000),
        total_files_deleted=sum(map(len, planned.values())),
        earliest_commit_to_retain=earliest.timestamp if earliest else BEFORE_ALL,
        last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
        partition_metadata=partitions,
        bootstrap_partition_metadata={},
        extra_metadata=plan.extra_metadata or {},
    )


@dataclass(frozen=True, slots=True)
class UnreadableClean:
    """A pending clean, why its plan can't be read, and whether it was deleted."""

    instant: Instant
    problem: str
    deleted: bool = False


def delete_unreadable_cleans(table: HudiTable, *, plan: bool = False) -> list[UnreadableClean]:
    """Deletes the pending cleans whose plan can't be read, from the timeline only.

    A clean changes no row. An inflight one may have deleted files that its metadata table still lists: a check
    (`skep fsck --metadata`) names these. CommitConflictError while its executor may be active.
    """
    if plan:
        return list(_unreadable(table.reload()))
    with table.context.locked():
        table = take_lock_over(table)
        check_writable(table.config, table.storage.root)
        found = list(_unreadable(table))
        for each in found:
            refuse_while_active(table, each.instant)
            table.context.lock.ensure_held()
            delete_pending(table, each.instant)
            name, time = table.config.name, each.instant.requested_time
            log.warning("table %s: clean %s is deleted: %s", name, time, each.problem)
    return [replace(each, deleted=True) for each in found]


def _unreadable(table: HudiTable) -> Iterator[UnreadableClean]:
    for instant in table.timeline.pending().of(Action.CLEAN):
        try:
            plan = table.requested_plan(CleanerPlan, instant)
        except FormatError as error:
            yield UnreadableClean(instant, error.message)
        else:
            if plan is None:
                yield UnreadableClean(instant, "its plan is empty or missing")
