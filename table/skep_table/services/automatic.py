"""The services that run after a commit and in maintenance: compact, cluster, expire, clean, archive, in this order.

Options enable each: planned and executed at once, only planned, or planned at once and executed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from skep_format.errors import CommitConflictError, OptionError
from skep_format.options import Option, Options
from skep_format.timeline.instant import Action, Instant
from skep_table.commit.writable import check_writable
from skep_table.metadata_write import INDEX_ASYNC
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.archive_plan import ArchivePlan, check_archive_options, is_archive_due
from skep_table.services.cleaning.clean import clean, is_clean_due
from skep_table.services.cleaning.ttl import TTL_INLINE, expire_partitions, expires
from skep_table.services.clustering import options as cluster_options
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.clustering.plan import commits_since_clustering
from skep_table.services.compaction import options as compact_options
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.services.compaction.log_compact import compact_logs, execute_pending_log_compactions
from skep_table.services.compaction.strategy import Choose, chooser, is_compaction_due
from skep_table.services.done import (
    Done,
    archived,
    cleaned,
    clustered,
    compacted,
    expired,
    indexed,
    logs_compacted,
    metadata_compacted,
    put_off,
    scheduled,
)
from skep_table.services.metadata.index_build import execute_pending_indexing
from skep_table.services.metadata.index_plan import missing_indexes, schedule_index
from skep_table.services.metadata.upkeep import is_metadata_table_due, maintain_metadata_table
from skep_table.services.options import ASYNC_ARCHIVE, ASYNC_CLEAN, AUTO_ARCHIVE, AUTO_CLEAN
from skep_table.table import HudiTable

T = TypeVar("T")
Job = Callable[[], list[Done]]


@dataclass(frozen=True, slots=True)
class DueService:
    """One service to run. `later`: the caller need not wait for it."""

    service: str
    job: Job
    later: bool = False

    def run(self) -> list[Done]:
        """Runs the service; where an active writer or executor blocks it, reports that it is put off."""
        try:
            return self.job()
        except CommitConflictError as error:
            return [put_off(self.service, error)]


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
        yield _ran("log-compact", partial(compact_logs, table), logs_compacted)
    yield from _clustering_steps(table)
    if options.value(TTL_INLINE):
        yield _ran("ttl", partial(expire_partitions, table), expired)
    if options.value(AUTO_CLEAN) and is_clean_due(table):
        yield _ran("clean", partial(clean, table), cleaned, later=options.value(ASYNC_CLEAN))
    if options.value(INDEX_ASYNC):
        yield from _indexing_steps(table, later=True)
    if is_metadata_table_due(table):
        yield _ran("metadata", lambda: _none_or_one(maintain_metadata_table(table)), metadata_compacted)
    if options.value(AUTO_ARCHIVE) and is_archive_due(table.timeline, options):
        yield _ran("archive", partial(_archived, table), archived, later=options.value(ASYNC_ARCHIVE))


def maintain(table: HudiTable) -> Iterator[DueService]:
    """All that is due: pending plans, compaction by its trigger, clustering and expiry where options enable them,
    clean, archive. `table` is a snapshot of now; run each step before taking the next one."""
    check_writable(table.config, table.storage.root)
    check_archive_options(table.options)
    pending = table.timeline.pending()
    if table.config.is_mor:
        if pending.of(Action.LOG_COMPACTION, Action.COMPACTION):
            yield _ran("log-compact", partial(execute_pending_log_compactions, table), logs_compacted)
            yield _ran("compact", partial(execute_pending_compactions, table), compacted)
            table = table.reload()
        if is_due_for_compaction(table):
            yield _ran("compact", lambda: compact(table, _chooser(table)), compacted)
    if pending.of(Action.REPLACE_COMMIT, Action.CLUSTERING):
        yield _ran("cluster", partial(execute_pending_clusterings, table), clustered)
    if clusters(table.options) and is_clustering_due(table, cluster_options.CLUSTER_INLINE_COMMITS):
        yield _ran("cluster", partial(cluster, table), clustered)
    if expires(table.options):
        yield _ran("ttl", partial(expire_partitions, table), expired)
    yield _ran("clean", partial(clean, table), cleaned)
    if table.options.value(INDEX_ASYNC) or pending.of(Action.INDEXING):
        yield from _indexing_steps(table, later=False)
    if is_metadata_table_due(table):
        yield _ran("metadata", lambda: _none_or_one(maintain_metadata_table(table)), metadata_compacted)
    yield _ran("archive", partial(_archived, table), archived)


def _compaction_steps(table: HudiTable) -> Iterator[DueService]:
    options = table.options
    if not table.config.is_mor:
        return
    inline = compact_options.compacts_inline(options)
    aside = options.value(compact_options.COMPACT_ASYNC)
    if not (inline or aside or options.value(compact_options.COMPACT_SCHEDULE_INLINE)):
        return
    due = is_due_for_compaction(table)
    if inline:
        if due:
            yield _ran("compact", lambda: compact(table, _chooser(table)), compacted)
        return
    if due:
        yield _planned("compact", lambda: schedule_compaction(table, _chooser(table)))
    if aside and (due or table.timeline.pending().of(Action.COMPACTION)):
        yield _ran("compact", partial(execute_pending_compactions, table), compacted, later=True)


def _clustering_steps(table: HudiTable) -> Iterator[DueService]:
    options = table.options
    if options.value(cluster_options.CLUSTER_INLINE):
        if is_clustering_due(table, cluster_options.CLUSTER_INLINE_COMMITS):
            yield _ran("cluster", partial(cluster, table), clustered)
        return
    if options.value(cluster_options.CLUSTER_ASYNC):
        if is_clustering_due(table, cluster_options.CLUSTER_ASYNC_COMMITS):
            yield _planned("cluster", partial(schedule_clustering, table))
            yield _ran("cluster", partial(execute_pending_clusterings, table), clustered, later=True)
    elif options.value(cluster_options.CLUSTER_SCHEDULE_INLINE) and is_clustering_due(
        table, cluster_options.CLUSTER_INLINE_COMMITS
    ):
        yield _planned("cluster", partial(schedule_clustering, table))


def _indexing_steps(table: HudiTable, *, later: bool) -> Iterator[DueService]:
    missing = missing_indexes(table) if table.options.value(INDEX_ASYNC) else frozenset()
    if missing:
        yield _planned("index", partial(schedule_index, table, missing))
    if missing or table.timeline.pending().of(Action.INDEXING):
        yield _ran("index", partial(execute_pending_indexing, table), indexed, later=later)


def is_due_for_compaction(table: HudiTable) -> bool:
    """Whether the trigger that the options name fires now."""
    return is_compaction_due(table.timeline, table.options, table.context.clock.now(), table.config.timezone)


def is_clustering_due(table: HudiTable, commits: Option[int]) -> bool:
    """Whether so many commits, as the option `commits` states, completed since the last clustering."""
    return commits_since_clustering(table) >= table.options.value(commits)


def clusters(options: Options) -> bool:
    """Whether the options enable clustering, inline or asynchronous."""
    modes = (
        cluster_options.CLUSTER_INLINE,
        cluster_options.CLUSTER_SCHEDULE_INLINE,
        cluster_options.CLUSTER_ASYNC,
    )
    return any(map(options.value, modes)) or options.is_set(cluster_options.SORT_COLUMNS)


def _chooser(table: HudiTable) -> Choose:
    return chooser(table.options, table.context.clock.now())


def _ran(service: str, run: Callable[[], Iterable[T]], form: Callable[[T], Done], *, later: bool = False) -> DueService:
    """What `run` has completed, in its form."""
    return DueService(service, lambda: [form(each) for each in run()], later)


def _planned(service: str, schedule: Callable[[], Instant | None]) -> DueService:
    return _ran(service, lambda: _none_or_one(schedule()), partial(scheduled, service))


def _none_or_one(found: T | None) -> tuple[T, ...]:
    return () if found is None else (found,)


def _archived(table: HudiTable) -> list[ArchivePlan]:
    done = archive(table)
    return [done] if done.instants else []
