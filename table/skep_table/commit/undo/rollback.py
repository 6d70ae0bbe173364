"""Rollback of an instant, under an instant of its own (format guide 2.7).

The plan is written first and the metadata last, so that the next writer finishes an interrupted rollback under the same
instant. Of a completed instant, the completed file is deleted before anything else: from then on readers do not see its
rows, and it is pending while its files are deleted.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from skep_format.errors import AlreadyExistsError, FormatError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.logfile import BlockType, HeaderKey, read_blocks, rollback_block
from skep_format.names import LogFileName, join
from skep_format.storage import Storage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import (
    CompactionPlan,
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    decode_plan,
)
from skep_format.timeline.write import completed_files, delete_pending, transition_to_inflight
from skep_table.commit.instants import complete_once, request_plan
from skep_table.commit.parts.data_files import bearing, delete_files, files_of_instant, is_of_base_file, naming_markers
from skep_table.commit.parts.markers import close_markers, delete_markers, list_markers
from skep_table.commit.parts.metadata_table import drop_merged, record_rollback
from skep_table.commit.parts.participants import table_participants
from skep_table.keys.hash_rings import planned_resizes
from skep_table.table import HudiTable


def plan_rollback(table: HudiTable, target: Instant, *, forget: bool = False) -> RollbackPlan:
    """The plan for a completed or pending write, the newest of the timeline. Changes nothing.

    Files that only the instant wrote are deleted, its blocks in shared log files are undone. A log file that is named
    by its delta commit is the instant's own. One that is named by its slice is shared by commits: its blocks are undone
    by a command block, and readers that have it open go on. No reader sees a slice that began with the instant: its
    files are deleted.

    `forget`: a pending compaction is not to be carried out later.
    """
    paths = _written(table, target, forget)
    deleted: list[str] = []
    shared: dict[tuple[str, str, InstantTime], dict[str, int]] = defaultdict(dict)
    for path in sorted(paths):
        partition, _, name = path.rpartition("/")
        log = LogFileName.parse(name)
        is_own = table.format.logs.rolled_back_by_deletion  # copies beside a resize, too, which its instant names
        if log is None or log.cdc or is_own or log.instant_time == target.requested_time:
            deleted.append(path)
        else:
            size = table.storage.size(path) if table.storage.exists(path) else 0
            shared[partition, log.file_id, log.instant_time][table.storage.uri(path)] = size
    requests = [
        RollbackRequest(
            partition_path=path.rpartition("/")[0],
            file_id="",
            latest_base_instant=BEFORE_ALL,
            files_to_be_deleted=(table.storage.uri(path),),
            log_blocks_to_be_deleted={},
        )
        for path in deleted
    ]
    requests += [
        RollbackRequest(
            partition_path=partition,
            file_id=file_id,
            latest_base_instant=base_instant,
            log_blocks_to_be_deleted=sizes,
        )
        for (partition, file_id, base_instant), sizes in shared.items()
    ]
    info = InstantInfo(commit_time=target.requested_time, action=target.action.value)
    return RollbackPlan(instant_to_rollback=info, rollback_requests=tuple(requests))


def _written(table: HudiTable, target: Instant, forget: bool) -> set[str]:
    """Paths of the data files that the instant wrote or appended to, including deleted ones."""
    if target.is_completed:
        metadata = table.commit_metadata(target)
        paths = {path for stat in metadata.stats for path in stat.paths}
        return paths | _slices_started(table, target, metadata.partitions) if table.config.is_mor else paths
    if target.action is Action.COMPACTION:
        return _written_by_compaction(table, target, forget)
    resized = planned_resizes(table, target)
    if resized:  # rows that writers have put into the groups that a resize was to make are in the old ones, too
        own = {marker.data_path for marker in list_markers(table.storage, target.requested_time) or ()}
        return own | _slices_started(table, target, resized)
    if target.state is State.REQUESTED:  # tasks start once it is inflight; an attempt that ended has deleted its files
        return {marker.data_path for marker in naming_markers(table, target.requested_time) or ()}
    found = set(files_of_instant(table, target.requested_time))
    if (
        table.config.is_mor
        and not table.format.logs.rolled_back_by_deletion
        and naming_markers(table, target.requested_time) is None
    ):
        look = partial(_logs_with_blocks, table.storage, target.requested_time)
        for logs in table.context.runner.map(look, table.view(metadata=False).partitions()):
            found.update(logs)
    return found


def _written_by_compaction(table: HudiTable, target: Instant, forget: bool) -> set[str]:
    """Without the logs that delta commits write to a slice that awaits its compaction, unless it is forgotten.

    Where logs are named by their delta commit, the compaction's time is in the names of its own files only.
    """
    if table.format.logs.rolled_back_by_deletion:
        return set(files_of_instant(table, target.requested_time))
    if not forget:
        written = files_of_instant(table, target.requested_time)
        return {path for path in written if is_of_base_file(path)}
    plan = table.requested_plan(CompactionPlan, target)
    return _slices_started(table, target, {each.partition_path or "" for each in (plan.operations if plan else ())})


def _slices_started(table: HudiTable, target: Instant, partitions: Iterable[str]) -> set[str]:
    """All files of slices that began with the instant, logs too: later writes to them are rolled back before it.

    Otherwise they would count as an archived slice as soon as the timeline begins after the instant.
    """
    time = target.requested_time
    return {path for partition in partitions for path in bearing(table.storage, time, partition)}


def _logs_with_blocks(storage: Storage, instant_time: InstantTime, partition: str) -> list[str]:
    """Log files of a partition with blocks of an instant. Their headers are read, nothing else."""
    found = []
    for file in storage.list_prefix(partition):
        log = LogFileName.parse(file.name)
        if log is None or log.extension != "log" or not file.size_bytes:
            continue
        with storage.open_input(file.path) as opened:
            blocks = read_blocks(opened, file.path, file.size_bytes)
            headers = [block.headers for block in blocks if block.type is not BlockType.CORRUPT]
        if any(header.get(HeaderKey.INSTANT_TIME) == instant_time for header in headers):
            found.append(file.path)
    return found


_COMMAND_TOKEN = "1-0-1"  # Hudi's write token of command blocks

log = logging.getLogger("skep.commit")


def roll_back(table: HudiTable, target: Instant) -> RollbackMetadata:
    """Undoes an instant under a rollback instant, which stays on the timeline. Files are deleted before the instant.

    An inflight compaction stays planned, since delta commits may have written to its slices.
    """
    rollback, plan = request_rollback(table, target)
    return _complete(table, rollback, plan)


def request_rollback(table: HudiTable, target: Instant, *, forget: bool = False) -> tuple[Instant, RollbackPlan]:
    """Writes the plan of a rollback onto the timeline. The target's tasks open no files after that."""
    close_markers(table.storage, target.requested_time)
    plan = plan_rollback(table, target, forget=forget)
    rollback = request_plan(table, Action.ROLLBACK, plan)
    return rollback, plan


