"""Rollback of an instant, under an instant of its own (format guide 2.7).

The plan comes first and the account last, so that a rollback that dies half-way is finished by the next writer under
the same instant. A completed instant loses its completed file before anything else: from then on its rows are gone for
readers, and it is pending while its files go.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from skep_table.commit.instants import request_plan
from skep_table.commit.leftovers import delete_files
from skep_table.commit.markers import close_markers, delete_markers
from skep_table.commit.rollback_plan import plan_rollback
from skep_table.commit.setting import CommitSetting
from skep_table.errors import AlreadyExistsError, FormatError
from skep_table.logfile import rollback_block
from skep_table.names import LogFileName, join
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.plans import (
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    decode_plan,
)
from skep_table.timeline.write import (
    complete,
    delete_completed,
    delete_pending,
    transition_to_inflight,
)

_COMMAND_TOKEN = "1-0-1"  # Hudi's write token of command blocks

log = logging.getLogger("skep.commit")


def roll_back(table: HudiTable, target: Instant, setting: CommitSetting) -> RollbackMetadata:
    """Takes an instant back, its files first. A rollback is on the timeline after it.

    A compaction that was under way stays planned, since delta commits may have written to its slices.
    """
    rollback, plan = request_rollback(table, target, setting)
    return _complete(table, rollback, plan, setting)


def request_rollback(
    table: HudiTable, target: Instant, setting: CommitSetting, *, forget: bool = False
) -> tuple[Instant, RollbackPlan]:
    """Plans a rollback and puts it on the timeline. The target's tasks open no files after that."""
    close_markers(table.storage, target.requested_time)
    plan = plan_rollback(table, target, setting, forget=forget)
    rollback = request_plan(table, Action.ROLLBACK, plan, setting)
    return rollback, plan


def finish_rollback(table: HudiTable, rollback: Instant, setting: CommitSetting) -> None:
    """Carries on a rollback that died. One that had not begun is taken back where others built on its target since."""
    plan = pending_rollback_plan(table, rollback)
    if plan is None or plan.instant_to_rollback is None or _is_outdated(table, plan.instant_to_rollback):
        delete_pending(table, rollback)
        return
    close_markers(table.storage, plan.instant_to_rollback.commit_time)
    _complete(table, rollback, plan, setting)


def pending_rollback_plan(table: HudiTable, rollback: Instant) -> RollbackPlan | None:
    """None when the requested file is gone or was not finished."""
    path = table.timeline.layout.path(Instant(rollback.requested_time, Action.ROLLBACK, State.REQUESTED))
    try:
        return decode_plan(RollbackPlan, table.storage.read(path), path)
    except (FileNotFoundError, FormatError):
        return None


def carry_out(table: HudiTable, rollback: Instant, plan: RollbackPlan, setting: CommitSetting) -> RollbackMetadata:
    """All of a rollback but its completed file. May be repeated after any failure."""
    start = setting.clock.monotonic()
    info = plan.instant_to_rollback
    assert info is not None
    if rollback.state is State.REQUESTED:
        transition_to_inflight(table, rollback)
    _make_pending(table, info)
    files = [_path_of(request, uri) for request in plan.rollback_requests for uri in request.files_to_be_deleted]
    deleted = delete_files(table.storage, files, setting)
    commands = [
        (request, written)
        for request in plan.rollback_requests
        if request.log_blocks_to_be_deleted
        and (written := _append_command(table.storage, rollback, info, request)) is not None
    ]
    _delete_pending_forms(table, info)
    return RollbackMetadata(
        start_rollback_time=rollback.requested_time,
        time_taken_in_millis=int((setting.clock.monotonic() - start) * 1000),
        total_files_deleted=len(deleted),
        commits_rollback=(info.commit_time,),
        partition_metadata=_by_partition(table.storage, plan, deleted, commands),
        instants_rollback=(info,),
    )


