"""Log compaction: the log files of a slice become one, as a step on the way to a compaction that rewrites base files.

What they hold is merged by the rule that readers merge them by, and written behind them; the blocks name the instants
that they stand for, and readers leave the blocks of those out. (Hudi 0.15 reads these too by default, to the same rows:
that is why only merges are taken that give the same when they are done twice.) Where anything was appended to a slice
meanwhile, its result is of no use: the plan is given up.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from skep_table.basefile import BaseFileOptions
from skep_table.commit.instants import request_plan
from skep_table.commit.markers import list_markers
from skep_table.commit.writable import prepared
from skep_table.errors import CommitConflictError, UnsupportedError
from skep_table.keys.dropped import DroppedColumns
from skep_table.logfile import HeaderKey
from skep_table.logfile.options import LogFileOptions
from skep_table.merge import MergeRule, latest_per_key
from skep_table.merge.rows import deleted, in_delete_block
from skep_table.merge.rule import Fill
from skep_table.names import join
from skep_table.options import Options
from skep_table.schema.arrow import to_arrow
from skep_table.services.compact import Compacted, check_compactable, refuse_running_writes
from skep_table.services.compact_options import LOG_COMPACT_FILES
from skep_table.services.execution import Execution, extra_of
from skep_table.services.metrics import slice_metrics
from skep_table.slices.context import SliceContext
from skep_table.slices.logs import as_table, log_rows, open_blocks
from skep_table.slices.options import MERGE_BYTES
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.timeline.plans import CompactionOperation, CompactionPlan
from skep_table.timeline.write import delete_pending
from skep_table.view import FileSlice, FileView
from skep_table.write.append import Block, LogFiles, data_block, deletes_block, pieces
from skep_table.write.candidates import CandidateFile, LogTail
from skep_table.write.context import WriteContext
from skep_table.write.options import MAX_FILE_BYTES
from skep_table.write.profile import Bucket

_PLAN_VERSION: Final = 2  # paths are file names

log = logging.getLogger("skep.compact")


def compact_logs(table: HudiTable) -> list[Compacted]:
    """Carries out what is planned already, then plans a log compaction and carries that out."""
    done = execute_pending_log_compactions(table)
    instant = schedule_log_compaction(table)
    if instant is not None and (compacted := execute_log_compaction(table.reload(), instant)) is not None:
        done.append(compacted)
    return done


def schedule_log_compaction(table: HudiTable) -> Instant | None:
    """Writes a plan onto the timeline; None when no slice has log files enough.

    CommitConflictError while a write is under way; UnsupportedError for tables whose rows are merged column by column.
    """
    with table.context.locked():
        table = prepared(table)
        check_compactable(table)
        _check_rule(table, table.options)
        refuse_running_writes(table)
        plan = plan_log_compaction(table)
        if plan is None:
            return None
        table.context.lock.ensure_held()
        return request_plan(table, Action.LOG_COMPACTION, plan)


def plan_log_compaction(table: HudiTable) -> CompactionPlan | None:
    """What a log compaction would do now, None for nothing. Changes nothing."""
    view, options = table.view(metadata=False), table.options
    planned = {
        (each.partition_path or "", each.file_id or "")
        for instant in pending_log_compactions(table)
        for each in (_operations(table, instant))
    }
    view.states  # noqa: B018 - read once, before the threads ask for it
    look = partial(_slices_of, view, options.value(LOG_COMPACT_FILES), options.value(MERGE_BYTES))
    partitions = view.partitions()
    chosen = [
        _operation(slice_, options.value(MAX_FILE_BYTES))
        for slices in table.context.runner.map(look, partitions)
        for slice_ in slices
        if slice_.group not in planned
    ]
    if not chosen:
        return None
    return CompactionPlan(operations=tuple(chosen), extra_metadata={}, version=_PLAN_VERSION)


def pending_log_compactions(table: HudiTable) -> Sequence[Instant]:
    """Planned log compactions, oldest first, those under way too."""
    return table.timeline.pending().of(Action.LOG_COMPACTION).instants


def execute_pending_log_compactions(table: HudiTable) -> list[Compacted]:
    """Carries out the planned log compactions, and those whose executor died."""
    table = table.reload()
    done = [execute_log_compaction(table, instant) for instant in pending_log_compactions(table)]
    return [compacted for compacted in done if compacted is not None]


def execute_log_compaction(table: HudiTable, instant: Instant) -> Compacted | None:
    """Carries out a planned log compaction. None when that was done or taken back meanwhile.

    CommitConflictError when a slice was written to since: the plan is taken off the timeline then.
    """
    plan = table.requested_plan(CompactionPlan, instant)
    if plan is None:
        with table.context.locked():
            delete_pending(table, instant)
        return None
    check = partial(_check_slices, plan=plan, instant=instant)
    execution = Execution.begin(table, instant, check)
    if execution is None:
        return None
    with execution, table.context.events.step("compact.logs", instant=instant.requested_time) as found:
        job = _job(execution.table, execution.instant)
        tasks = list(enumerate(_slices(execution.table, plan, instant)))
        stats = [
            stat for written in table.context.runner.map(partial(_compact_logs_of, job), tasks) for stat in written
        ]
        metadata = _metadata(stats, extra_of(execution.table, job.context.schema))
        compacted = Compacted(execution.complete(metadata), metadata)
        found.update(slices=compacted.slices)
    log.info("table %s: %s made the logs of %d slices one", table.config.name, instant.requested_time, len(tasks))
    return compacted


@dataclass(frozen=True, slots=True)
class _Job:
    table: HudiTable
    context: WriteContext
    options: Mapping[str, str] = field(default_factory=dict)


def _compact_logs_of(job: _Job, task: tuple[int, FileSlice]) -> list[WriteStat]:
    """One log file behind those of the slice: rows, then deletes."""
    number, slice_ = task
    reader = SliceContext(
        job.table, job.context.schema.with_meta(), job.context.schema.with_meta().names(), None, Options(job.options)
    )
    with open_blocks(reader, slice_.log_files) as blocks:
        if any(block.is_partial for block in blocks):
            raise UnsupportedError(
                f"table {job.table.config.name}: logs of {join(slice_.partition_path, slice_.file_id)} hold parts of"
                " rows, which are merged with base files only",
                hint="compact",
            )
        times = dict.fromkeys(time for block in blocks for time in (*block.compacted_times, block.instant_time))
        rows = latest_per_key(as_table(list(log_rows(reader, blocks))), reader.rule) if blocks else None
    if rows is None:
        return []
    context = replace(job.context, rule=reader.rule)
    more = {HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(times)}
    with LogFiles(context, _bucket(number, slice_)) as files:
        entries = in_delete_block(rows)
        kept = rows.filter(pa.array(~entries)).select(reader.schema.names()).cast(to_arrow(reader.schema))
        for part in pieces(kept, context.logs.block_bytes):
            count = int(deleted(part, reader.rule).sum())
            files.write(Block(data_block(context, slice_.partition_path, part, more), part.num_rows - count, count))
        if entries.any() or not kept.num_rows:
            taken = rows.filter(pa.array(entries))
            files.write(Block(deletes_block(context, taken, more), deletes=taken.num_rows))
        return files.close()


def _bucket(number: int, slice_: FileSlice) -> Bucket:
    names = tuple(str(log.name) for log in slice_.log_files)
    base = slice_.base_file
    version = max(log.name.version for log in slice_.log_files)
    tail = LogTail(slice_.base_instant, version, names, str(base.name) if base else "")
    file = CandidateFile(slice_.file_id, base.path if base else "", slice_.base_instant, 0, tail=tail)
    return Bucket(number, slice_.partition_path, slice_.file_id, file)


def _check_rule(table: HudiTable, options: Options) -> None:
    rule = MergeRule.of(table.config, options)
    if rule.merger is not None or {rule.log.fill, rule.base.fill} != {Fill.NOTHING}:
        raise UnsupportedError(
            f"table {table.config.name}: rows are merged column by column, their logs need the base file",
            hint="compact",
            table=table.config.name,
        )


def _slices_of(view: FileView, least: int, most_bytes: int, partition: str) -> list[FileSlice]:
    """Those with log files enough that nothing else has a claim on. What memory does not hold awaits a compaction."""
    return [
        group.slices[0]
        for group in view.file_groups(partition)
        if group.pending_compaction is None
        and group.pending_clustering is None
        and len(group.slices[0].log_files) >= max(2, least)
        and sum(log.size_bytes for log in group.slices[0].log_files) <= most_bytes
    ]


def _operation(slice_: FileSlice, file_bytes: int) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(str(log.name) for log in slice_.log_files),
        data_file_path=str(slice_.base_file.name) if slice_.base_file else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition_path,
        metrics=slice_metrics([slice_], file_bytes),
    )


def _operations(table: HudiTable, instant: Instant) -> Sequence[CompactionOperation]:
    plan = table.requested_plan(CompactionPlan, instant)
    return plan.operations if plan else ()


def _slices(table: HudiTable, plan: CompactionPlan, instant: Instant) -> list[FileSlice]:
    """As they are now, without what executors of this plan wrote. CommitConflictError where one is not as planned."""
    view = table.view(metadata=False)
    own = {marker.file_name for marker in list_markers(table.storage, instant.requested_time) or ()}
    partitions = sorted({operation.partition_path or "" for operation in plan.operations})
    view.states  # noqa: B018 - read once, before threads use it
    groups = {
        (group.partition_path, group.file_id): group
        for of_partition in table.context.threads.map(view.file_groups, partitions)
        for group in of_partition
    }
    found = []
    for operation in plan.operations:
        partition = operation.partition_path or ""
        group = groups.get((partition, operation.file_id or ""))
        slice_ = group.slices[0] if group and group.pending_compaction is None else None
        names = {str(log.name) for log in slice_.log_files} - own if slice_ is not None else None
        if slice_ is None or names != set(operation.delta_file_paths):
            place = join(partition, operation.file_id or "")
            raise CommitConflictError(
                f"table {table.config.name}: {place} was written to, or planned for a compaction, since the compaction"
                " of its logs was planned",
                hint="plan it again",
                table=table.config.name,
                path=place,
            )
        logs = tuple(log for log in slice_.log_files if str(log.name) not in own)
        found.append(replace(slice_, log_files=logs))
    return found


def _check_slices(table: HudiTable, plan: CompactionPlan, instant: Instant) -> None:
    check_compactable(table)
    _slices(table, plan, instant)


def _job(table: HudiTable, instant: Instant) -> _Job:
    schema = table.stored_schema()
    context = WriteContext(
        storage=table.storage,
        format=table.format,
        instant_time=instant.requested_time,
        operation=WriteOperation.LOG_COMPACT,
        schema=schema,
        rule=MergeRule.of(table.config, table.options).with_defaults(schema),
        files=BaseFileOptions.of(table.options, meta=table.config.populate_meta_fields),
        max_file_bytes=table.options.value(MAX_FILE_BYTES),
        combine=False,
        logs=LogFileOptions.of(table.options),
        dropped=DroppedColumns.of(table.config),
    )
    return _Job(table, context, dict(table.options))


def _metadata(stats: Sequence[WriteStat], extra: Mapping[str, str]) -> CommitMetadata:
    written: dict[str, list[WriteStat]] = defaultdict(list)
    for stat in stats:
        written[stat.partition_path].append(stat)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(found) for path, found in sorted(written.items())},
        operation_type=WriteOperation.LOG_COMPACT,
        extra_metadata=extra,
    )
