"""What the contents of instants say of file groups: which are replaced, and which await compaction or clustering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from skep_table.runner import Runner
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.timeline.plans import CompactionPlan, RequestedReplaceMetadata
from skep_table.timeline.timeline import Timeline
from skep_table.view.slicing import Facts, GroupKey

P = TypeVar("P")


class Contents(Protocol):
    """Reads what instants hold."""

    @property
    def timeline(self) -> Timeline: ...

    def commit_metadata(self, instant: Instant) -> CommitMetadata: ...

    def requested_plan(self, kind: type[P], instant: Instant) -> P | None:
        """The plan in an instant's requested file; None when the file is gone."""
        ...


def load_facts(table: Contents, as_of: str | None, runner: Runner) -> Facts:
    """Opens the instants that bear on file groups, and no others: completed replace commits and pending services."""
    timeline = table.timeline
    visible = timeline if as_of is None else timeline.until(as_of)
    return Facts(
        is_committed=_committed(timeline, as_of),
        completion_time_of=timeline.completion_time_of,
        logs_bear_delta_commit=timeline.layout.logs_bear_delta_commit,
        pending_compactions=_compactions(table, visible, runner),
        pending_clusterings=_clusterings(table, timeline, runner),
        replaced=_replaced(table, visible, runner),
    )


def _committed(timeline: Timeline, as_of: str | None) -> Callable[[str], bool]:
    if as_of is None:
        return timeline.is_completed_or_archived
    return lambda instant: instant <= as_of and timeline.is_completed_or_archived(instant)


def _replaced(table: Contents, visible: Timeline, runner: Runner) -> dict[GroupKey, str]:
    instants = visible.completed().of(Action.REPLACE_COMMIT).instants
    found: dict[GroupKey, str] = {}
    for instant, metadata in zip(instants, runner.map(table.commit_metadata, instants), strict=True):
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            for file_id in file_ids:
                found.setdefault((partition, file_id), instant.requested_time)
    return found


def _compactions(table: Contents, visible: Timeline, runner: Runner) -> dict[GroupKey, str]:
    instants = visible.pending().of(Action.COMPACTION).instants
    plans = runner.map(lambda instant: table.requested_plan(CompactionPlan, instant), instants)
    return {
        (operation.partition_path or "", operation.file_id or ""): instant.requested_time
        for instant, plan in zip(instants, plans, strict=True)
        for operation in (plan.operations if plan else ())
    }


def _clusterings(table: Contents, timeline: Timeline, runner: Runner) -> dict[GroupKey, str]:
    instants = timeline.pending().of(Action.REPLACE_COMMIT, Action.CLUSTERING).instants
    plans = runner.map(lambda instant: table.requested_plan(RequestedReplaceMetadata, instant), instants)
    return {
        (slice_.partition_path or "", slice_.file_id or ""): instant.requested_time
        for instant, plan in zip(instants, plans, strict=True)
        if plan and plan.clustering_plan and plan.operation_type == WriteOperation.CLUSTER
        for group in plan.clustering_plan.input_groups
        for slice_ in group.slices
    }
