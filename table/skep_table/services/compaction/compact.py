"""Compaction: merges log files into new base files, so that reading a merge-on-read table stays cheap.

A plan (a requested compaction) names file slices. What completes from then on belongs to the slice that begins with the
plan's instant, and readers merge it onto the slice before, so the plan can be carried out while both go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from skep_format.errors import CommitConflictError, InputError
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteOperation
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_writable, prepared
from skep_table.services.compaction.file_slice import compact_slice
from skep_table.services.compaction.plan import Choose, compaction_plan, every_slice, plan_compaction
from skep_table.services.execution import Execution, delete_unreadable
from skep_table.services.rewriting import RewriteJob, Rewritten, context_of, metadata_of
from skep_table.services.scheduling import execute_each, schedule
from skep_table.table import HudiTable
from skep_table.write.planning.options import most_bytes

log = logging.getLogger("skep.compact")


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
        job = RewriteJob(
            table, context_of(table, execution.instant, WriteOperation.COMPACT, most_bytes(table.config, table.options))
        )
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
        raise CommitConflictError(
            f"table {table.config.name}: {first.action.value} {first.requested_time} is under way, a compaction can be"
            f" {done} when it has ended",
            hint="try again",
            table=table.config.name,
            instant=first.requested_time,
        )
