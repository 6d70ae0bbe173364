"""What services would do now: row by row, and as the `Done` of a service. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skep_format.timeline.instant import Action
from skep_format.timeline.plans import CleanerPlan
from skep_table.metadata_write import INDEX_ASYNC
from skep_table.services.automatic import clusters, is_clustering_due, is_due_for_compaction
from skep_table.services.cleaning.archive_plan import plan_archive
from skep_table.services.cleaning.clean import plan_clean
from skep_table.services.cleaning.ttl import expired_partitions, expires
from skep_table.services.clustering.cluster import check_clusterable, pending_clusterings
from skep_table.services.clustering.options import CLUSTER_INLINE_COMMITS
from skep_table.services.clustering.plan import plan_clustering
from skep_table.services.compaction.compact import check_compactable, pending_compactions
from skep_table.services.compaction.log_compact import pending_log_compactions
from skep_table.services.compaction.log_plan import plan_log_compaction
from skep_table.services.compaction.plan import plan_compaction
from skep_table.services.compaction.strategy import chooser
from skep_table.services.done import Done, planned, scheduled
from skep_table.services.metadata.index_plan import missing_indexes
from skep_table.table import HudiTable


def preview_maintenance(table: HudiTable) -> Iterator[Done]:
    """Plans that wait, and what is due beside them, as of a snapshot."""
    if table.config.is_mor:
        yield from (scheduled("log-compact", instant) for instant in pending_log_compactions(table))
        yield from (scheduled("compact", instant) for instant in pending_compactions(table))
        if is_due_for_compaction(table):
            yield from preview_compaction(table)
    yield from (scheduled("cluster", instant) for instant in pending_clusterings(table))
    if clusters(table.options) and is_clustering_due(table, CLUSTER_INLINE_COMMITS):
        yield from preview_clustering(table)
    if expires(table.options):
        yield from preview_expiry(table)
    yield from (scheduled("clean", instant) for instant in table.timeline.pending().of(Action.CLEAN))
    yield from preview_clean(table)
    yield from preview_indexing(table)
    yield from preview_archive(table)


def preview_compaction(table: HudiTable) -> list[Done]:
    """The file slices that a compaction would fold, as a count."""
    return planned("compact", len(compaction_rows(table)), "file slice")


def preview_log_compaction(table: HudiTable) -> list[Done]:
    """The file slices whose log files a log compaction would merge, as a count."""
    return planned("log-compact", len(compaction_rows(table, logs=True)), "file slice")


def compaction_rows(table: HudiTable, *, logs: bool = False) -> list[dict[str, Any]]:
    """A row per file slice that a compaction (`logs`: a log compaction) would fold. InputError for copy-on-write."""
    check_compactable(table)
    if logs:
        plan = plan_log_compaction(table)
    else:
        plan = plan_compaction(table, chooser(table.options, table.context.clock.now()))
    return [
        {
            "partition": each.partition_path,
            "file_id": each.file_id,
            "base_instant": each.base_instant_time,
            "log_files": len(each.delta_file_paths),
            "log_bytes": int((each.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
        }
        for each in (plan.operations if plan else ())
    ]


def preview_clustering(table: HudiTable) -> list[Done]:
    """The file groups that a clustering would rewrite, as a count."""
    return planned("cluster", len(clustering_rows(table)), "file group")


def clustering_rows(table: HudiTable) -> list[dict[str, Any]]:
    """A row per file slice that a clustering would rewrite; `becomes`: the new file groups of its clustering group."""
    check_clusterable(table, table.options)
    plan = plan_clustering(table)
    return [
        {
            "group": number,
            "partition": each.partition_path,
            "file_id": each.file_id,
            "log_files": len(each.delta_file_paths),
            "becomes": group.num_output_file_groups,
        }
        for number, group in enumerate(plan.clustering_plan.input_groups if plan and plan.clustering_plan else ())
        for each in group.slices
    ]


def preview_expiry(table: HudiTable) -> list[Done]:
    """The partitions that would be dropped, as a count."""
    return planned("ttl", len(expired_partitions(table)), "partition")


def preview_clean(table: HudiTable) -> list[Done]:
    """The files that a clean would delete, as a count."""
    return planned("clean", len(clean_rows(plan_clean(table))), "file")


def clean_rows(plan: CleanerPlan) -> list[dict[str, Any]]:
    """A row per file that a clean plan deletes."""
    return [
        {"partition": partition, "file": (file.file_path or "").rpartition("/")[2]}
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items()
        for file in files
    ]


def preview_indexing(table: HudiTable) -> list[Done]:
    """The indexes whose plans wait, and the number of those that would be planned."""
    waiting = [scheduled("index", instant) for instant in table.timeline.pending().of(Action.INDEXING)]
    missing = missing_indexes(table) if table.options.value(INDEX_ASYNC) else ()
    return [*waiting, *(planned("index", len(missing), "partition") if missing else ())]


def preview_archive(table: HudiTable) -> list[Done]:
    """The instants that would be archived, as a count."""
    return planned("archive", len(plan_archive(table).instants), "instant")
