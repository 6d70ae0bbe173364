"""The plan of a rollback: files that only the instant wrote are deleted, its blocks in shared log files are undone.

A log file that is named by its delta commit is the instant's own. One that is named by its slice is shared by commits:
its blocks are undone by a command block, and readers that have it open go on. No reader sees a slice that began with
the instant: its files are deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.logfile import BlockType, HeaderKey, read_blocks
from skep_format.names import BaseFileName, LogFileName
from skep_format.storage import Storage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CompactionPlan, InstantInfo, RollbackPlan, RollbackRequest
from skep_table.commit.parts.data_files import files_of_instant, is_of_base_file, naming_markers
from skep_table.commit.parts.markers import list_markers
from skep_table.keys.hash_rings import planned_resizes
from skep_table.table import HudiTable


def plan_rollback(table: HudiTable, target: Instant, *, forget: bool = False) -> RollbackPlan:
    """The plan for a completed or pending write, the newest of the timeline. Changes nothing.

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
    return {
        file.path
        for partition in partitions
        for file in table.storage.list_prefix(partition)
        if (name := BaseFileName.parse(file.name) or LogFileName.parse(file.name)) is not None
        and name.instant_time == target.requested_time
    }


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
