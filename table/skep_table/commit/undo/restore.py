"""Restore: all writes after a savepoint are rolled back, newest first, under one instant (format guide 2.7).

Its rollbacks have plans on the timeline while they run, so that each can be finished; the restore's metadata remains.
An interrupted restore is finished by the next writer, before anything is written on top of it.
"""

from __future__ import annotations

import logging

from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import RestoreMetadata, RestorePlan, RollbackMetadata, RollbackPlan
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_format.timeline.write import complete, delete_pending, transition_to_inflight
from skep_table.commit.instants import timeline_clock
from skep_table.commit.parts.markers import delete_markers
from skep_table.commit.parts.metadata_table import create_again, to_make_again
from skep_table.commit.undo.rollback import carry_out, pending_rollback_plan, request_rollback
from skep_table.metadata_write.drop import delete_metadata_table
from skep_table.metadata_write.own import has_metadata_table
from skep_table.table import HudiTable

log = logging.getLogger("skep.commit")


def finish_restore(table: HudiTable, restore: Instant) -> RestoreMetadata | None:
    """Carries out a restore by its plan, from wherever it was interrupted. None, and the instant is deleted, without a
    readable plan."""
    start = table.context.clock.monotonic()
    plan = table.requested_plan(RestorePlan, restore)
    if plan is None:
        delete_pending(table, restore)
        return None
    if restore.state is State.REQUESTED:
        transition_to_inflight(table, restore)
    if has_metadata_table(table.config):
        delete_metadata_table(table.storage, to_make_again(table, table.config.metadata_partitions))
        table = table.reload()
    times = [info.commit_time for info in plan.instants_to_rollback]
    rollbacks_done: dict[str, list[RollbackMetadata]] = {}
    for rollback in table.timeline.pending().of(Action.ROLLBACK):
        started = pending_rollback_plan(table, rollback)
        target = started.instant_to_rollback.commit_time if started and started.instant_to_rollback else None
        if started is not None and target in times:
            rollbacks_done.setdefault(target, []).append(_carry_out_rollback(table, rollback, started))
    table = table.reload()
    for time in times:
        written = next(
            (i for i in table.timeline.instants if i.requested_time == time and i.action in WRITE_ACTIONS), None
        )
        if written is not None:
            rollback, steps = request_rollback(table, written, forget=True)
            rollbacks_done.setdefault(time, []).append(_carry_out_rollback(table, rollback, steps))
            delete_pending(table, written)  # the plan of a compaction too
            table = table.reload()
    metadata = RestoreMetadata(
        start_restore_time=restore.requested_time,
        time_taken_in_millis=int((table.context.clock.monotonic() - start) * 1000),
        instants_to_rollback=tuple(times),
        hoodie_restore_metadata={time: tuple(found) for time, found in rollbacks_done.items()},
        restore_instant_info=plan.instants_to_rollback,
    )
    complete(table, restore, metadata, timeline_clock(table))
    table.context.events.emit("restore", instant=restore.requested_time, savepoint=plan.savepoint_to_restore_timestamp)
    log.info("table %s: restored to %s", table.config.name, plan.savepoint_to_restore_timestamp)
    create_again(table.reload())
    return metadata


def _carry_out_rollback(table: HudiTable, rollback: Instant, plan: RollbackPlan) -> RollbackMetadata:
    metadata = carry_out(table, rollback, plan)
    delete_pending(table, rollback)
    (target,) = metadata.commits_rollback
    delete_markers(table.storage, target)
    return metadata