def finish_rollback(table: HudiTable, rollback: Instant) -> None:
    """Finishes an interrupted rollback. One that has changed nothing yet is deleted where later writes build
    on its target.
    """
    plan = pending_rollback_plan(table, rollback)
    if plan is None or plan.instant_to_rollback is None or _is_outdated(table, plan.instant_to_rollback):
        delete_pending(table, rollback)
        return
    close_markers(table.storage, plan.instant_to_rollback.commit_time)
    _complete(table, rollback, plan)


def pending_rollback_plan(table: HudiTable, rollback: Instant) -> RollbackPlan | None:
    """The plan of a rollback; None when the requested file is missing or incomplete."""
    path = table.timeline.layout.path(Instant(rollback.requested_time, Action.ROLLBACK, State.REQUESTED))
    try:
        return decode_plan(RollbackPlan, table.storage.read(path), path)
    except (FileNotFoundError, FormatError):
        return None


def rollbacks_of(table: HudiTable, time: InstantTime) -> Iterator[Instant]:
    """The pending rollbacks of an instant."""
    for rollback in table.timeline.pending().of(Action.ROLLBACK):
        plan = pending_rollback_plan(table, rollback)
        if plan is not None and plan.instant_to_rollback and plan.instant_to_rollback.commit_time == time:
            yield rollback


