"""File groups that instants replace, or plan to compact or cluster, read from the contents of these instants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import FileGroupId
from skep_format.runner import Runner
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.plans import CompactionPlan, RequestedReplaceMetadata
from skep_format.timeline.timeline import Timeline
from skep_format.versions import TableFormat
from skep_table.view.slicing import InstantStates

P = TypeVar("P")


class InstantContents(Protocol):
    """Reads the contents of instants."""

    @property
    def format(self) -> TableFormat:
        """What differs by table version."""
        ...

    @property
    def timeline(self) -> Timeline:
        """The active timeline of the snapshot."""
        ...

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """What a completed or inflight write recorded."""
        ...

    def requested_plan(self, kind: type[P], instant: Instant) -> P | None:
        """The plan in an instant's requested file; None where the file does not exist."""
        ...


def load_instant_states(table: InstantContents, as_of: InstantTime | None, runner: Runner) -> InstantStates:
    """Reads completed replace commits and pending services, the only instants that determine these states."""
    timeline = table.timeline
    visible = timeline if as_of is None else timeline.until(as_of)
    return InstantStates(
        is_committed=_committed(timeline, as_of),
        completion_time_of=timeline.completion_time_of,
        logs=table.format.logs,
        pending_compactions=_compactions(table, visible, runner),
        pending_clusterings=_clusterings(table, timeline, runner),
        replaced=_replaced(table, visible, runner),
    )


def completed_by(timeline: Timeline, now: InstantStates, time: CompletionTime) -> InstantStates:
    """The states of instants when all that completed until `time` was visible. `now` are those of today.

    Plans don't count: what they begin holds nothing that completed before them.
    """

    def is_committed(instant: InstantTime) -> bool:
        done = timeline.completion_time_of(instant) if timeline.is_completed_or_archived(instant) else None
        return done is not None and done.is_at_or_before(time)

    replaced = {group: instant for group, instant in now.replaced.items() if is_committed(instant)}
    return replace(now, is_committed=is_committed, pending_compactions={}, pending_clusterings={}, replaced=replaced)


def _committed(timeline: Timeline, as_of: InstantTime | None) -> Callable[[InstantTime], bool]:
    if as_of is None:
        return timeline.is_completed_or_archived
    return lambda instant: instant.is_at_or_before(as_of) and timeline.is_completed_or_archived(instant)


def _replaced(table: InstantContents, visible: Timeline, runner: Runner) -> dict[FileGroupId, InstantTime]:
    instants = visible.completed().of(Action.REPLACE_COMMIT).instants
    found: dict[FileGroupId, InstantTime] = {}
    for instant, metadata in zip(instants, runner.map(table.commit_metadata, instants), strict=True):
        for group in metadata.replaced:
            found.setdefault(group, instant.requested_time)
    return found


def _compactions(table: InstantContents, visible: Timeline, runner: Runner) -> dict[FileGroupId, InstantTime]:
    instants = visible.pending().of(Action.COMPACTION).instants
    plans = runner.map(lambda instant: table.requested_plan(CompactionPlan, instant), instants)
    return {
        operation.group: instant.requested_time
        for instant, plan in zip(instants, plans, strict=True)
        for operation in (plan.operations if plan else ())
    }


def _clusterings(table: InstantContents, timeline: Timeline, runner: Runner) -> dict[FileGroupId, InstantTime]:
    instants = timeline.pending().of(Action.REPLACE_COMMIT, Action.CLUSTERING).instants
    plans = runner.map(lambda instant: table.requested_plan(RequestedReplaceMetadata, instant), instants)
    return {
        slice_.group: instant.requested_time
        for instant, plan in zip(instants, plans, strict=True)
        if plan and plan.clustering_plan and plan.operation_type == WriteOperation.CLUSTER
        for slice_ in plan.clustering_plan.slices
    }
