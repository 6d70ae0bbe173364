"""The services that run after a commit and in maintenance: compact, cluster, expire, clean, archive, in this order.

Options enable each: planned and executed at once, only planned, or planned at once and executed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from skep_format.errors import CommitConflictError, OptionError
from skep_format.options import Option, Options
from skep_format.timeline.instant import Action
from skep_table.commit.writable import check_writable
from skep_table.metadata_write.options import INDEX_ASYNC
from skep_table.services.cleaning.archive import archive, check_archive_options, is_archive_due, plan_archive
from skep_table.services.cleaning.clean import is_clean_due
from skep_table.services.cleaning.ttl import TTL_INLINE, expires
from skep_table.services.clustering import options as cluster_options
from skep_table.services.clustering.plan import commits_since_clustering
from skep_table.services.compaction import options as compact_options
from skep_table.services.compaction.plan import is_compaction_due
from skep_table.services.done import Done, count, planned, put_off
from skep_table.services.metadata.index_build import missing_indexes
from skep_table.services.metadata.upkeep import is_metadata_table_due, maintain_metadata_table
from skep_table.services.options import ASYNC_ARCHIVE, ASYNC_CLEAN, AUTO_ARCHIVE, AUTO_CLEAN
from skep_table.services.service import (
    CLEANING,
    CLUSTERING,
    COMPACTION,
    EXPIRY,
    INDEXING,
    LOG_COMPACTION,
    WHOLE,
    Mode,
    TableService,
)
from skep_table.table import HudiTable

_PLAN, _SCHEDULE, _EXECUTE = Mode(plan=True), Mode(schedule=True), Mode(execute=True)


@dataclass(frozen=True, slots=True)
class DueService:
    """One service to run. `later`: the caller need not wait for it."""

    service: str
    job: Callable[[], list[Done]]
    later: bool = False

    def run(self) -> list[Done]:
        """Runs the service; where an active writer or executor blocks it, reports that it is put off."""
        try:
            return self.job()
        except CommitConflictError as error:
            return [put_off(self.service, error)]


def _due(service: TableService[Any], table: HudiTable, mode: Mode = WHOLE, *, later: bool = False) -> DueService:
    return DueService(service.name, partial(service, table, mode), later)


def check_automatic(options: Options) -> None:
    """OptionError for settings of automatic services that contradict each other, before anything is written."""
    pairs = (
        (compact_options.COMPACT_INLINE, compact_options.COMPACT_SCHEDULE_INLINE),
        (cluster_options.CLUSTER_INLINE, cluster_options.CLUSTER_SCHEDULE_INLINE),
    )
    for inline, schedule in pairs:
        if options.is_set(inline) and options.value(inline) and options.value(schedule):
            raise OptionError(
                f"{inline.key} and {schedule.key} exclude each other",
                hint=f"{inline.key} plans and carries out, {schedule.key} only plans",
                option=schedule.key,
            )
    if options.value(AUTO_ARCHIVE):
        check_archive_options(options)


def after_commit(table: HudiTable) -> Iterator[DueService]:
    """The services that the options enable and that are due on `table`, the snapshot after the commit.

    Run each step before taking the next one.
    """
    options = table.options
    yield from _compaction_steps(table)
    if table.config.is_mor and options.value(compact_options.LOG_COMPACT_INLINE):
        yield _due(LOG_COMPACTION, table)
    yield from _clustering_steps(table)
    if options.value(TTL_INLINE):
        yield _due(EXPIRY, table)
    if options.value(AUTO_CLEAN) and is_clean_due(table):
        yield _due(CLEANING, table, later=options.value(ASYNC_CLEAN))
    if options.value(INDEX_ASYNC):
        yield from _indexing_steps(table, later=True)
    yield from _metadata_steps(table)
    if options.value(AUTO_ARCHIVE) and is_archive_due(table.timeline, options):
        yield DueService("archive", partial(_archive, table), options.value(ASYNC_ARCHIVE))


def maintain(table: HudiTable) -> Iterator[DueService]:
    """All that is due: pending plans, compaction by its trigger, clustering and expiry where options enable them,
    clean, archive. `table` is a snapshot of now; run each step before taking the next one."""
    check_writable(table.config, table.storage.root)
    check_archive_options(table.options)
    pending = table.timeline.pending()
    if table.config.is_mor:
        if pending.of(Action.LOG_COMPACTION, Action.COMPACTION):
            yield _due(LOG_COMPACTION, table, _EXECUTE)
            yield _due(COMPACTION, table, _EXECUTE)
            table = table.reload()
        if is_due_for_compaction(table):
            yield _due(COMPACTION, table)
    if pending.of(Action.REPLACE_COMMIT, Action.CLUSTERING):
        yield _due(CLUSTERING, table, _EXECUTE)
    if clusters(table):
        yield _due(CLUSTERING, table)
    if expires(table.options):
        yield _due(EXPIRY, table)
    yield _due(CLEANING, table)
    if table.options.value(INDEX_ASYNC) or pending.of(Action.INDEXING):
        yield from _indexing_steps(table, later=False)
    yield from _metadata_steps(table)
    yield DueService("archive", partial(_archive, table))


def preview_maintenance(table: HudiTable) -> Iterator[Done]:
    """Plans that wait, and what is due beside them, as of a snapshot. Changes nothing."""
    if table.config.is_mor:
        yield from (*LOG_COMPACTION.waiting(table), *COMPACTION.waiting(table))
        if is_due_for_compaction(table):
            yield from COMPACTION(table, _PLAN)
    yield from CLUSTERING.waiting(table)
    if clusters(table):
        yield from CLUSTERING(table, _PLAN)
    if expires(table.options):
        yield from EXPIRY(table, _PLAN)
    yield from (*CLEANING.waiting(table), *CLEANING(table, _PLAN))
    yield from INDEXING.waiting(table)
    if table.options.value(INDEX_ASYNC):
        yield from INDEXING(table, _PLAN)
    yield from planned("archive", [{"instant": one.requested_time} for one in plan_archive(table).instants], "instant")


def _compaction_steps(table: HudiTable) -> Iterator[DueService]:
    options = table.options
    if not table.config.is_mor:
        return
    inline, aside = compact_options.compacts_inline(options), options.value(compact_options.COMPACT_ASYNC)
    if not (inline or aside or options.value(compact_options.COMPACT_SCHEDULE_INLINE)):
        return
    due = is_due_for_compaction(table)
    if due:
        yield _due(COMPACTION, table, WHOLE if inline else _SCHEDULE)
    if aside and not inline and (due or table.timeline.pending().of(Action.COMPACTION)):
        yield _due(COMPACTION, table, _EXECUTE, later=True)


def _clustering_steps(table: HudiTable) -> Iterator[DueService]:
    options = table.options
    inline, aside = options.value(cluster_options.CLUSTER_INLINE), options.value(cluster_options.CLUSTER_ASYNC)
    if not (inline or aside or options.value(cluster_options.CLUSTER_SCHEDULE_INLINE)):
        return
    every = cluster_options.CLUSTER_ASYNC_COMMITS if aside and not inline else cluster_options.CLUSTER_INLINE_COMMITS
    if is_clustering_due(table, every):
        yield _due(CLUSTERING, table, WHOLE if inline else _SCHEDULE)
        if aside and not inline:
            yield _due(CLUSTERING, table, _EXECUTE, later=True)


def _indexing_steps(table: HudiTable, *, later: bool) -> Iterator[DueService]:
    lacks = bool(table.options.value(INDEX_ASYNC) and missing_indexes(table))
    if lacks:
        yield _due(INDEXING, table, _SCHEDULE)
    if lacks or table.timeline.pending().of(Action.INDEXING):
        yield _due(INDEXING, table, _EXECUTE, later=later)


def is_due_for_compaction(table: HudiTable) -> bool:
    """Whether the trigger that the options name fires now."""
    return is_compaction_due(table.timeline, table.options, table.context.clock.now(), table.config.timezone)


def is_clustering_due(table: HudiTable, commits: Option[int]) -> bool:
    """Whether so many commits, as the option `commits` states, completed since the last clustering."""
    return commits_since_clustering(table) >= table.options.value(commits)


def clusters(table: HudiTable) -> bool:
    """Whether a clustering is due, and the options enable it, inline or asynchronous."""
    modes = (cluster_options.CLUSTER_INLINE, cluster_options.CLUSTER_SCHEDULE_INLINE, cluster_options.CLUSTER_ASYNC)
    enabled = any(map(table.options.value, modes)) or table.options.is_set(cluster_options.SORT_COLUMNS)
    return enabled and is_clustering_due(table, cluster_options.CLUSTER_INLINE_COMMITS)


def _metadata_steps(table: HudiTable) -> Iterator[DueService]:
    def maintained() -> list[Done]:
        instant = maintain_metadata_table(table)
        what = "the metadata table compacted"
        return [] if instant is None else [Done("metadata", instant.requested_time, "completed", what)]

    if is_metadata_table_due(table):
        yield DueService("metadata", maintained)


def _archive(table: HudiTable) -> list[Done]:
    number = len(archive(table).instants)
    return [Done("archive", None, "completed", f"{count(number, 'instant')} archived")] if number else []
