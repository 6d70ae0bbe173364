"""Which commits completed since a snapshot, and which file groups an instant changes, by its metadata or its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.plans import CompactionPlan, NamedSlice, RequestedReplaceMetadata
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_table.table import HudiTable

_COMPACTIONS: Final = (Action.COMPACTION, Action.LOG_COMPACTION)


def completed_since(began: HudiTable, now: HudiTable) -> tuple[Instant, ...]:
    """The commits that completed between two snapshots of a table, including those that are archived by now."""
    known = set(began.timeline.completed().instants)
    found = [instant for instant in now.timeline.completed().data() if instant not in known]
    ran = {i.requested_time for i in began.timeline.pending() if i.action in WRITE_ACTIONS}
    missing = {time for time in ran if now.timeline.is_archived(time) and not now.timeline.contains(time)}
    if missing:
        found += [
            i for i in now.timeline.archived(min(missing)) if i.requested_time in missing and i.action in DATA_ACTIONS
        ]
    return tuple(found)


def touched_groups(table: HudiTable, instant: Instant) -> frozenset[FileGroupId]:
    """The file groups that an instant has written or replaced, or is going to, by its plan or its inflight file."""
    planned = planned_groups(table, instant)
    if planned is not None:
        return planned
    return groups_of(table.commit_metadata(instant)) if instant.state is not instant.state.REQUESTED else frozenset()


def groups_in_writing(table: HudiTable) -> frozenset[FileGroupId]:
    """The file groups that pending writes state in their inflight files: a plan that takes one would be given up."""
    writes = (i for i in table.timeline.pending().data() if not is_clustering(table, i))
    return frozenset(group for instant in writes for group in touched_groups(table, instant))


def groups_of(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """The file groups that a commit wrote or replaced."""
    # What is only planned names its partition in the key alone.
    written = [
        FileGroupId(path, stat.file_id) for path, stats in metadata.partition_to_write_stats.items() for stat in stats
    ]
    return frozenset(group for group in (*written, *metadata.replaced) if group.file_id)


def services_planned_after(table: HudiTable, time: InstantTime) -> Iterator[Instant]:
    """Pending compactions, log compactions and clusterings with a requested time after `time`."""
    for other in table.timeline.pending():
        if other.requested_time.is_after(time) and (
            other.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING) or is_clustering(table, other)
        ):
            yield other


def is_clustering(table: HudiTable, instant: Instant) -> bool:
    """Whether a pending instant is a clustering: in timeline layout 1 its file is that of a replace commit."""
    if instant.action is not Action.REPLACE_COMMIT or instant.is_completed:
        return instant.action is Action.CLUSTERING
    plan = table.requested_plan(RequestedReplaceMetadata, instant)
    return plan is not None and plan.operation_type == WriteOperation.CLUSTER.value


def planned_groups(table: HudiTable, instant: Instant) -> frozenset[FileGroupId] | None:
    """The file groups in the plan of a pending compaction or clustering; None for any other instant."""
    if instant.is_completed or (instant.action not in _COMPACTIONS and not is_clustering(table, instant)):
        return None
    return frozenset(each.group for each in planned_slices(table, instant))


def planned_slices(table: HudiTable, instant: Instant) -> Sequence[NamedSlice]:
    """The file slices that the plan of a pending compaction or clustering names; none for any other instant."""
    if instant.action in _COMPACTIONS:
        compaction = table.requested_plan(CompactionPlan, instant)
        return compaction.operations if compaction else ()
    if instant.action not in (Action.REPLACE_COMMIT, Action.CLUSTERING):
        return ()
    replace = table.requested_plan(RequestedReplaceMetadata, instant)
    return replace.clustering_plan.slices if replace and replace.clustering_plan else ()
