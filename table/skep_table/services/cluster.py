"""Clustering: rewrites small files into large ones, sorted so that queries read neighbouring rows.

A plan (a requested replace commit) names groups of file slices; carrying it out writes new file groups and replaces the
old ones. Readers and writers go on meanwhile: a plan whose input was written to is given up, never a write undone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from skep_table.basefile import BaseFileOptions
from skep_table.commit.changes import is_clustering
from skep_table.commit.instants import request_plan
from skep_table.commit.recovery import finish_interrupted
from skep_table.commit.writable import check_writable, prepared
from skep_table.errors import CommitConflictError, UnsupportedError
from skep_table.keys.buckets import GroupNames
from skep_table.merge import MergeRule
from skep_table.names import FileGroupId, join
from skep_table.options import Options
from skep_table.services.cluster_files import ClusterJob, GroupTask, cluster_group
from skep_table.services.cluster_options import EXECUTION_STRATEGY, SORT_COLUMNS, TARGET_FILE_BYTES, known_class
from skep_table.services.cluster_plan import check_sort_columns, plan_clustering
from skep_table.services.execution import Execution, extra_of
from skep_table.services.strategies import EXECUTION_GROUP, find_strategy
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.timeline.plans import ClusteringGroup, ClusteringPlan, RequestedReplaceMetadata, SliceInfo
from skep_table.timeline.write import delete_pending
from skep_table.view import FileSlice
from skep_table.write.context import WriteContext
from skep_table.write.options import INDEX_TYPE

log = logging.getLogger("skep.cluster")


@dataclass(frozen=True, slots=True)
class Clustered:
    """A completed clustering."""

    instant: Instant
    metadata: CommitMetadata

    @property
    def replaced(self) -> int:
        """File groups that it replaced."""
        return sum(map(len, (self.metadata.partition_to_replace_file_ids or {}).values()))


def cluster(table: HudiTable) -> list[Clustered]:
    """Executes pending plans, then plans a clustering and executes it."""
    done = execute_pending_clusterings(table)
    instant = schedule_clustering(table)
    if instant is not None and (clustered := execute_clustering(table.reload(), instant)) is not None:
        done.append(clustered)
    return done


def schedule_clustering(table: HudiTable) -> Instant | None:
    """Writes a plan onto the timeline; None when there is nothing to cluster."""
    with table.context.locked():
        table = finish_interrupted(prepared(table))
        check_clusterable(table, table.options)
        plan = plan_clustering(table)
        if plan is None:
            return None
        table.context.lock.ensure_held()
        instant = request_plan(table, Action.REPLACE_COMMIT, plan)
    table.context.events.emit("cluster.scheduled", instant=instant.requested_time)
    return instant


def check_clusterable(table: HudiTable, options: Options) -> None:
    """UnsupportedError for a table that is not written, or whose file groups are made by the keys."""
    check_writable(table.config, table.storage.root)
    if GroupNames.of(table.config, options).by_key:
        raise UnsupportedError(
            f"table {table.config.name} has a bucket index: its file groups are made by the keys, not by size",
            table=table.config.name,
            option=INDEX_TYPE.key,
        )


def pending_clusterings(table: HudiTable) -> list[Instant]:
    """Pending clusterings, oldest first: requested and inflight."""
    return [i for i in table.timeline.pending().of(Action.REPLACE_COMMIT, Action.CLUSTERING) if is_clustering(table, i)]


def execute_pending_clusterings(table: HudiTable) -> list[Clustered]:
    """Executes the pending clusterings, also those whose executor died."""
    table = table.reload()
    done = [execute_clustering(table, instant) for instant in pending_clusterings(table)]
    return [clustered for clustered in done if clustered is not None]


def execute_clustering(table: HudiTable, instant: Instant) -> Clustered | None:
    """Executes a planned clustering. None when it was completed or rolled back meanwhile.

    CommitConflictError when a file that it is to replace was written to since: the plan is taken off the timeline then.
    """
    plan = _plan_of(table, instant)
    if plan is None:
        _forget(table, instant)
        return None
    check = partial(_check_inputs, plan=plan)
    execution = Execution.begin(table, instant, check)
    if execution is None:
        return None
    with execution, table.context.events.step("cluster", instant=instant.requested_time) as found:
        job = _job(execution.table, execution.instant, plan)
        tasks = _tasks(execution.table, plan)
        stats = table.context.runner.map(partial(cluster_group, job), tasks)
        metadata = _metadata(
            plan, [stat for written in stats for stat in written], extra_of(execution.table, job.context.schema)
        )
        done = execution.complete(metadata)
        clustered = Clustered(done, metadata)
        found.update(replaced=clustered.replaced, files=len(metadata.stats))
    name, time = table.config.name, instant.requested_time
    log.info("table %s: %s clustered %d file groups into %d", name, time, clustered.replaced, len(metadata.stats))
    return clustered


def _plan_of(table: HudiTable, instant: Instant) -> ClusteringPlan | None:
    requested = table.requested_plan(RequestedReplaceMetadata, instant)
    return requested.clustering_plan if requested else None


def _forget(table: HudiTable, instant: Instant) -> None:
    """Deletes the instant of a plan that can't be read: it was never finished, or is deleted already."""
    with table.context.locked():
        if _plan_of(table.reload(), instant) is None:
            delete_pending(table, instant)


