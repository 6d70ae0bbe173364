"""What pending table services are going to change, by their plans."""

from __future__ import annotations

from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import WriteOperation
from skep_table.timeline.plans import CompactionPlan, RequestedReplaceMetadata


def is_clustering(table: HudiTable, instant: Instant) -> bool:
    """Whether a pending instant is a clustering: by name it is a replace commit."""
    if instant.action is not Action.REPLACE_COMMIT or instant.is_completed:
        return instant.action is Action.CLUSTERING
    plan = table.requested_plan(RequestedReplaceMetadata, instant)
    return plan is not None and plan.operation_type == WriteOperation.CLUSTER.value


def planned_groups(table: HudiTable, instant: Instant) -> frozenset[tuple[str, str]] | None:
    """Partition paths and file ids in the plan of a pending compaction or clustering; None for what is neither."""
    if instant.is_completed:
        return None
    if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION):
        compaction = table.requested_plan(CompactionPlan, instant)
        operations = compaction.operations if compaction else ()
        return frozenset((each.partition_path or "", each.file_id or "") for each in operations)
    if not is_clustering(table, instant):
        return None
    replace = table.requested_plan(RequestedReplaceMetadata, instant)
    groups = replace.clustering_plan.input_groups if replace and replace.clustering_plan else ()
    return frozenset((each.partition_path or "", each.file_id or "") for group in groups for each in group.slices)
