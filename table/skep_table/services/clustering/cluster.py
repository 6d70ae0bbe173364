"""Clustering: rewrites small files into large ones, sorted so that queries read neighbouring rows.

A plan (a requested replace commit) names groups of file slices; carrying it out writes new file groups and replaces the
old ones. Readers and writers go on meanwhile: a plan whose input was written to is given up, never a write undone.

A group is rewritten by a function of plain values, independent of Spark. Rows keep their meta columns but for the file
name. Without sort columns rows pass through; with them they are held, on disk where they are many.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from skep_format.basefile import OpenBaseFile, can_copy, open_base, read_footer
from skep_format.errors import UnsupportedError
from skep_format.hashing_metadata import HashingMetadata
from skep_format.names import FileGroupId, MarkerType
from skep_format.options import Options
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteOperation, WriteStat
from skep_format.timeline.plans import ClusteringGroup, ClusteringPlan, RequestedReplaceMetadata
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.undo.recovery import finish_interrupted
from skep_table.commit.writable import check_writable, prepared
from skep_table.keys.buckets import GroupNames, hash_fields_of_key
from skep_table.keys.hash_rings import RingTargets, groups_after, has_rings, mark, planned_rings, resizes_of
from skep_table.keys.stored import StoredKeys
from skep_table.keys.unrecorded_buckets import unrecorded_bucket
from skep_table.plug_ins import find_strategy
from skep_table.services.clustering.options import (
    CURVE,
    EXECUTION_STRATEGIES,
    EXECUTION_STRATEGY,
    RING_EXECUTION_STRATEGY,
    SORT_COLUMNS,
    TARGET_FILE_BYTES,
    known_class,
)
from skep_table.services.clustering.plan import check_sort_columns, plan_clustering
from skep_table.services.clustering.row_order import RowSpool, order_of
from skep_table.services.execution import Execution, PlannedSlices, delete_unreadable, execute_each, inputs_of, schedule
from skep_table.services.rewriting import Rewritten, candidate_of, context_of, metadata_of
from skep_table.services.strategies import EXECUTION_GROUP, ExecutionStrategy
from skep_table.slices import read_slice
from skep_table.slices.history import history_until
from skep_table.slices.options import MERGE_BYTES, SPILL_FOLDER
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.context import WriteContext
from skep_table.write.output.files import BaseFiles, OpenFile, renamed
from skep_table.write.planning.options import INDEX_TYPE
from skep_table.write.planning.profile import Bucket, new_file_id

log = logging.getLogger("skep.cluster")

# Row groups whose pages have less than this part of the bytes that a row group is written from are joined with others.
_SMALL: Final = 0.125


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Slices of one partition that become `outputs` files; `targets`: the hash of a key decides which."""

    number: int
    partition_path: str
    slices: tuple[FileSlice, ...]
    outputs: int
    targets: RingTargets | None = None


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """What all groups of one clustering share."""

    table: HudiTable
    instant: Instant
    context: WriteContext
    params: Mapping[str, str]
    strategy: ExecutionStrategy | None = None


class _RowGroup(NamedTuple):
    """A row group of an open base file, to be copied."""

    held: OpenBaseFile
    number: int
    num_rows: int


def cluster_group(job: ClusterJob, task: GroupTask) -> tuple[WriteStat, ...]:
    """Writes the group's rows into new file groups; none when it has no rows."""
    rows = itertools.chain.from_iterable(map(partial(_rows, job), task.slices))
    if task.targets is not None:
        return _write_by_hash(job, task, task.targets, _in_order(job, rows))
    if job.strategy is not None:
        return _write(job, task, job.strategy(rows, job.params), _rows_in_footers(job, task))
    given = Options(job.params)
    columns = given.value(SORT_COLUMNS)
    if not columns:
        parts = itertools.chain.from_iterable(map(partial(_parts, job), task.slices))
        return _write(job, task, parts, _rows_in_footers(job, task))
    with _spool(job, columns) as spool:
        return _write(job, task, _ordered(job, spool, rows), spool.rows)


def _spool(job: ClusterJob, columns: Sequence[str]) -> RowSpool:
    options = job.table.options
    return RowSpool(columns, options.value(MERGE_BYTES), options.value(SPILL_FOLDER))