def _slices_of(plan: ClusteringPlan) -> dict[str, dict[str, SliceInfo]]:
    """Partition path → file id → slice."""
    found: dict[str, dict[str, SliceInfo]] = defaultdict(dict)
    for group in plan.input_groups:
        for slice_ in group.slices:
            found[slice_.partition_path or ""][slice_.file_id or ""] = slice_
    return found


def _check_inputs(table: HudiTable, plan: ClusteringPlan) -> None:
    """The slices to replace are still those that are read."""
    check_writable(table.config, table.storage.root)
    view = table.view(metadata=False)
    for partition, planned in _slices_of(plan).items():
        current = {slice_.file_id: slice_ for slice_ in view.slices(partition) if slice_.file_id in planned}
        for file_id, info in planned.items():
            slice_ = current.get(file_id)
            if slice_ is None or _names(slice_) != _planned_names(info):
                raise CommitConflictError(
                    f"table {table.config.name}: {join(partition, file_id)} was written to or replaced since its"
                    " clustering was planned",
                    hint="plan it again",
                    table=table.config.name,
                    path=join(partition, file_id),
                )


def _names(slice_: FileSlice) -> set[str]:
    base = {str(slice_.base_file.name)} if slice_.base_file else set()
    return base | {str(log.name) for log in slice_.log_files}


def _planned_names(info: SliceInfo) -> set[str]:
    return {path.rpartition("/")[2] for path in (info.data_file_path, *info.delta_file_paths) if path}


def _job(table: HudiTable, instant: Instant, plan: ClusteringPlan) -> ClusterJob:
    params = dict(plan.strategy.strategy_params or {}) if plan.strategy else {}
    name = known_class("Spark", "Java", "Flink")((plan.strategy and plan.strategy.strategy_class_name) or "")
    built_in = EXECUTION_STRATEGY.default
    strategy = None if name in ("", built_in) else find_strategy(EXECUTION_GROUP, name, EXECUTION_STRATEGY, [built_in])
    columns = Options(params).value(SORT_COLUMNS)
    check_sort_columns(table, columns)
    schema = table.stored_schema()
    context = WriteContext(
        storage=table.storage,
        format=table.format,
        instant_time=instant.requested_time,
        operation=WriteOperation.CLUSTER,
        schema=schema,
        rule=MergeRule.of(table.config, table.options).with_defaults(schema),
        files=BaseFileOptions.of(table.options, meta=table.config.populate_meta_fields),
        max_file_bytes=table.options.value(TARGET_FILE_BYTES),
        combine=False,
    )
    return ClusterJob(table, context, params, dict(table.options), strategy)


def _tasks(table: HudiTable, plan: ClusteringPlan) -> list[GroupTask]:
    """Largest group first."""
    view = table.view(metadata=False)
    current = {slice_.group: slice_ for partition in _slices_of(plan) for slice_ in view.slices(partition)}
    tasks = [task for number, group in enumerate(plan.input_groups) for task in _tasks_of_group(number, group, current)]
    return sorted(tasks, key=lambda task: -sum(slice_.size_bytes for slice_ in task.slices))


def _tasks_of_group(number: int, group: ClusteringGroup, current: Mapping[FileGroupId, FileSlice]) -> list[GroupTask]:
    """One, unless another's plan has slices of several partitions in one group."""
    found: dict[str, list[FileSlice]] = defaultdict(list)
    for info in group.slices:
        partition = info.partition_path or ""
        found[partition].append(current[FileGroupId(partition, info.file_id or "")])
    outputs = max(1, (group.num_output_file_groups or 1) // max(1, len(found)))
    return [GroupTask(number, partition, tuple(slices), outputs) for partition, slices in found.items()]


def _metadata(plan: ClusteringPlan, stats: list[WriteStat], extra: Mapping[str, str]) -> CommitMetadata:
    written: dict[str, list[WriteStat]] = defaultdict(list)
    for stat in stats:
        written[stat.partition_path].append(stat)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(found) for path, found in sorted(written.items())},
        operation_type=WriteOperation.CLUSTER,
        extra_metadata=extra,
        partition_to_replace_file_ids={path: tuple(ids) for path, ids in sorted(_slices_of(plan).items())},
    )
