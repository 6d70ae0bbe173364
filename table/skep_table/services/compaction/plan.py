"""Which file slices a compaction folds into new base files, and of which a log compaction merges the log files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from skep_format.names import FileGroupId
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CompactionOperation, CompactionPlan, CompactionStrategy
from skep_table.commit.concurrency.changes import planned_groups
from skep_table.query.cleaned import refuse_lost_files
from skep_table.services.compaction.options import LOG_COMPACT_FILES
from skep_table.services.plan_scope import coverage_of, options_key, uncovered_partitions
from skep_table.services.planned_slices import inputs_of
from skep_table.services.rewriting import slice_metrics
from skep_table.slices.bootstrap import source_of, with_source_size
from skep_table.slices.options import MERGE_BYTES
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
    view, file_bytes = table.view(metadata=False), most_bytes(table.config, table.options)
    partitions = uncovered_partitions(table, view, _earlier_plans(table))
    taken = _in_log_compactions(table)
    operations = _candidates(table, view, partitions, taken, lambda slice_: operation_of(table, slice_, file_bytes))
    chosen = choose(operations)
    if not chosen:
        return None
    left = {each.group for each in operations} - {each.group for each in chosen} | taken
    return CompactionPlan(
        operations=tuple(chosen),
        extra_metadata=coverage_of(table, view, (group.partition_path for group in left)),
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


def _candidates(
    table: HudiTable,
    view: FileView,
    partitions: Sequence[str],
    taken: Collection[FileGroupId],
    operation: Callable[[FileSlice], CompactionOperation | None],
) -> list[CompactionOperation]:
    """The operations of the newest slices that have log files, and on which nothing else has a claim."""
    refuse_lost_files(table, view, partitions)

    def of_partition(partition: str) -> list[CompactionOperation]:
        groups = (each for each in view.file_groups(partition) if each.is_free)
        slices = (
            group.slices[0] for group in groups if group.slices[0].log_files and group.slices[0].group not in taken
        )
        return [found for slice_ in slices if (found := operation(slice_)) is not None]

    return list(chain.from_iterable(table.context.threads.map(of_partition, partitions)))


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


_COMPACTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
_CHOOSE_CANDIDATES: Final = (LOG_COMPACT_FILES.key, MERGE_BYTES.key)


def plan_log_compaction(table: HudiTable) -> CompactionPlan | None:
    """What a log compaction would do now, None for nothing. Changes nothing.

    Lists the partitions that changed since an earlier plan with the same options (see `plan_scope`).
    """
    view, options = table.view(metadata=False), table.options
    plans = _earlier_log_plans(table)
    pending = {group for instant, plan in plans if not instant.is_completed for group in inputs_of(plan.operations)}
    merged: dict[FileGroupId, frozenset[str]] = {}  # by the last completed one: readers take its result for these files
    for instant, plan in plans:
        if instant.is_completed:
            merged = {**inputs_of(plan.operations), **merged}
    least, most = max(2, options.value(LOG_COMPACT_FILES)), options.value(MERGE_BYTES)
    file_bytes = most_bytes(table.config, options)

    def operation(slice_: FileSlice) -> CompactionOperation | None:
        """What memory does not hold awaits a compaction."""
        count = len({str(log.name) for log in slice_.log_files} - merged.get(slice_.group, frozenset()))
        fits = count >= least and sum(log.size_bytes for log in slice_.log_files) <= most
        return operation_of(table, slice_, file_bytes) if fits else None

    chosen_by = options_key(options, _CHOOSE_CANDIDATES)
    earlier = ((instant, plan.extra_metadata) for instant, plan in plans)
    partitions = uncovered_partitions(table, view, earlier, chosen_by)
    operations = _candidates(table, view, partitions, pending, operation)
    if not operations:
        return None
    return CompactionPlan(
        operations=tuple(operations),
        extra_metadata=coverage_of(table, view, (group.partition_path for group in pending), chosen_by),
        version=PLAN_VERSION,
        strategy=CompactionStrategy(compactor_class_name=_COMPACTOR, strategy_params={}),
        preserve_hoodie_metadata=True,
        missing_schedule_partitions=(),
    )


def _earlier_log_plans(table: HudiTable) -> list[tuple[Instant, CompactionPlan]]:
    """Those of the active timeline, newest first. Log compactions complete as delta commits."""
    times = table.timeline.files.log_compactions
    instants = table.timeline.of(Action.LOG_COMPACTION, Action.DELTA_COMMIT).instants
    found = [instant for instant in reversed(instants) if instant.requested_time in times]
    requested = [Instant(instant.requested_time, Action.LOG_COMPACTION, State.REQUESTED) for instant in found]
    plans = table.context.threads.map(partial(table.requested_plan, CompactionPlan), requested)
    return [(instant, plan) for instant, plan in zip(found, plans, strict=True) if plan is not None]
