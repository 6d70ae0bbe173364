"""Rollback of an instant that failed, under an instant of its own (format guide 2.7).

Copy-on-write: the data files of the instant are deleted, then its instant files; the plan comes first and the account
last, so that a rollback that dies half-way is finished by the next writer under the same instant.
"""

from __future__ import annotations

import logging

from skep_table.commit.leftovers import delete_files, files_of_instant
from skep_table.commit.markers import close_markers, delete_markers
from skep_table.commit.setting import CommitSetting
from skep_table.errors import FormatError, UnsupportedError
from skep_table.names import META_FOLDER, LogFileName
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import WriteOperation
from skep_table.timeline.plans import (
    InstantInfo,
    RequestedReplaceMetadata,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    decode_plan,
)
from skep_table.timeline.write import complete, delete_pending, request_instant, transition_to_inflight

log = logging.getLogger("skep.commit")


def roll_back_failed(table: HudiTable, setting: CommitSetting) -> HudiTable:
    """Rolls back what writers that died left pending, and finishes rollbacks that died. The lock is held meanwhile.

    Table services (compaction, clustering, clean) are left to be tried again by those who run them.
    """
    for instant in table.timeline.pending().of(Action.ROLLBACK).instants:
        _finish(table, instant, setting)
        table = table.reload()
    failed = [instant for instant in table.timeline.data().pending().instants if not _is_clustering(table, instant)]
    for instant in failed:
        roll_back(table, instant, setting)
        table = table.reload()
    _delete_stale_markers(table)
    return table


def roll_back(table: HudiTable, failed: Instant, setting: CommitSetting) -> None:
    """Takes a pending instant back, its files first. A rollback is on the timeline after it."""
    close_markers(table.storage, failed.requested_time)
    files = _data_files(table, failed, setting)
    plan = RollbackPlan(
        instant_to_rollback=InstantInfo(commit_time=failed.requested_time, action=failed.action.value),
        rollback_requests=tuple(
            RollbackRequest(
                partition_path=partition,
                file_id="",
                latest_base_instant="",
                files_to_be_deleted=tuple(map(table.storage.uri, paths)),
                log_blocks_to_be_deleted={},
            )
            for partition, paths in _by_partition(files).items()
        ),
    )
    rollback, _ = request_instant(table, Action.ROLLBACK, plan, setting.clock)
    _execute(table, rollback, failed, files, setting)


def _finish(table: HudiTable, rollback: Instant, setting: CommitSetting) -> None:
    """A rollback that died. Without a plan it had not begun, and the failed one is still there to be rolled back."""
    requested = Instant(rollback.requested_time, Action.ROLLBACK, State.REQUESTED)
    path = table.timeline.layout.path(requested)
    try:
        plan = decode_plan(RollbackPlan, table.storage.read(path), path)
    except (FileNotFoundError, FormatError):
        plan = None
    info = plan.instant_to_rollback if plan else None
    if info is None:
        delete_pending(table, rollback)
        return
    if any(i.requested_time == info.commit_time and i.is_completed for i in table.timeline.data().instants):
        raise UnsupportedError(
            f"table {table.config.name}: the rollback {rollback.requested_time} of the completed {info.commit_time} is"
            " unfinished, which skep can't go on with yet",
            hint="let the Hudi writer that began it finish it",
            instant=rollback.requested_time,
        )
    failed = Instant(info.commit_time, Action(info.action), State.INFLIGHT)
    close_markers(table.storage, failed.requested_time)
    _execute(table, rollback, failed, _data_files(table, failed, setting), setting)


def _execute(table: HudiTable, rollback: Instant, failed: Instant, files: list[str], setting: CommitSetting) -> None:
    start = setting.clock.monotonic()
    if rollback.state is State.REQUESTED:
        rollback = transition_to_inflight(table, rollback)
    deleted = delete_files(table.storage, files, setting)
    delete_pending(table, failed)
    account = RollbackMetadata(
        start_rollback_time=rollback.requested_time,
        time_taken_in_millis=int((setting.clock.monotonic() - start) * 1000),
        total_files_deleted=len(deleted),
        commits_rollback=(failed.requested_time,),
        partition_metadata={
            partition: RollbackPartitionMetadata(
                partition_path=partition,
                success_delete_files=tuple(map(table.storage.uri, paths)),
                rollback_log_files={},
                log_files_from_failed_commit={},
            )
            for partition, paths in _by_partition(deleted).items()
        },
        instants_rollback=(InstantInfo(commit_time=failed.requested_time, action=failed.action.value),),
    )
    complete(table, rollback, account, setting.clock)
    delete_markers(table.storage, failed.requested_time)
    setting.events.emit("rollback", instant=failed.requested_time, rollback=rollback.requested_time, files=len(deleted))
    log.info("table %s: %s rolled back, %d files deleted", table.config.name, failed.requested_time, len(deleted))


def _data_files(table: HudiTable, failed: Instant, setting: CommitSetting) -> list[str]:
    files = files_of_instant(table, failed.requested_time, setting)
    logs = [path for path in files if LogFileName.parse(path.rpartition("/")[2]) is not None]
    if logs:
        raise UnsupportedError(
            f"table {table.config.name}: {failed.requested_time} left log files, which can't be rolled back yet",
            table=table.config.name,
            path=logs[0],
        )
    return files


def _is_clustering(table: HudiTable, instant: Instant) -> bool:
    if instant.action is not Action.REPLACE_COMMIT:
        return False
    path = table.timeline.layout.path(Instant(instant.requested_time, instant.action, State.REQUESTED))
    data = table.storage.read(path)
    if not data:
        return False
    return decode_plan(RequestedReplaceMetadata, data, path).operation_type == WriteOperation.CLUSTER.value


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


def _by_partition(paths: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(path.rpartition("/")[0], []).append(path)
    return found
