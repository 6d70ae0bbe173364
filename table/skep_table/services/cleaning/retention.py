"""Files that services may not delete, since savepoints and pending plans need them; and the last clean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanMetadata, CompactionPlan, RequestedReplaceMetadata
from skep_table.table import HudiTable


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
        for partition, path in _inputs(table, instant):
            if path:
                found[partition].add(path.rpartition("/")[2])
    return {partition: frozenset(names) for partition, names in found.items()}


def _inputs(table: HudiTable, instant: Instant) -> list[tuple[str, str | None]]:
    if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION):
        compaction = table.requested_plan(CompactionPlan, instant)
        return [
            (operation.partition_path or "", name)
            for operation in (compaction.operations if compaction else ())
            for name in (operation.data_file_path, *operation.delta_file_paths)
        ]
    if instant.action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
        replace = table.requested_plan(RequestedReplaceMetadata, instant)
        groups = replace.clustering_plan.input_groups if replace and replace.clustering_plan else ()
        return [
            (slice_.partition_path or "", path)
            for group in groups
            for slice_ in group.slices
            for path in (slice_.data_file_path, *slice_.delta_file_paths)
        ]
    return []
