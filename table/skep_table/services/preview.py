"""What services would do now, in the form that says what they did. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterator

from skep_table.commit.setting import CommitSetting
from skep_table.services.archive_plan import plan_archive
from skep_table.services.automatic import clusters, is_clustering_due, is_due_for_compaction
from skep_table.services.clean import plan_clean
from skep_table.services.cluster import check_clusterable, pending_clusterings
from skep_table.services.cluster_options import CLUSTER_INLINE_COMMITS
from skep_table.services.cluster_plan import plan_clustering
from skep_table.services.compact import check_compactable, pending_compactions
from skep_table.services.compact_plan import plan_compaction
from skep_table.services.compact_strategy import chooser
from skep_table.services.done import Done, planned, scheduled
from skep_table.services.log_compact import pending_log_compactions, plan_log_compaction
from skep_table.services.ttl import expired_partitions, expires
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action


def preview_maintenance(table: HudiTable, setting: CommitSetting) -> Iterator[Done]:
    """Plans that wait, and what is due beside them."""
    table = table.reload()
    if table.config.is_mor:
        yield from (scheduled("log-compact", instant) for instant in pending_log_compactions(table))
        yield from (scheduled("compact", instant) for instant in pending_compactions(table))
        if is_due_for_compaction(table, setting):
            yield from preview_compaction(table, setting)
    yield from (scheduled("cluster", instant) for instant in pending_clusterings(table))
    if clusters(setting.options) and is_clustering_due(table, setting, CLUSTER_INLINE_COMMITS):
        yield from preview_clustering(table, setting)
    if expires(setting.options):
        yield from preview_expiry(table, setting)
    yield from (scheduled("clean", instant) for instant in table.timeline.pending().of(Action.CLEAN))
    yield from preview_clean(table, setting)
    yield from preview_archive(table, setting)


def preview_compaction(table: HudiTable, setting: CommitSetting) -> list[Done]:
    check_compactable(table)
    plan = plan_compaction(table, setting, chooser(setting.options, setting.clock.now()))
    return planned("compact", len(plan.operations) if plan else 0, "file slice")


def preview_log_compaction(table: HudiTable, setting: CommitSetting) -> list[Done]:
    check_compactable(table)
    plan = plan_log_compaction(table, setting)
    return planned("log-compact", len(plan.operations) if plan else 0, "file slice")


def preview_clustering(table: HudiTable, setting: CommitSetting) -> list[Done]:
    check_clusterable(table, setting.options)
    plan = plan_clustering(table, setting)
    groups = plan.clustering_plan.input_groups if plan and plan.clustering_plan else ()
    return planned("cluster", sum(len(group.slices) for group in groups), "file group")


def preview_expiry(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return planned("ttl", len(expired_partitions(table, setting)), "partition")


def preview_clean(table: HudiTable, setting: CommitSetting) -> list[Done]:
    plan = plan_clean(table, setting).file_paths_to_be_deleted_per_partition or {}
    return planned("clean", sum(map(len, plan.values())), "file")


def preview_archive(table: HudiTable, setting: CommitSetting) -> list[Done]:
    return planned("archive", len(plan_archive(table, setting.options, setting.runner).instants), "instant")