def _ordered(job: ClusterJob, spool: RowSpool, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, which the spool takes first, in the plan's order."""
    for batch in rows:
        spool.add(batch)
    given = Options(job.params)
    curve = given.value(CURVE) if given.is_set(CURVE) else job.table.options.value(CURVE)
    return spool.ordered(partial(order_of, curve=curve))


def _in_order(job: ClusterJob, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in the plan's order, if it has one."""
    columns = Options(job.params).value(SORT_COLUMNS)
    if not columns:
        yield from rows
        return
    with _spool(job, columns) as spool:
        yield from _ordered(job, spool, rows)


def _write_by_hash(
    job: ClusterJob, task: GroupTask, targets: RingTargets, rows: Iterator[pa.RecordBatch]
) -> tuple[WriteStat, ...]:
    """A file for each target that gets rows."""
    files = BaseFiles(job.context, Bucket(task.number, task.partition_path, targets.file_ids[0]))
    keys = StoredKeys.of(job.table.config, job.context.schema)
    found: dict[int, OpenFile] = {}
    with ExitStack() as stack:
        for batch in rows:
            places = targets.of_keys(keys.of_rows(batch))
            for place in np.unique(places).tolist():
                if place not in found:
                    opened = files.open(targets.file_ids[place], MarkerType.CREATE)
                    found[place] = stack.enter_context(opened)
                file = found[place]
                file.writer.write(renamed(batch.filter(pa.array(places == place)), file.name))
    return tuple(files.stat(found[place], num_inserts=found[place].rows) for place in sorted(found))


def _rows(job: ClusterJob, slice_: FileSlice) -> Iterator[pa.RecordBatch]:
    history = history_until(job.table, job.context.instant_time)
    return read_slice(job.table, slice_, schema=job.context.schema.with_meta(), history=history)


def _parts(job: ClusterJob, slice_: FileSlice) -> Iterator[pa.RecordBatch | _RowGroup]:
    """The rows of a slice that stay in their order: its row groups as they are, but for those that are small.

    A row group is to be written before the next part is taken.
    """
    base, schema, options = slice_.base_file, job.context.schema.with_meta(), job.context.files
    if base is None or slice_.log_files or not candidate_of(job.table, slice_, job.context.instant_time).is_plain:
        yield from _rows(job, slice_)
        return
    with open_base(job.table.storage, base.path, base.known_size) as held:
        if not can_copy(held, schema, options) or held.row_groups is None:
            yield from _rows(job, slice_)
            return
        for number, size in enumerate(held.row_groups.sizes):
            rows = held.row_groups.rows[number]
            if size >= options.block_bytes * _SMALL:
                yield _RowGroup(held, number, rows)
            else:
                yield from held.rows(schema=schema, groups=(number,), batch_rows=max(1, rows))


def _rows_in_footers(job: ClusterJob, task: GroupTask) -> int:
    """About as many rows as there are: inserts that lie in logs are not counted."""
    paths = [slice_.base_file.path for slice_ in task.slices if slice_.base_file is not None]
    return sum(read_footer(job.table.storage, path).num_rows for path in paths)


def _write(
    job: ClusterJob, task: GroupTask, parts: Iterator[pa.RecordBatch | _RowGroup], rows: int
) -> tuple[WriteStat, ...]:
    bucket = Bucket(task.number, task.partition_path, new_file_id())
    files = BaseFiles(job.context, bucket)
    prefix = bucket.file_id.rpartition("-")[0]
    stats = []
    share = max(1, -(-rows // task.outputs))
    for number, of_file in itertools.groupby(_numbered(parts, share), key=itemgetter(0)):
        with files.open(f"{prefix}-{number}", MarkerType.CREATE) as file:
            for _, part in of_file:
                if isinstance(part, _RowGroup):
                    file.writer.copy(part.held, part.number)
                else:
                    file.writer.write(renamed(part, file.name))
        stats.append(files.stat(file, num_inserts=file.rows))
    return tuple(stats)


def _numbered(
    parts: Iterator[pa.RecordBatch | _RowGroup], share: int
) -> Iterator[tuple[int, pa.RecordBatch | _RowGroup]]:
    """Batches cut where a file ends, and row groups whole, each with the number of its file."""
    at = 0
    for part in parts:
        if isinstance(part, _RowGroup):
            yield (at + part.num_rows // 2) // share, part
            at += part.num_rows
            continue
        start = 0
        while start < part.num_rows:
            count = min(part.num_rows - start, share - at % share)
            yield at // share, part.slice(start, count)
            at += count
            start += count


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
    by_key = GroupNames.of(table.config, options).by_key or unrecorded_bucket(table) is not None
    if by_key and not has_rings(table):
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
        by_partition = groupby(sorted(inputs.slices, key=itemgetter(0)), key=itemgetter(0))
        replaced = {partition: tuple(file_id for _, file_id in groups) for partition, groups in by_partition}
        clustered = execution.complete(replace(metadata, partition_to_replace_file_ids=replaced))
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
    """Largest first. A group is one, unless another's plan has slices of several partitions in it."""
    tasks = []
    for number, group in enumerate(plan.input_groups):
        found: dict[str, list[FileSlice]] = defaultdict(list)
        for info in group.slices:
            found[info.group.partition_path].append(slices[info.group])
        outputs = max(1, (group.num_output_file_groups or 1) // max(1, len(found)))
        targets = _targets(job, group, rings)
        tasks += [GroupTask(number, path, tuple(of_path), outputs, targets) for path, of_path in found.items()]
    return sorted(tasks, key=lambda task: -sum(slice_.size_bytes for slice_ in task.slices))


def _targets(job: ClusterJob, group: ClusteringGroup, rings: Mapping[str, HashingMetadata]) -> RingTargets | None:
    """Where the rows of the groups of a resize go; None for those of other clusterings."""
    for partition, resize in resizes_of(job.table, (group,), job.instant).items():
        fields = hash_fields_of_key(job.table.config, job.table.options)
        return RingTargets.of(rings[partition], resize.children, fields)
    return None
