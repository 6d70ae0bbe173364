"""Compaction: merges log files into new base files, so that reading a merge-on-read table stays cheap.

A plan (a requested compaction) names file slices. From then on writers put their log files on the plan's instant, and
readers merge these onto the slice before, so the plan can be carried out while both go on.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from skep_table.basefile import BaseFileOptions
from skep_table.commit.changes import is_clustering
from skep_table.commit.instants import request_plan
from skep_table.commit.recovery import roll_back_failed
from skep_table.commit.writable import check_writable, prepared
from skep_table.errors import CommitConflictError, InputError
from skep_table.merge import MergeRule
from skep_table.services.compact_plan import Choose, every_slice, plan_compaction
from skep_table.services.compact_slice import CompactionJob, compact_slice
from skep_table.services.execution import Execution, extra_of
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.timeline.plans import CompactionPlan
from skep_table.timeline.write import delete_pending
from skep_table.write.context import WriteContext
from skep_table.write.options import MAX_FILE_BYTES

log = logging.getLogger("skep.compact")


@dataclass(frozen=True, slots=True)
class Compacted:
    """A completed compaction."""

    instant: Instant
    metadata: CommitMetadata

    @property
    def slices(self) -> int:
        """File slices that it compacted."""
        return len(self.metadata.stats)


def compact(table: HudiTable, choose: Choose = every_slice) -> list[Compacted]:
    """Executes pending plans, then plans a compaction and executes it."""
    done = execute_pending_compactions(table)
    instant = schedule_compaction(table, choose)
    if instant is not None and (compacted := execute_compaction(table.reload(), instant)) is not None:
        done.append(compacted)
    return done


def schedule_compaction(table: HudiTable, choose: Choose = every_slice) -> Instant | None:
    """Writes a plan onto the timeline; None when there is nothing to compact.

    CommitConflictError while a write is under way: it could still append to a slice that the plan takes as it is.
    """
    with table.context.locked():
        table = prepared(table)
        check_compactable(table)
        table = roll_back_failed(table)
        refuse_running_writes(table)
        plan = plan_compaction(table, choose)
        if plan is None:
            return None
        table.context.lock.ensure_held()
        instant = request_plan(table, Action.COMPACTION, plan)
    table.context.events.emit("compact.scheduled", instant=instant.requested_time, slices=len(plan.operations))
    return instant


def pending_compactions(table: HudiTable) -> Sequence[Instant]:
    """Pending compactions, oldest first: requested and inflight."""
    return table.timeline.pending().of(Action.COMPACTION).instants


def execute_pending_compactions(table: HudiTable) -> list[Compacted]:
    """Executes the pending compactions, also those whose executor died."""
    table = table.reload()
    done = [execute_compaction(table, instant) for instant in pending_compactions(table)]
    return [compacted for compacted in done if compacted is not None]


def execute_compaction(table: HudiTable, instant: Instant) -> Compacted | None:
    """Executes a planned compaction, one task per slice. None when it was completed or rolled back meanwhile."""
    plan = table.requested_plan(CompactionPlan, instant)
    if plan is None:
        _forget(table, instant)
        return None
    execution = Execution.begin(table, instant, check_compactable)
    if execution is None:
        return None
    with execution, table.context.events.step("compact", instant=instant.requested_time) as found:
        job = _job(execution.table, execution.instant)
        stats = table.context.runner.map(partial(compact_slice, job), list(enumerate(plan.operations)))
        metadata = _metadata(stats, extra_of(execution.table, job.context.schema))
        compacted = Compacted(execution.complete(metadata), metadata)
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
    running = [i for i in table.timeline.data().pending().instants if not is_clustering(table, i)]
    if running:
        first = running[0]
        raise CommitConflictError(
            f"table {table.config.name}: {first.action.value} {first.requested_time} is under way, a compaction can be"
            " planned when it has ended",
            hint="try again",
            table=table.config.name,
            instant=first.requested_time,
        )


def _forget(table: HudiTable, instant: Instant) -> None:
    """Deletes the instant of a plan that can't be read: it was never finished, or is deleted already."""
    with table.context.locked():
        if table.reload().requested_plan(CompactionPlan, instant) is None:
            delete_pending(table, instant)


def _job(table: HudiTable, instant: Instant) -> CompactionJob:
    schema = table.stored_schema()
    context = WriteContext(
        storage=table.storage,
        format=table.format,
        instant_time=instant.requested_time,
        operation=WriteOperation.COMPACT,
        schema=schema,
        rule=MergeRule.of(table.config, table.options).with_defaults(schema),
        files=BaseFileOptions.of(table.options, meta=table.config.populate_meta_fields),
        max_file_bytes=table.options.value(MAX_FILE_BYTES),
        combine=False,
    )
    return CompactionJob(table, context, dict(table.options))


def _metadata(stats: Sequence[WriteStat], extra: Mapping[str, str]) -> CommitMetadata:
    written: dict[str, list[WriteStat]] = defaultdict(list)
    for stat in stats:
        written[stat.partition_path].append(stat)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(found) for path, found in sorted(written.items())},
        operation_type=WriteOperation.COMPACT,
        compacted=True,
        extra_metadata=extra,
    )