def _complete(table: HudiTable, rollback: Instant, plan: RollbackPlan, setting: CommitSetting) -> RollbackMetadata:
    account = carry_out(table, rollback, plan, setting)
    complete(table, rollback, account, setting.clock)
    (target,) = account.commits_rollback
    delete_markers(table.storage, target)
    files = account.total_files_deleted
    setting.events.emit("rollback", instant=target, rollback=rollback.requested_time, files=files)
    log.info("table %s: %s rolled back, %d files deleted", table.config.name, target, files)
    return account


def _is_outdated(table: HudiTable, info: InstantInfo) -> bool:
    """Whether the target is (still) complete, and others have built on it since the rollback was planned."""
    completed = table.timeline.data().completed()
    return completed.contains(info.commit_time) and any(i.requested_time > info.commit_time for i in completed)


def _forms(info: InstantInfo) -> list[Instant]:
    """The pending instants that the target may be: a commit may have been a compaction."""
    action = Action(info.action)
    actions = [each for each in Action if each.completed_as is action.completed_as]
    # In layout 1 a clustering is a replace commit by name.
    return [Instant(info.commit_time, each, State.INFLIGHT) for each in actions if each is not Action.CLUSTERING]


def _make_pending(table: HudiTable, info: InstantInfo) -> None:
    action = Action(info.action).completed_as
    completed = Instant(info.commit_time, action, State.COMPLETED)
    path = table.timeline.layout.path
    if not table.storage.exists(path(completed)):
        return
    forms = [replace(form, state=state) for form in _forms(info) for state in (State.REQUESTED, State.INFLIGHT)]
    if not any(table.storage.exists(path(form)) for form in forms):
        # Without any, its files would pass for archived ones as soon as the timeline begins after it.
        transition_to_inflight(table, completed)
    delete_completed(table, completed)


def _delete_pending_forms(table: HudiTable, info: InstantInfo) -> None:
    for form in _forms(info):
        delete_pending(table, form, keep_requested=info.action == Action.COMPACTION)


def _append_command(
    storage: Storage, rollback: Instant, info: InstantInfo, request: RollbackRequest
) -> tuple[str, int] | None:
    """Path and size of a new log file of the slice with a command block; None when the slice has no log file."""
    logs = [
        name
        for file in storage.list_prefix(request.partition_path)
        if (name := LogFileName.parse(file.name)) is not None
        and (name.file_id, name.instant_time) == (request.file_id, request.latest_base_instant)
        and not name.cdc
    ]
    if not logs:
        return None
    block = rollback_block(rollback.requested_time, info.commit_time)
    newest = max(logs, key=lambda name: name.sort_key)
    if newest.write_token == _COMMAND_TOKEN:
        path = join(request.partition_path, str(newest))
        if storage.read(path) == block:
            return path, len(block)  # an attempt before this one wrote it
    version = newest.version
    while True:
        version += 1
        path = join(request.partition_path, str(replace(newest, version=version, write_token=_COMMAND_TOKEN)))
        try:
            storage.create_exclusive(path, block)
        except AlreadyExistsError:
            continue
        return path, len(block)


def _path_of(request: RollbackRequest, uri: str) -> str:
    """Relative to the table, wherever the table lay when the plan was made."""
    return join(request.partition_path, uri.rpartition("/")[2])


def _by_partition(
    storage: Storage,
    plan: RollbackPlan,
    deleted: list[str],
    commands: list[tuple[RollbackRequest, tuple[str, int]]],
) -> dict[str, RollbackPartitionMetadata]:
    found = {}
    for partition in sorted({request.partition_path for request in plan.rollback_requests}):
        ours = [(request, written) for request, written in commands if request.partition_path == partition]
        found[partition] = RollbackPartitionMetadata(
            partition_path=partition,
            success_delete_files=tuple(storage.uri(path) for path in deleted if path.rpartition("/")[0] == partition),
            rollback_log_files={storage.uri(path): size for _, (path, size) in ours},
            log_files_from_failed_commit={
                path: size for request, _ in ours for path, size in (request.log_blocks_to_be_deleted or {}).items()
            },
        )
    return found
