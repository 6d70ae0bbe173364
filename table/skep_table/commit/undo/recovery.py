"""Before a write begins: interrupted restores and rollbacks are finished, failed writes are rolled back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from skep_format.errors import AlreadyExistsError, CommitConflictError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.names import META_FOLDER
from skep_format.storage import Storage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import RestoreMetadata, RestorePlan, RollbackMetadata, RollbackPlan
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_format.timeline.write import complete, delete_pending, transition_to_inflight
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.heartbeat import FOLDER as HEARTBEATS
from skep_table.commit.heartbeat import ActiveWriters, delete_heartbeat
from skep_table.commit.instants import timeline_clock
from skep_table.commit.options import Concurrency, FailedWritesPolicy
from skep_table.commit.parts.markers import delete_markers
from skep_table.commit.parts.metadata_table import create_again, to_make_again
from skep_table.commit.undo.rollback import (
    carry_out,
    finish_rollback,
    pending_rollback_plan,
    request_rollback,
    roll_back,
)
from skep_table.metadata_write.drop import delete_metadata_table
from skep_table.metadata_write.own import has_metadata_table
from skep_table.table import HudiTable

log = logging.getLogger("skep.commit")


def finish_restore(table: HudiTable, restore: Instant) -> RestoreMetadata | None:
    """Carries out a restore by its plan, from wherever it was interrupted. None, and the instant is deleted, without a
    readable plan.

    All writes after a savepoint are rolled back, newest first, under one instant (format guide 2.7). Its rollbacks have
    plans on the timeline while they run, so that each can be finished; the restore's metadata remains. An interrupted
    restore is finished by the next writer, before anything is written on top of it.
    """
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


_TEMPORARY: Final = f"{META_FOLDER}/.temp"


def roll_back_failed(table: HudiTable) -> HudiTable:
    """Finishes interrupted restores and rollbacks, then rolls back the writes of dead writers. The lock is held.

    An active writer is never rolled back. Pending table services (compaction, clustering, clean) are left to their next
    execution. Returns the snapshot after it.
    """
    table = finish_interrupted(table)
    # Without pending instants only heartbeats that were left behind are of interest, if there are any. With one its
    # heartbeat may be younger than the first page of the listing that shows the instant.
    needed = bool(len(table.timeline.pending())) or table.may_have_folder(HEARTBEATS)
    writers = ActiveWriters(table.context) if needed else None
    if writers is not None and Concurrency.of(table.options).failed_writes is not FailedWritesPolicy.NEVER:
        pending = [i for i in table.timeline.data().pending().instants if not writers.is_active(i.requested_time)]
        for instant in [i for i in pending if not is_clustering(table, i)]:
            table.context.lock.ensure_held()
            roll_back(table, instant)
            delete_heartbeat(table.storage, instant.requested_time)
            table = table.reload()
    delete_stale_markers(table)
    for time in writers.expired() if writers is not None else ():
        if not table.timeline.pending().contains(time):
            delete_heartbeat(table.storage, time)
    return table


def finish_interrupted(table: HudiTable) -> HudiTable:
    """Finishes interrupted restores and rollbacks. Called with the lock held. Returns the snapshot after it.

    A writer that fails rolls back its own write without the lock, and renews its heartbeat until that is done.
    """
    for restore in table.timeline.pending().of(Action.RESTORE).instants:
        finish_restore(table, restore)
        table = table.reload()
    rollbacks = table.timeline.pending().of(Action.ROLLBACK).instants
    writers = ActiveWriters(table.context) if rollbacks else None
    for rollback in rollbacks:
        plan = pending_rollback_plan(table, rollback)
        target = plan.instant_to_rollback.commit_time if plan and plan.instant_to_rollback else BEFORE_ALL
        if writers is None or writers.is_active(target):
            continue
        with suppress(AlreadyExistsError):  # a process without a heartbeat has finished it
            finish_rollback(table, rollback)
        table = table.reload()
    return table


def refuse_active(table: HudiTable, instants: Iterable[Instant]) -> None:
    """CommitConflictError when one of these instants is pending, and its writer is active."""
    pending = [instant for instant in instants if not instant.is_completed]
    writers = ActiveWriters(table.context) if pending else None
    for instant in pending:
        if writers is not None and writers.is_active(instant.requested_time):
            problem = f"the writer of {instant.action.value} {instant.requested_time} is active"
            hint = "end it, and its write is rolled back"
            raise table.error(CommitConflictError, problem, hint=hint, instant=instant.requested_time)


def delete_stale_markers(table: HudiTable) -> None:
    """Deletes the marker folders of writers that died after their instant was completed or undone.

    A writer without the lock may have shown its instant after `table` was listed, and its markers after that: where a
    folder belongs to no instant of `table` and lies after its end, the timeline is listed again.
    """
    marked = _marked_instants(table.storage) if table.may_have_folder(_TEMPORARY) else []
    last = table.timeline.last()
    if last is None or any(time.is_after(last.requested_time) for time in marked):
        table = table.reload() if marked else table
    pending = {instant.requested_time for instant in table.timeline.pending().instants}
    for time in marked:
        if time not in pending:
            delete_markers(table.storage, time)


def _marked_instants(storage: Storage) -> list[InstantTime]:
    found = storage.list_folder(_TEMPORARY)
    signs = [file.name.removesuffix(".open") for file in found.files if file.name.endswith(".open")]
    return [InstantTime(name) for name in sorted({*found.folders, *signs})]
