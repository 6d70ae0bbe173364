"""Which file slices a compaction folds into new base files: those with log files that no other pending plan has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from skep_format.names import FileGroupId
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CompactionOperation, CompactionPlan
from skep_table.commit.concurrency.changes import planned_groups
from skep_table.query.named import refuse_lost_files
from skep_table.services.metrics import slice_metrics
from skep_table.services.plan_scope import coverage_of, uncovered_partitions
from skep_table.slices.bootstrap import source_of, with_source_size
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView
from skep_table.write.planning.options import most_bytes

PLAN_VERSION = 2  # paths are file names

Choose = Callable[[Sequence[CompactionOperation]], Sequence[CompactionOperation]]
"""Which slices are compacted, in which order, out of all that could be."""


def every_slice(operations: Sequence[CompactionOperation]) -> Sequence[CompactionOperation]:
    """The most log bytes first."""
    return sorted(operations, key=lambda each: -(each.metrics or {})["TOTAL_LOG_FILES_SIZE"])


def plan_compaction(table: HudiTable, choose: Choose = every_slice) -> CompactionPlan | None:
    """The plan of a compaction of this snapshot, None when there is nothing to compact. Changes nothing.

    Lists the partitions that may have logs which no earlier plan has seen (see `plan_scope`).
    """
    view = table.view(metadata=False)
    partitions = uncovered_partitions(table, _earlier_plans(table))
    if partitions is None:
        partitions = view.partitions()
    refuse_lost_files(table, view, partitions)
    taken = _in_log_compactions(table)
    candidates_of = partial(_candidates_of, table, view, taken, most_bytes(table.config, table.options))
    found = table.context.threads.map(candidates_of, partitions)
    operations = [operation for of_partition in found for operation in of_partition]
    chosen = choose(operations)
    if not chosen:
        return None
    planned = {(each.partition_path, each.file_id) for each in chosen}
    left = {each.partition_path or "" for each in operations if (each.partition_path, each.file_id) not in planned}
    left.update(group.partition_path for group in taken)
    return CompactionPlan(
        operations=tuple(chosen),
        extra_metadata=coverage_of(table, view, left),
        version=PLAN_VERSION,
        missing_schedule_partitions=(),
    )


def compaction_plan(table: HudiTable, instant: Instant) -> CompactionPlan | None:
    """The plan of a compaction or log compaction; None when its file is empty or missing."""
    return table.requested_plan(CompactionPlan, instant)


def _earlier_plans(table: HudiTable) -> Iterator[tuple[Instant, Mapping[str, str] | None]]:
    """Those of the active timeline, newest first. In merge-on-read tables commits are completed compactions."""
    for instant in reversed(table.timeline.of(Action.COMPACTION, Action.COMMIT).instants):
        requested = Instant(instant.requested_time, Action.COMPACTION, State.REQUESTED)
        plan = table.requested_plan(CompactionPlan, requested)
        if plan is not None:
            yield instant, plan.extra_metadata


def _in_log_compactions(table: HudiTable) -> frozenset[FileGroupId]:
    """The file groups of pending log compactions, where log files belong to the slice that they completed on.

    The result of one that completes after the compaction was planned would count as newer than what was compacted.
    Where log files are named by their slice, it stays with that, and its executor notices the compaction.
    """
    if not table.format.logs.of_delta_commit:
        return frozenset()
    pending = table.timeline.pending().of(Action.LOG_COMPACTION)
    return frozenset(group for instant in pending for group in planned_groups(table, instant) or ())


def _candidates_of(
    table: HudiTable, view: FileView, taken: Collection[FileGroupId], file_bytes: int, partition: str
) -> list[CompactionOperation]:
    return [
        operation_of(table, newest, file_bytes)
        for group in view.file_groups(partition)
        if group.pending_compaction is None and group.pending_clustering is None
        if (newest := group.slices[0]).log_files and newest.group not in taken
    ]


def operation_of(table: HudiTable, slice_: FileSlice, file_bytes: int) -> CompactionOperation:
    """A slice as a plan names it. `file_bytes` stands in for the size of a base file that is not there yet."""
    source = source_of(table, slice_, table.options)
    whole = with_source_size(table, slice_, table.options)
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(str(log.name) for log in slice_.log_files),
        data_file_path=str(slice_.base_file.name) if slice_.base_file else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition_path,
        metrics=slice_metrics([whole], file_bytes),
        bootstrap_file_path=None if source is None else source.path,
    )