def carry_out(table: HudiTable, rollback: Instant, plan: RollbackPlan) -> RollbackMetadata:
    """All of a rollback but its completed file.

    May be repeated after any failure. Returns what that file is to hold.
    """
    start = table.context.clock.monotonic()
    info = plan.instant_to_rollback
    assert info is not None
    if rollback.state is State.REQUESTED:
        transition_to_inflight(table, rollback)
    table = drop_merged(table, InstantTime(info.commit_time))
    _make_pending(table, info)
    files = [_path_of(request, uri) for request in plan.rollback_requests for uri in request.files_to_be_deleted]
    deleted = delete_files(table.context, files)
    commands = [
        (request, written)
        for request in plan.rollback_requests
        if request.log_blocks_to_be_deleted
        and (written := _append_command(table.storage, rollback, info, request)) is not None
    ]
    target = Instant(info.commit_time, Action(info.action), State.INFLIGHT)
    for participant in reversed(table_participants()):
        participant.abort(table, target)
    for form in _forms(table, info):
        delete_pending(table, form, keep_requested=info.action == Action.COMPACTION)
    return RollbackMetadata(
        start_rollback_time=rollback.requested_time,
        time_taken_in_millis=int((table.context.clock.monotonic() - start) * 1000),
        total_files_deleted=len(deleted),
        commits_rollback=(info.commit_time,),
        partition_metadata=_by_partition(table.storage, plan, deleted, commands),
        instants_rollback=(info,),
    )


def _complete(table: HudiTable, rollback: Instant, plan: RollbackPlan) -> RollbackMetadata:
    with table.context.events.step("rollback", rollback=rollback.requested_time) as found:
        metadata = carry_out(table, rollback, plan)
        record_rollback(table.reload(), rollback, metadata)  # some of its indexes may be dropped by now
        complete_once(table, rollback, metadata)
        (target,) = metadata.commits_rollback
        delete_markers(table.storage, target)
        files = metadata.total_files_deleted
        found.update(instant=target, files=files)
    log.info("table %s: %s rolled back, %d files deleted", table.config.name, target, files)
    return metadata


def _is_outdated(table: HudiTable, info: InstantInfo) -> bool:
    """Whether the target is (still) complete, and later writes were built on it since the rollback was planned."""
    completed = table.timeline.data().completed()
    return completed.contains(info.commit_time) and len(completed.after(info.commit_time)) > 0


def _forms(table: HudiTable, info: InstantInfo) -> list[Instant]:
    """The pending instants that the target may be: a commit may have been a compaction."""
    action = Action(info.action)
    actions = [each for each in Action if each.completed_as is action.completed_as]
    if table.layout.clustering is not Action.CLUSTERING:
        actions = [each for each in actions if each is not Action.CLUSTERING]  # the names of both would be the same
    return [Instant(info.commit_time, each, State.INFLIGHT) for each in actions]


def _make_pending(table: HudiTable, info: InstantInfo) -> None:
    completed = Instant(info.commit_time, Action(info.action).completed_as, State.COMPLETED)
    paths = completed_files(table, completed)
    if not paths:
        return
    path = table.layout.path
    forms = [replace(form, state=state) for form in _forms(table, info) for state in (State.REQUESTED, State.INFLIGHT)]
    if not any(table.storage.exists(path(form)) for form in forms):
        # Without any, its files would count as archived as soon as the timeline begins after it.
        transition_to_inflight(table, completed)
    for found in paths:
        table.storage.delete(found)


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
            return path, len(block)  # an earlier attempt wrote it
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
