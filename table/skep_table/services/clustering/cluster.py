"""Clustering: rewrites small files into large ones, sorted so that queries read neighbouring rows.

A plan (a requested replace commit) names groups of file slices; carrying it out writes new file groups and replaces the
old ones. Readers and writers go on meanwhile: a plan whose input was written to is given up, never a write undone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from skep_format.errors import UnsupportedError
from skep_format.hashing_metadata import HashingMetadata
from skep_format.names import FileGroupId
from skep_format.options import Options
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteOperation
from skep_format.timeline.plans import ClusteringGroup, ClusteringPlan, RequestedReplaceMetadata
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.undo.recovery import finish_interrupted
from skep_table.commit.writable import check_writable, prepared
from skep_table.keys.buckets import GroupNames, hash_fields_of_key
from skep_table.keys.hash_rings import groups_after, has_rings, mark, planned_rings, resizes_of
from skep_table.keys.ring_targets import RingTargets
from skep_table.plug_ins import find_strategy
from skep_table.services.clustering.files import ClusterJob, GroupTask, cluster_group
from skep_table.services.clustering.options import (
    EXECUTION_STRATEGIES,
    EXECUTION_STRATEGY,
    RING_EXECUTION_STRATEGY,
    SORT_COLUMNS,
    TARGET_FILE_BYTES,
    known_class,
)
from skep_table.services.clustering.plan import check_sort_columns, plan_clustering
from skep_table.services.execution import Execution, delete_unreadable, execute_each, schedule
from skep_table.services.planned_slices import PlannedSlices, inputs_of
from skep_table.services.rewriting import Rewritten, context_of, metadata_of
from skep_table.services.strategies import EXECUTION_GROUP
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.planning.options import INDEX_TYPE

log = logging.getLogger("skep.cluster")


def cluster(table: HudiTable) -> list[Rewritten]:
    """Executes pending plans, then plans a clustering and executes it."""
    done = execute_pending_clusterings(table)
    return done + execute_each(table, [schedule_clustering(table)], execute_clustering)


def schedule_clustering(table: HudiTable) -> Instant | None:
    """Writes a plan onto the timeline; None when there is nothing to cluster."""
    with table.context.locked():
        table = finish_interrupted(prepared(table))
        check_clusterable(table, table.options)
        check_plaintext(table, logs=False)
        plan = plan_clustering(table)
        if plan is None:
            return None
        instant = schedule(table, table.layout.clustering, plan)
    table.context.events.emit("cluster.scheduled", instant=instant.requested_time)
    return instant


def check_clusterable(table: HudiTable, options: Options) -> None:
    """UnsupportedError for a table that is not written, or whose file groups are made by the keys."""
    check_writable(table.config, table.storage.root)
    if GroupNames.of(table.config, options).by_key and not has_rings(table):
        raise UnsupportedError(
            f"table {table.config.name} has a simple bucket index: its file groups are made by the keys, not by size",
            table=table.config.name,
            option=INDEX_TYPE.key,
        )


def pending_clusterings(table: HudiTable) -> list[Instant]:
    """Pending clusterings, oldest first: requested and inflight."""
    return [i for i in table.timeline.pending().of(Action.REPLACE_COMMIT, Action.CLUSTERING) if is_clustering(table, i)]


def execute_pending_clusterings(table: HudiTable) -> list[Rewritten]:
    """Executes the pending clusterings, also those whose executor died."""
    table = table.reload()
    return execute_each(table, pending_clusterings(table), execute_clustering)


def execute_clustering(table: HudiTable, instant: Instant) -> Rewritten | None:
    """Executes a planned clustering. None when it was completed or rolled back meanwhile.

    CommitConflictError when a file that it is to replace was written to since: the plan is taken off the timeline then.
    """
    plan = _plan_of(table, instant)
    if plan is None:
        delete_unreadable(table, instant, _plan_of)
        return None
    inputs = PlannedSlices(table, instant, inputs_of(plan.slices), groups_after(table, plan.input_groups, instant))
    resizes = resizes_of(table, plan.input_groups, instant)

    def check(fresh: HudiTable) -> None:
        check_writable(fresh.config, fresh.storage.root)
        inputs.check(fresh)
        planned_rings(fresh, instant, resizes)

    execution = Execution.begin(table, instant, check)
    if execution is None:
        return None
    with execution, table.context.events.step("cluster", instant=instant.requested_time) as found:
        table = execution.table
        job = _job(table, execution.instant, plan)
        rings = planned_rings(table, instant, resizes)
        written = table.context.runner.map(partial(cluster_group, job), _tasks(job, plan, inputs.slices, rings))
        metadata = metadata_of(table, job.context, [stat for stats in written for stat in stats])
        clustered = execution.complete(replace(metadata, partition_to_replace_file_ids=_replaced(inputs.slices)))
        found.update(replaced=clustered.replaced, files=clustered.slices)
    try:
        mark(clustered.table, instant.requested_time, resizes)
    except OSError:  # the next writer does it
        log.exception("table %s: %s has no markers of its hash rings", table.config.name, instant.requested_time)
    name, time = table.config.name, instant.requested_time
    log.info("table %s: %s clustered %d file groups into %d", name, time, clustered.replaced, clustered.slices)
    return clustered


def _plan_of(table: HudiTable, instant: Instant) -> ClusteringPlan | None:
    requested = table.requested_plan(RequestedReplaceMetadata, instant)
    return requested.clustering_plan if requested else None


def _replaced(groups: Iterable[FileGroupId]) -> dict[str, tuple[str, ...]]:
    """The file ids by partition path."""
    found: dict[str, list[str]] = defaultdict(list)
    for partition, file_id in groups:
        found[partition].append(file_id)
    return {partition: tuple(ids) for partition, ids in sorted(found.items())}


def _job(table: HudiTable, instant: Instant, plan: ClusteringPlan) -> ClusterJob:
    params = dict(plan.strategy.strategy_params or {}) if plan.strategy else {}
    name = known_class("Spark", "Java", "Flink")((plan.strategy and plan.strategy.strategy_class_name) or "")
    strategy = (
        None
        if name in ("", RING_EXECUTION_STRATEGY, *EXECUTION_STRATEGIES)
        else find_strategy(EXECUTION_GROUP, name, EXECUTION_STRATEGY, EXECUTION_STRATEGIES)
    )
    columns = Options(params).value(SORT_COLUMNS)
    context = context_of(table, instant, WriteOperation.CLUSTER, table.options.value(TARGET_FILE_BYTES))
    check_sort_columns(table, columns, context.schema)
    return ClusterJob(table, instant, context, params, strategy)


def _tasks(
    job: ClusterJob,
    plan: ClusteringPlan,
    slices: Mapping[FileGroupId, FileSlice],
    rings: Mapping[str, HashingMetadata],
) -> list[GroupTask]:
    """Largest group first."""
    tasks = []
    for number, group in enumerate(plan.input_groups):
        targets = _targets(job, group, rings)
        tasks += [replace(task, targets=targets) for task in _tasks_of_group(number, group, slices)]
    return sorted(tasks, key=lambda task: -sum(slice_.size_bytes for slice_ in task.slices))


def _targets(job: ClusterJob, group: ClusteringGroup, rings: Mapping[str, HashingMetadata]) -> RingTargets | None:
    """Where the rows of the groups of a resize go; None for those of other clusterings."""
    for partition, resize in resizes_of(job.table, (group,), job.instant).items():
        fields = hash_fields_of_key(job.table.config, job.table.options)
        return RingTargets.of(rings[partition], resize.children, fields)
    return None


def _tasks_of_group(number: int, group: ClusteringGroup, current: Mapping[FileGroupId, FileSlice]) -> list[GroupTask]:
    """One, unless another's plan has slices of several partitions in one group."""
    found: dict[str, list[FileSlice]] = defaultdict(list)
    for info in group.slices:
        found[info.group.partition_path].append(current[info.group])
    outputs = max(1, (group.num_output_file_groups or 1) // max(1, len(found)))
    return [GroupTask(number, partition, tuple(slices), outputs) for partition, slices in found.items()]
