"""What follows a commit by itself, and what maintenance does: compact, cluster, expire, clean, archive, in this order.

Each is looked for by the options: carried out here and now, only planned, or planned here and carried out later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from skep_table.commit.admission import check_writable
from skep_table.commit.setting import CommitSetting
from skep_table.errors import CommitConflictError, OptionError
from skep_table.options import Option, Options
from skep_table.services import cluster_options, compact_options
from skep_table.services.archive import archive
from skep_table.services.archive_plan import check_archive_options, is_archive_due
from skep_table.services.clean import clean, is_clean_due
from skep_table.services.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.cluster_plan import commits_since_clustering
from skep_table.services.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.services.compact_strategy import chooser, is_compaction_due
from skep_table.services.done import (
    Done,
    archived,
    cleaned,
    clustered,
    compacted,
    expired,
    logs_compacted,
    put_off,
    scheduled,
)
from skep_table.services.log_compact import compact_logs, execute_pending_log_compactions
from skep_table.services.options import ASYNC_ARCHIVE, ASYNC_CLEAN, AUTO_ARCHIVE, AUTO_CLEAN
from skep_table.services.ttl import TTL_INLINE, expire_partitions, expires
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant

Job = Callable[[], list[Done]]


@dataclass(frozen=True, slots=True)
class Step:
    """One service that is to run. `later`: it need not be waited for."""

    service: str
    job: Job
    later: bool = False

    def run(self) -> list[Done]:
        """Does it, or says that it has to wait for others who are at work."""
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
        if options.value(inline) and options.value(schedule):
            raise OptionError(
                f"{inline.key} and {schedule.key} exclude each other",
                hint=f"{inline.key} plans and carries out, {schedule.key} only plans",
                option=schedule.key,
            )
    if options.value(AUTO_ARCHIVE):
        check_archive_options(options)


def after_commit(table: HudiTable, setting: CommitSetting) -> Iterator[Step]:
    """The services that the options ask for and that are due on `table`, a look taken after the commit.

    Each step is to be run before the next one is asked for.
    """
    options = setting.options
    yield from _compaction_steps(table, setting)
    if table.config.is_mor and options.value(compact_options.LOG_COMPACT_INLINE):
        yield Step("log-compact", partial(_compact_logs, table, setting))
    yield from _clustering_steps(table, setting)
    if options.value(TTL_INLINE):
        yield Step("ttl", partial(_expire, table, setting))
    if options.value(AUTO_CLEAN) and is_clean_due(table, setting):
        yield Step("clean", partial(_clean, table, setting), options.value(ASYNC_CLEAN))
    if options.value(AUTO_ARCHIVE) and is_archive_due(table.timeline, options):
        yield Step("archive", partial(_archive, table, setting), options.value(ASYNC_ARCHIVE))


def maintain(table: HudiTable, setting: CommitSetting) -> Iterator[Step]:
    """All that is due: plans that wait, compaction by its trigger, clustering and expiry where the options ask for
    them, clean, archive."""
    check_writable(table.config, table.storage.root)
    check_archive_options(setting.options)
    if table.config.is_mor:
        yield Step("log-compact", partial(_execute_log_compactions, table, setting))
        yield Step("compact", partial(_execute_compactions, table, setting))
        table = table.reload()
        if is_due_for_compaction(table, setting):
            yield Step("compact", partial(_compact, table, setting))
    yield Step("cluster", partial(_execute_clusterings, table, setting))
    if clusters(setting.options) and is_clustering_due(table, setting, cluster_options.CLUSTER_INLINE_COMMITS):
        yield Step("cluster", partial(_cluster, table, setting))
    if expires(setting.options):
        yield Step("ttl", partial(_expire, table, setting))
    yield Step("clean", partial(_clean, table, setting))
    yield Step("archive", partial(_archive, table, setting))


def _compaction_steps(table: HudiTable, setting: CommitSetting) -> Iterator[Step]:
    options = setting.options
    if not table.config.is_mor:
        return
    inline = options.value(compact_options.COMPACT_INLINE)
    aside = options.value(compact_options.COMPACT_ASYNC)
    if not (inline or aside or options.value(compact_options.COMPACT_SCHEDULE_INLINE)):
        return
    due = is_due_for_compaction(table, setting)
    if inline:
        if due:
            yield Step("compact", partial(_compact, table, setting))
        return
    if due:
        yield Step("compact", partial(_schedule_compaction, table, setting))
    if aside and (due or table.timeline.pending().of(Action.COMPACTION)):
        yield Step("compact", partial(_execute_compactions, table, setting), later=True)


def _clustering_steps(table: HudiTable, setting: CommitSetting) -> Iterator[Step]:
    options = setting.options
    if options.value(cluster_options.CLUSTER_INLINE):
        if is_clustering_due(table, setting, cluster_options.CLUSTER_INLINE_COMMITS):
            yield Step("cluster", partial(_cluster, table, setting))
        return
    if options.value(cluster_options.CLUSTER_ASYNC):
        if is_clustering_due(table, setting, cluster_options.CLUSTER_ASYNC_COMMITS):
            yield Step("cluster", partial(_schedule_clustering, table, setting))
            yield Step("cluster", partial(_execute_clusterings, table, setting), later=True)
    elif options.value(cluster_options.CLUSTER_SCHEDULE_INLINE) and is_clustering_due(
        table, setting, cluster_options.CLUSTER_INLINE_COMMITS
    ):
        yield Step("cluster", partial(_schedule_clustering, table, setting))


def is_due_for_compaction(table: HudiTable, setting: CommitSetting) -> bool:
    return is_compaction_due(table.timeline, setting.options, setting.clock.now(), table.config.timezone)


def is_clustering_due(table: HudiTable, setting: CommitSetting, commits: Option[int]) -> bool:
    return commits_since_clustering(table) >= setting.options.value(commits)


def clusters(options: Options) -> bool:
    """Whether the options ask for clustering in any way."""
    modes = (
        cluster_options.CLUSTER_INLINE,
        cluster_options.CLUSTER_SCHEDULE_INLINE,
        cluster_options.CLUSTER_ASYNC,
    )
    return any(map(options.value, modes)) or options.is_set(cluster_options.SORT_COLUMNS)


def _compact(table: HudiTable, setting: CommitSetting) -> list[Done]:
    choose = chooser(setting.options, setting.clock.now())
    return [compacted(each) for each in compact(table, setting, choose)]


def _schedule_compaction(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return _planned("compact", schedule_compaction(table, setting, chooser(setting.options, setting.clock.now())))


def _execute_compactions(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [compacted(each) for each in execute_pending_compactions(table, setting)]


def _compact_logs(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [logs_compacted(each) for each in compact_logs(table, setting)]


def _execute_log_compactions(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [logs_compacted(each) for each in execute_pending_log_compactions(table, setting)]


def _cluster(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [clustered(each) for each in cluster(table, setting)]


def _schedule_clustering(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return _planned("cluster", schedule_clustering(table, setting))


def _execute_clusterings(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [clustered(each) for each in execute_pending_clusterings(table, setting)]


def _expire(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [expired(each) for each in expire_partitions(table, setting)]


def _clean(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return [cleaned(each) for each in clean(table, setting)]


def _archive(table: HudiTable, setting: CommitSetting) -> list[Done]:
    done = archive(table, setting)
    return [archived(done)] if done.instants else []


def _planned(service: str, instant: Instant | None) -> list[Done]:
    return [scheduled(service, instant)] if instant is not None else []
