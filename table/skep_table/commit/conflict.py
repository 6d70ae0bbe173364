"""Optimistic concurrency, simple form: a commit loses against one that completed meanwhile and touched its groups."""

from __future__ import annotations

from skep_table.errors import CommitConflictError
from skep_table.table import HudiTable
from skep_table.timeline.instant import DATA_ACTIONS, Instant
from skep_table.timeline.metadata import CommitMetadata


def refuse_overlap(table: HudiTable, since: tuple[Instant, ...], metadata: CommitMetadata) -> None:
    """CommitConflictError when one of the instants in `since` wrote or replaced a file group that `metadata` writes."""
    ours = _groups(metadata)
    for instant in since:
        if instant.action.completed_as not in DATA_ACTIONS:
            continue
        both = ours & _groups(table.commit_metadata(instant))
        if both:
            partition, file_id = min(both)
            raise CommitConflictError(
                f"table {table.config.name}: {instant.action.value} {instant.requested_time} changed {len(both)} of the"
                f" file groups of this write first, {partition or 'the table'}/{file_id} among them",
                hint="write again",
                table=table.config.name,
                instant=instant.requested_time,
                file_groups=len(both),
            )


def _groups(metadata: CommitMetadata) -> set[tuple[str, str]]:
    written = {(stat.partition_path, stat.file_id) for stat in metadata.stats}
    replaced = {
        (partition, group) for partition, ids in (metadata.partition_to_replace_file_ids or {}).items() for group in ids
    }
    return written | replaced
