"""Which file slices a log compaction takes: those with log files enough that no log compaction has merged yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from skep_format.names import FileGroupId
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CompactionPlan, CompactionStrategy
from skep_table.query.named import refuse_lost_files
from skep_table.services.compaction.options import LOG_COMPACT_FILES
from skep_table.services.compaction.plan import PLAN_VERSION, operation_of
from skep_table.services.plan_scope import coverage_of, options_key, uncovered_partitions
from skep_table.slices.options import MERGE_BYTES
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView
from skep_table.write.planning.options import most_bytes

_COMPACTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
_CHOOSE_CANDIDATES: Final = (LOG_COMPACT_FILES.key, MERGE_BYTES.key)


def plan_log_compaction(table: HudiTable) -> CompactionPlan | None:
    """What a log compaction would do now, None for nothing. Changes nothing.

    Lists the partitions that changed since an earlier plan with the same options (see `plan_scope`).
    """
    view, options = table.view(metadata=False), table.options
    plans = _earlier_plans(table)
    pending = {group for instant, plan in plans if not instant.is_completed for group in inputs_of(plan)}
    chosen_by = options_key(options, _CHOOSE_CANDIDATES)
    earlier = ((instant, plan.extra_metadata) for instant, plan in plans)
    partitions = uncovered_partitions(table, earlier, chosen_by)
    if partitions is None:
        partitions = view.partitions()
    refuse_lost_files(table, view, partitions)
    candidates_of = partial(
        _candidates_of, view, _merged(plans), pending, options.value(LOG_COMPACT_FILES), options.value(MERGE_BYTES)
    )
    found = table.context.threads.map(candidates_of, partitions)
    slices = [slice_ for of_partition in found for slice_ in of_partition]
    if not slices:
        return None
    return CompactionPlan(
        operations=tuple(operation_of(table, slice_, most_bytes(table.config, options)) for slice_ in slices),
        extra_metadata=coverage_of(table, view, (group.partition_path for group in pending), chosen_by),
        version=PLAN_VERSION,
        strategy=CompactionStrategy(compactor_class_name=_COMPACTOR, strategy_params={}),
        preserve_hoodie_metadata=True,
        missing_schedule_partitions=(),
    )


def _earlier_plans(table: HudiTable) -> list[tuple[Instant, CompactionPlan]]:
    """Those of the active timeline, newest first. Log compactions complete as delta commits."""
    times = table.timeline.files.log_compactions
    instants = table.timeline.of(Action.LOG_COMPACTION, Action.DELTA_COMMIT).instants
    found = [instant for instant in reversed(instants) if instant.requested_time in times]
    requested = [Instant(instant.requested_time, Action.LOG_COMPACTION, State.REQUESTED) for instant in found]
    plans = table.context.threads.map(partial(table.requested_plan, CompactionPlan), requested)
    return [(instant, plan) for instant, plan in zip(found, plans, strict=True) if plan is not None]


def inputs_of(plan: CompactionPlan) -> dict[FileGroupId, frozenset[str]]:
    """The names of the files of each slice that a plan takes."""
    return {
        FileGroupId(each.partition_path or "", each.file_id or ""): frozenset(
            path.rpartition("/")[2] for path in (each.data_file_path, *each.delta_file_paths) if path
        )
        for each in plan.operations
    }


def _merged(plans: Sequence[tuple[Instant, CompactionPlan]]) -> Mapping[FileGroupId, frozenset[str]]:
    """The inputs of the last completed log compaction of each file group: readers take its result for them."""
    found: dict[FileGroupId, frozenset[str]] = {}
    for instant, plan in plans:
        if instant.is_completed:
            found = {**inputs_of(plan), **found}
    return found


def _candidates_of(
    view: FileView,
    merged: Mapping[FileGroupId, frozenset[str]],
    pending: Collection[FileGroupId],
    least: int,
    most_bytes: int,
    partition: str,
) -> list[FileSlice]:
    """Those that nothing else has a claim on. What memory does not hold awaits a compaction."""
    found = []
    for group in view.file_groups(partition):
        slice_ = group.slices[0]
        if group.pending_compaction is not None or group.pending_clustering is not None or slice_.group in pending:
            continue
        count = len({str(log.name) for log in slice_.log_files} - merged.get(slice_.group, frozenset()))
        if count >= max(2, least) and sum(log.size_bytes for log in slice_.log_files) <= most_bytes:
            found.append(slice_)
    return found
