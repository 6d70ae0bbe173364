"""What a writer does before it begins: restores and rollbacks that died are finished, failed writes rolled back."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from skep_table.commit.concurrency import Concurrency
from skep_table.commit.heartbeat import Heartbeats, Pulse, forget_heartbeat
from skep_table.commit.markers import delete_markers
from skep_table.commit.options import FailedWritesPolicy
from skep_table.commit.plans import is_clustering
from skep_table.commit.restore import finish_restore
from skep_table.commit.rollback import finish_rollback, pending_rollback_plan, roll_back
from skep_table.commit.setting import CommitSetting
from skep_table.errors import AlreadyExistsError, CommitConflictError
from skep_table.names import META_FOLDER
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant


def roll_back_failed(table: HudiTable, setting: CommitSetting) -> HudiTable:
    """Rolls back what writers that died left pending, after what was begun. To be called with the lock held.

    A writer whose heart beats is never touched. Table services (compaction, clustering, clean) are left to be tried
    again by those who run them.
    """
    table = finish_begun(table, setting)
    hearts = _hearts(table, setting)
    if Concurrency.of(setting.options).failed_writes is not FailedWritesPolicy.NEVER:
        pending = [i for i in table.timeline.data().pending().instants if not hearts.is_alive(i.requested_time)]
        for instant in [i for i in pending if not is_clustering(table, i)]:
            setting.lock.ensure_held()
            roll_back(table, instant, setting)
            forget_heartbeat(table.storage, instant.requested_time)
            table = table.reload()
    _delete_stale_markers(table)
    for time in hearts.dead():
        if not table.timeline.pending().contains(time):
            forget_heartbeat(table.storage, time)
    return table


def finish_begun(table: HudiTable, setting: CommitSetting) -> HudiTable:
    """Finishes restores and rollbacks that died. To be called with the lock held.

    A writer that gave up rolls back its own write, without the lock, and lives until that is done.
    """
    for restore in table.timeline.pending().of(Action.RESTORE).instants:
        finish_restore(table, restore, setting)
        table = table.reload()
    rollbacks = table.timeline.pending().of(Action.ROLLBACK).instants
    hearts = _hearts(table, setting) if rollbacks else None
    for rollback in rollbacks:
        plan = pending_rollback_plan(table, rollback)
        target = plan.instant_to_rollback.commit_time if plan and plan.instant_to_rollback else ""
        if hearts is None or hearts.is_alive(target):
            continue
        with suppress(AlreadyExistsError):  # somebody without a heartbeat is at it
            finish_rollback(table, rollback, setting)
        table = table.reload()
    return table


def refuse_living(table: HudiTable, instants: Iterable[Instant], setting: CommitSetting) -> None:
    """CommitConflictError when one of these is pending, and its writer is at work."""
    pending = [instant for instant in instants if not instant.is_completed]
    hearts = _hearts(table, setting) if pending else None
    for instant in pending:
        if hearts is not None and hearts.is_alive(instant.requested_time):
            raise CommitConflictError(
                f"table {table.config.name}: the writer of {instant.action.value} {instant.requested_time} is at work",
                hint="end it, and its write is rolled back",
                table=table.config.name,
                instant=instant.requested_time,
            )


def _hearts(table: HudiTable, setting: CommitSetting) -> Heartbeats:
    return Heartbeats(table.storage, Pulse.of(setting.options), setting.clock)


def _delete_stale_markers(table: HudiTable) -> None:
    """Marker folders of writers that died after their instant was decided."""
    last = table.timeline.last()
    pending = {instant.requested_time for instant in table.timeline.pending().instants}
    for time in _marked_instants(table.storage):
        if last is not None and time <= last.requested_time and time not in pending:
            delete_markers(table.storage, time)


def _marked_instants(storage: Storage) -> list[str]:
    folder = f"{META_FOLDER}/.temp"
    signs = [file.name.removesuffix(".open") for file in storage.list_prefix(folder) if file.name.endswith(".open")]
    return sorted({*storage.list_folders(folder), *signs})
