"""The services that run after a commit and in maintenance: compact, cluster, expire, clean, archive, in this order.

Options enable each: planned and executed at once, only planned, or planned at once and executed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from skep_format.errors import CommitConflictError, OptionError
from skep_format.options import Option, Options
from skep_format.timeline.instant import Action, Instant
from skep_table.commit.writable import check_writable
from skep_table.metadata_write import INDEX_ASYNC
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.archive_plan import check_archive_options, is_archive_due
from skep_table.services.cleaning.clean import clean, is_clean_due
from skep_table.services.cleaning.ttl import TTL_INLINE, expire_partitions, expires
from skep_table.services.clustering import options as cluster_options
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.clustering.plan import commits_since_clustering
from skep_table.services.compaction import options as compact_options
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.services.compaction.log_compact import compact_logs, execute_pending_log_compactions
from skep_table.services.compaction.strategy import chooser, is_compaction_due
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
        yield DueService("log-compact", partial(_compact_logs, table))
    yield from _clustering_steps(table)
    if options.value(TTL_INLINE):
        yield DueService("ttl", partial(_expire, table))
    if options.value(AUTO_CLEAN) and is_clean_due(table):
        yield DueService("clean", partial(_clean, table), options.value(ASYNC_CLEAN))
    if options.value(INDEX_ASYNC):
        yield from _indexing_steps(table, later=True)
    if is_metadata_table_due(table):
        yield DueService("metadata", partial(_maintain_metadata_table, table))
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
            yield DueService("log-compact", partial(_execute_log_compactions, table))
            yield DueService("compact", partial(_execute_compactions, table))
            table = table.reload()
        if is_due_for_compaction(table):
            yield DueService("compact", partial(_compact, table))
    if pending.of(Action.REPLACE_COMMIT, Action.CLUSTERING):
        yield DueService("cluster", partial(_execute_clusterings, table))
    if clusters(table.options) and is_clustering_due(table, cluster_options.CLUSTER_INLINE_COMMITS):
        yield DueService("cluster", partial(_cluster, table))
    if expires(table.options):
        yield DueService("ttl", partial(_expire, table))
    yield DueService("clean", partial(_clean, table))
    if table.options.value(INDEX_ASYNC) or pending.of(Action.INDEXING):
        yield from _indexing_steps(table, later=False)
    if is_metadata_table_due(table):
        yield DueService("metadata", partial(_maintain_metadata_table, table))
    yield DueService("archive", partial(_archive, table))


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
            yield DueService("compact", partial(_compact, table))
        return
    if due:
        yield DueService("compact", partial(_schedule_compaction, table))
    if aside and (due or table.timeline.pending().of(Action.COMPACTION)):
        yield DueService("compact", partial(_execute_compactions, table), later=True)


def _clustering_steps(table: HudiTable) -> Iterator[DueService]:
    options = table.options
    if options.value(cluster_options.CLUSTER_INLINE):
        if is_clustering_due(table, cluster_options.CLUSTER_INLINE_COMMITS):
            yield DueService("cluster", partial(_cluster, table))
        return
    if options.value(cluster_options.CLUSTER_ASYNC):
        if is_clustering_due(table, cluster_options.CLUSTER_ASYNC_COMMITS):
            yield DueService("cluster", partial(_schedule_clustering, table))
            yield DueService("cluster", partial(_execute_clusterings, table), later=True)
    elif options.value(cluster_options.CLUSTER_SCHEDULE_INLINE) and is_clustering_due(
        table, cluster_options.CLUSTER_INLINE_COMMITS
    ):
        yield DueService("cluster", partial(_schedule_clustering, table))


def _indexing_steps(table: HudiTable, *, later: bool) -> Iterator[DueService]:
    missing = missing_indexes(table) if table.options.value(INDEX_ASYNC) else frozenset()
    if missing:
        yield DueService("index", partial(_schedule_index, table, missing))
    if missing or table.timeline.pending().of(Action.INDEXING):
        yield DueService("index", partial(_build_indexes, table), later)


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


def _compact(table: HudiTable) -> list[Done]:
    choose = chooser(table.options, table.context.clock.now())
    return [compacted(each) for each in compact(table, choose)]


def _schedule_compaction(table: HudiTable) -> list[Done]:
    return _planned("compact", schedule_compaction(table, chooser(table.options, table.context.clock.now())))


def _execute_compactions(table: HudiTable) -> list[Done]:
    return [compacted(each) for each in execute_pending_compactions(table)]


def _compact_logs(table: HudiTable) -> list[Done]:
    return [logs_compacted(each) for each in compact_logs(table)]


def _execute_log_compactions(table: HudiTable) -> list[Done]:
    return [logs_compacted(each) for each in execute_pending_log_compactions(table)]


def _cluster(table: HudiTable) -> list[Done]:
    return [clustered(each) for each in cluster(table)]


def _schedule_clustering(table: HudiTable) -> list[Done]:
    return _planned("cluster", schedule_clustering(table))


def _execute_clusterings(table: HudiTable) -> list[Done]:
    return [clustered(each) for each in execute_pending_clusterings(table)]


def _expire(table: HudiTable) -> list[Done]:
    return [expired(each) for each in expire_partitions(table)]


def _clean(table: HudiTable) -> list[Done]:
    return [cleaned(each) for each in clean(table)]


def _schedule_index(table: HudiTable, missing: frozenset[str]) -> list[Done]:
    return _planned("index", schedule_index(table, missing))


def _build_indexes(table: HudiTable) -> list[Done]:
    return [indexed(each) for each in execute_pending_indexing(table)]


def _maintain_metadata_table(table: HudiTable) -> list[Done]:
    instant = maintain_metadata_table(table)
    return [] if instant is None else [metadata_compacted(instant)]


def _archive(table: HudiTable) -> list[Done]:
    done = archive(table)
    return [archived(done)] if done.instants else []


def _planned(service: str, instant: Instant | None) -> list[Done]:
    return [scheduled(service, instant)] if instant is not None else []
