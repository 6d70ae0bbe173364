"""Compaction: merges log files into new base files, so that reading a merge-on-read table stays cheap.

A plan (a requested compaction) names file slices. What completes from then on belongs to the slice that begins with the
plan's instant, and readers merge it onto the slice before, so the plan can be carried out while both go on.

Log compaction: the log files of a slice become one, as a step on the way. What they hold is merged by the rule that
readers merge them by, and written behind them; the blocks name the instants that they stand for, and readers leave the
blocks of those out. (Hudi 0.15 reads these too by default, to the same rows: that is why only merges are taken that
give the same when they are done twice.) Where anything was appended to a slice meanwhile, its result is of no use: the
plan is given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from skep_format.basefile import open_base
from skep_format.errors import CommitConflictError, FormatError, InputError, UnsupportedError
from skep_format.instant_time import BEFORE_ALL
from skep_format.logfile import HeaderKey
from skep_format.logfile.options import LogFileOptions
from skep_format.names import BaseFileName, LogFileName, MarkerType, join
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import Schema
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteOperation, WriteStat, runtime_stats
from skep_format.timeline.plans import CompactionOperation
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_writable, prepared
from skep_table.merge import MergeRule, Updates, latest_per_key
from skep_table.merge.rows import by_columns_brought, deleted, in_delete_block
from skep_table.merge.rule import Fill
from skep_table.services.compaction.plan import (
    Choose,
    compaction_plan,
    every_slice,
    plan_compaction,
    plan_log_compaction,
)
from skep_table.services.execution import Execution, PlannedSlices, delete_unreadable, execute_each, inputs_of, schedule
from skep_table.services.rewriting import RewriteJob, Rewritten, candidate_of, context_of, metadata_of
from skep_table.slices import read_slice
from skep_table.slices.context import MergeCounts, SliceContext
from skep_table.slices.logs import as_table, log_rows, open_blocks
from skep_table.table import HudiTable
from skep_table.view import BaseFile, FileSlice, LogFile
from skep_table.write.output.append import Block, LogFiles, data_block, deletes_block, pieces, stored_rows
from skep_table.write.output.base_rows import ArrivingKeys, BaseRows
from skep_table.write.output.change_log import changes_beside
from skep_table.write.output.files import BaseFiles, renamed
from skep_table.write.planning.candidates import CandidateFile, LogTail
from skep_table.write.planning.options import most_bytes
from skep_table.write.planning.profile import Bucket

log = logging.getLogger("skep.compact")
N = TypeVar("N", BaseFileName, LogFileName)


def compact(table: HudiTable, choose: Choose = every_slice) -> list[Rewritten]:
    """Executes pending plans, then plans a compaction and executes it."""
    done = execute_pending_compactions(table)
    return done + execute_each(table, [schedule_compaction(table, choose)], execute_compaction)


def schedule_compaction(table: HudiTable, choose: Choose = every_slice) -> Instant | None:
    """Writes a plan onto the timeline; None when there is nothing to compact.

    CommitConflictError while a write is under way that could still append to a slice that the plan takes as it is.
    Where a log file belongs to the slice that its delta commit completed on, writes that are under way don't matter.
    """
    with table.context.locked():
        table = prepared(table)
        check_compactable(table)
        check_plaintext(table, logs=table.config.captured is not None)
        table = roll_back_failed(table)
        if not table.format.logs.of_delta_commit:
            refuse_running_writes(table)
        plan = plan_compaction(table, choose)
        if plan is None:
            return None
        instant = schedule(table, Action.COMPACTION, plan)
    table.context.events.emit("compact.scheduled", instant=instant.requested_time, slices=len(plan.operations))
    return instant


def pending_compactions(table: HudiTable) -> Sequence[Instant]:
    """Pending compactions, oldest first: requested and inflight."""
    return table.timeline.pending().of(Action.COMPACTION).instants


def execute_pending_compactions(table: HudiTable) -> list[Rewritten]:
    """Executes the pending compactions, also those whose executor died."""
    table = table.reload()
    return execute_each(table, pending_compactions(table), execute_compaction)


def execute_compaction(table: HudiTable, instant: Instant) -> Rewritten | None:
    """Executes a planned compaction, one task per slice. None when it was completed or rolled back meanwhile."""
    plan = compaction_plan(table, instant)
    if plan is None:
        delete_unreadable(table, instant, compaction_plan)
        return None
    execution = Execution.begin(table, instant, check_compactable)
    if execution is None:
        return None
    with execution, table.context.events.step("compact", instant=instant.requested_time) as found:
        table = execution.table
        file_bytes = most_bytes(table.config, table.options)
        job = RewriteJob(table, context_of(table, execution.instant, WriteOperation.COMPACT, file_bytes))
        stats = table.context.runner.map(partial(compact_slice, job), list(enumerate(plan.operations)))
        compacted = execution.complete(metadata_of(table, job.context, stats))
        found.update(slices=compacted.slices)
    log.info("table %s: %s compacted %d slices", table.config.name, instant.requested_time, compacted.slices)
    return compacted


def check_compactable(table: HudiTable) -> None:
    """InputError for a table that has no log files, UnsupportedError for one that is not written."""
    check_writable(table.config, table.storage.root)
    if not table.config.is_mor:
        raise InputError(
            f"table {table.config.name} is copy-on-write: it has no log files to compact", table=table.config.name
        )


def refuse_running_writes(table: HudiTable) -> None:
    """CommitConflictError while a write is active: it could append to a slice that the plan names."""
    refuse_running(table, table.timeline.data().pending(), "planned")


def refuse_running(table: HudiTable, pending: Iterable[Instant], done: str) -> None:
    """CommitConflictError for the first of these instants that is no clustering. `done` is what has to wait for it."""
    running = [instant for instant in pending if not is_clustering(table, instant)]
    if running:
        first = running[0]
        raise table.error(
            CommitConflictError,
            f"{first.action.value} {first.requested_time} is under way, a compaction can be {done} when it has ended",
            hint="try again",
            instant=first.requested_time,
        )


def compact_logs(table: HudiTable) -> list[Rewritten]:
    """Carries out what is planned already, then plans a log compaction and carries that out."""
    done = execute_pending_log_compactions(table)
    return done + execute_each(table, [schedule_log_compaction(table)], execute_log_compaction)


def schedule_log_compaction(table: HudiTable) -> Instant | None:
    """Writes a plan onto the timeline; None when no slice has log files enough.

    Nor while another one is planned. CommitConflictError while a write is under way; UnsupportedError for tables whose
    rows are merged column by column.
    """
    with table.context.locked():
        table = prepared(table)
        check_compactable(table)
        rule = MergeRule.of(table.config, table.options)
        if rule.merger is not None or {rule.log.fill, rule.base.fill} != {Fill.NOTHING}:
            problem = "rows are merged column by column, their logs need the base file"
            raise table.error(UnsupportedError, problem, hint="compact")
        if pending_log_compactions(table):
            return None
        refuse_running_writes(table)
        plan = plan_log_compaction(table)
        if plan is None:
            return None
        return schedule(table, Action.LOG_COMPACTION, plan)


def pending_log_compactions(table: HudiTable) -> Sequence[Instant]:
    """Planned log compactions, oldest first, those under way too."""
    return table.timeline.pending().of(Action.LOG_COMPACTION).instants


def execute_pending_log_compactions(table: HudiTable) -> list[Rewritten]:
    """Carries out the planned log compactions, and those whose executor died."""
    table = table.reload()
    return execute_each(table, pending_log_compactions(table), execute_log_compaction)


def execute_log_compaction(table: HudiTable, instant: Instant) -> Rewritten | None:
    """Carries out a planned log compaction. None when that was done or taken back meanwhile.

    CommitConflictError when a slice was written to since: the plan is taken off the timeline then. It stays where an
    earlier write is still under way, in a table whose log files apply in the order in which they were requested: what
    that write has for these slices would count as older than the result.
    """
    plan = compaction_plan(table, instant)
    if plan is None:
        delete_unreadable(table, instant, compaction_plan)
        return None
    if table.format.logs.of_delta_commit:
        table = table.reload()
        refuse_running(table, table.timeline.data().pending().before(instant.requested_time), "carried out")
    inputs = PlannedSlices(table, instant, inputs_of(plan.operations))

    def check(fresh: HudiTable) -> None:
        check_compactable(fresh)
        inputs.check(fresh)

    execution = Execution.begin(table, instant, check)
    if execution is None:
        return None
    with execution, table.context.events.step("compact.logs", instant=instant.requested_time) as found:
        table = execution.table
        tasks = list(enumerate(inputs.slices.values()))
        file_bytes = most_bytes(table.config, table.options)
        context = context_of(table, execution.instant, WriteOperation.LOG_COMPACT, file_bytes)
        job = RewriteJob(table, replace(context, logs=table.options.read(LogFileOptions)))
        written = table.context.runner.map(partial(_compact_logs_of, job), tasks)
        compacted = execution.complete(metadata_of(table, job.context, [stat for stats in written for stat in stats]))
        found.update(slices=compacted.slices)
    log.info("table %s: %s made the logs of %d slices one", table.config.name, instant.requested_time, len(tasks))
    return compacted


def _compact_logs_of(job: RewriteJob, task: tuple[int, FileSlice]) -> list[WriteStat]:
    """One log file behind those of the slice: rows, then deletes."""
    number, slice_ = task
    schema = job.context.schema.with_meta()
    reader = SliceContext(job.table, schema, schema.names(), None, job.table.options, known_history=job.history)
    with open_blocks(reader, slice_.log_files) as blocks:
        reader = reader.with_operations_in(blocks)
        times = {time for block in blocks for time in (*block.compacted_times, block.instant_time)}
        entries = as_table(list(log_rows(reader, blocks))) if blocks else None
    if entries is None:
        return []
    rows = latest_per_key(entries, reader.rule)
    context = replace(job.context, rule=reader.rule)
    more = {HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(sorted(times, reverse=True))}
    with LogFiles(context, _bucket(number, slice_)) as files:
        removed = in_delete_block(rows)
        if reader.schema != schema:
            removed |= deleted(rows, reader.rule)  # the block that is written has no operations
        kept = rows.filter(pa.array(~removed))
        for same, names in by_columns_brought(kept):
            whole = _typed(same, schema, names)
            for part in pieces(whole, context.logs.block_bytes):
                count = int(deleted(part, reader.rule).sum())
                block = data_block(context, stored_rows(context, slice_.partition_path, part), more, names)
                files.write(Block(block, part.num_rows - count, count))
        if removed.any() or not kept.num_rows:
            taken = rows.filter(pa.array(removed))
            files.write(Block(deletes_block(context, taken, more), deletes=taken.num_rows))
        stats = files.close()
    log_bytes = sum(log.size_bytes for log in slice_.log_files)
    about = partial(_of_slice, entries=entries.num_rows, keys=rows.num_rows, log_bytes=log_bytes)
    return [about(stat, slice_, reader.counts) for stat in stats]


def _of_slice(
    written: WriteStat, slice_: FileSlice, counts: MergeCounts, *, entries: int, keys: int, log_bytes: int
) -> WriteStat:
    """The stat of a file that replaces others of a slice: that is its predecessor, however those of writes are."""
    return replace(
        written,
        prev_commit=slice_.base_instant,
        total_log_records=entries,
        total_log_files_compacted=len(slice_.log_files),
        total_log_size_compacted=log_bytes,
        total_updated_records_compacted=keys,
        total_log_blocks=counts.blocks,
        total_corrupt_log_block=counts.corrupt_blocks,
        total_rollback_blocks=counts.rollback_blocks,
    )


def _typed(rows: pa.Table, schema: Schema, names: tuple[str, ...] | None) -> pa.Table:
    """Rows in the types of files; columns that they do not bring stay null, whether the table allows it or not."""
    target = to_arrow(schema)
    if names is not None:
        target = pa.schema([f if f.name in names else f.with_nullable(True) for f in target])
    return rows.select(target.names).cast(target)


def _bucket(number: int, slice_: FileSlice) -> Bucket:
    names = tuple(str(log.name) for log in slice_.log_files)
    base = slice_.base_file
    version = max(log.name.version for log in slice_.log_files)
    tail = LogTail(slice_.base_instant, version, names, str(base.name) if base else "")
    file = CandidateFile(slice_.file_id, base.path if base else "", slice_.base_instant, 0, tail=tail)
    return Bucket(number, slice_.partition_path, slice_.file_id, file)


def compact_slice(job: RewriteJob, task: tuple[int, CompactionOperation]) -> WriteStat:
    """Writes the merged slice. Needs no listing: the plan names all files. Raises what reading and storage raise."""
    number, operation = task
    slice_ = slice_of(operation)
    before = candidate_of(job.table, slice_, job.context.instant_time)
    files = BaseFiles(job.context, Bucket(number, slice_.partition_path, slice_.file_id, before))
    counts, scanned = MergeCounts(), 0.0
    schema = job.context.schema.with_meta()
    kind = MarkerType.CREATE if slice_.base_file is None else MarkerType.MERGE
    own_keys = job.table.config.populate_meta_fields
    passing: list[BaseRows] = []  # row groups that no log entry changes are copied into the new file
    with (
        files.open(slice_.file_id, kind) as file,
        changes_beside(job.context, slice_.partition_path, file.name)
        if job.context.format.compactions_have_change_logs
        else nullcontext() as changes,
        open_base(job.context.storage, before.path) if before.path else nullcontext() as held,
    ):

        def changed_rows(updates: Updates) -> Iterator[pa.RecordBatch]:
            """What log entries may change; the others are in the new file when it has been read."""
            assert held is not None
            base = BaseRows.of(job.context, before, held, file.writer, ArrivingKeys.of(updates.rows))
            passing.append(base)
            yield from base.batches(())

        rows = read_slice(
            job.table, slice_, schema=schema, history=job.history, counts=counts, watch=changes,
            changed_rows=changed_rows if held is not None and own_keys else None,
        )  # fmt: skip
        start = time.monotonic()
        for batch in rows:
            scanned = scanned or time.monotonic() - start
            if not passing or counts.beyond_base:
                file.writer.write(renamed(batch, file.name))
            else:
                passing[0].write(batch, file.name)
        if changes is not None:
            changes.close()
    took = runtime_stats(scan=scanned, upsert=file.seconds)  # logs are read before the first rows come
    written = files.stat(
        file,
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
        changes=None if changes is None else changes.paths,
    )
    log_bytes = int((operation.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0))
    stat = _of_slice(written, slice_, counts, entries=counts.entries, keys=counts.keys, log_bytes=log_bytes)
    if slice_.base_file is None:
        return replace(stat, prev_commit="null", runtime_stats=took)
    return replace(stat, prev_base_file=str(slice_.base_file.name), runtime_stats=took)


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The slice that an operation names; its sizes are not known. FormatError for names that are no files' of a slice.

    Plans of old releases have whole paths.
    """

    def parsed(kind: type[N], path: str) -> N:
        text = path.rpartition("/")[2]
        name = kind.parse(text)
        if name is None:
            place = join(*operation.group)
            raise FormatError(
                f"compaction plan for {place}: {text!r} is no name of a base or log file", path=place, found=text
            )
        return name

    folder, base = operation.group.partition_path, None
    if operation.data_file_path:
        name = parsed(BaseFileName, operation.data_file_path)
        base = BaseFile(join(folder, str(name)), 0, name)
    logs = [
        LogFile(join(folder, str(name)), 0, name)
        for name in (parsed(LogFileName, p) for p in operation.delta_file_paths)
    ]
    logs.sort(key=lambda each: each.name.sort_key)
    return FileSlice(*operation.group, operation.base_instant_time or BEFORE_ALL, base, tuple(logs))
