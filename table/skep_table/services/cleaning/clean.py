"""Clean: deletes the files of old slices that nothing within the retention reads any more.

The timeline is changed under the lock; deleting needs none. A clean whose executor died is finished from its plan by
the next executor, and two executors of one plan delete the same files.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from skep_format.errors import AlreadyExistsError, FormatError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.metafile import METAFILES
from skep_format.names import join
from skep_format.options import Options
from skep_format.storage import Storage
from skep_format.table_config import TableConfig, load_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
)
from skep_format.timeline.write import delete_pending, transition_to_inflight
from skep_format.versions import format_of
from skep_table.commit.completed_once import complete_once
from skep_table.commit.instants import request_plan
from skep_table.commit.options import Concurrency, FailedWritesPolicy
from skep_table.commit.parts.metadata_records import record_in_metadata_table
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_writable, prepared, take_lock_over
from skep_table.metadata_write import has_metadata_table, updates_of_clean, with_building
from skep_table.services.cleaning.clean_plan import (
    Retention,
    earliest_to_retain,
    files_to_delete,
    last_clean,
    protected_files,
)
from skep_table.services.execution import execute_each, refuse_while_active
from skep_table.services.options import CLEAN_COMMITS, INCREMENTAL_CLEAN, KEEP_MAX_COMMITS, KEEP_MIN_COMMITS
from skep_table.table import HudiTable
from skep_table.view import FileView
from skep_table.view.slicing import file_groups

SAVEPOINTS: Final = "savepointed_timestamps"
"""Hudi's key in the plan's extra metadata: the savepoints there were when it was made."""

log = logging.getLogger("skep.clean")


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
    found: dict[str, list[str]] = {}
    if earliest is not None or retention.is_by_versions:
        view = table.view(metadata=False)
        protected = protected_files(table)
        partitions = _partitions(table, view, earliest, table.options)
        delete = partial(_files_of_partition, view, retention, earliest, protected)
        found = dict(zip(partitions, table.context.threads.map(delete, partitions), strict=True))
    return CleanerPlan(
        earliest_instant_to_retain=_action_instant(earliest) if earliest else None,
        last_completed_commit_timestamp=last.requested_time if last else BEFORE_ALL,
        policy=retention.policy.value,
        files_to_be_deleted_per_partition={},
        file_paths_to_be_deleted_per_partition={
            partition: tuple(
                CleanFileInfo(file_path=table.storage.uri(path), is_bootstrap_base_file=False) for path in paths
            )
            for partition, paths in found.items()
            if paths
        },
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


def _action_instant(instant: Instant) -> ActionInstant:
    return ActionInstant(timestamp=instant.requested_time, action=instant.action.value, state=instant.state.name)


def _files_of_partition(
    view: FileView,
    retention: Retention,
    earliest: Instant | None,
    protected: Mapping[str, Collection[str]],
    partition: str,
) -> list[str]:
    files = view.listing.files(partition)
    groups = file_groups(partition, files, view.states)
    return files_to_delete(groups, files, retention, earliest, protected.get(partition, ()))


def _partitions(table: HudiTable, view: FileView, earliest: Instant | None, options: Options) -> list[str]:
    """The partitions to list: those touched since the last clean, where the timeline shows it; else all."""
    last, timeline = last_clean(table), table.timeline
    if earliest is None or not options.value(INCREMENTAL_CLEAN):
        return view.partitions()
    if last is None:
        since, kept_before, failed = BEFORE_ALL, set[InstantTime](), set[str]()
        if _has_older_files(table):
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


def _has_older_files(table: HudiTable) -> bool:
    """Whether commits before the active timeline may have left files."""
    archive = table.storage.list_prefix(table.layout.archive_folder)
    return any(file.path != table.layout.placeholder for file in archive)


def execute_pending_cleans(table: HudiTable, only: Instant | None = None) -> list[CleanResult]:
    """Executes the pending cleans (or `only` one of them), also those whose executor died."""
    with table.context.locked():
        table = prepared(table)
    pending = [only] if only is not None else table.timeline.pending().of(Action.CLEAN).instants
    return execute_each(table, pending, execute_clean)


def finish_cleans(table: HudiTable) -> list[CleanResult]:
    """As `execute_pending_cleans`, with the lock held, on a table that is prepared: the files that a plan names are
    deleted after it."""
    return execute_each(table, table.timeline.pending().of(Action.CLEAN), partial(_execute, exclusive=nullcontext))


def execute_clean(table: HudiTable, instant: Instant) -> CleanResult | None:
    """Executes a planned clean. None when its plan is unreadable (it is rolled back), another executor was faster, or
    the table has another version by now: the plan went with the timeline."""
    return _execute(table, instant, table.context.locked)


def _execute(
    table: HudiTable, instant: Instant, exclusive: Callable[[], AbstractContextManager[object]]
) -> CleanResult | None:
    """`exclusive` holds the lock while the timeline changes."""
    with table.context.events.step("clean", instant=instant.requested_time) as found:
        done = _carry_out(table, instant, exclusive)
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
            if has_metadata_table(config):
                _record(table.reload(), instant, metadata)
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


def _record(table: HudiTable, instant: Instant, metadata: CleanMetadata) -> None:
    """Takes the deleted files out of the metadata table, unless another executor has completed the clean."""
    pending = table.timeline.pending().of(Action.CLEAN)
    if any(each.requested_time == instant.requested_time for each in pending):
        record_in_metadata_table(
            table, instant.requested_time, updates_of_clean(with_building(table), instant, metadata)
        )


def _delete_if_empty(storage: Storage, partition: str) -> bool:
    if partition == "" or {file.name for file in storage.list_prefix(partition, recursive=True)} - METAFILES:
        return False
    storage.delete_folder(partition)
    return True


def _metadata(
    instant: Instant, plan: CleanerPlan, planned: Mapping[str, list[str]], emptied: Collection[str], seconds: float
) -> CleanMetadata:
    earliest = plan.earliest_instant_to_retain
    partitions = {}
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
            log.warning(
                "table %s: clean %s is deleted: %s", table.config.name, each.instant.requested_time, each.problem
            )
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
