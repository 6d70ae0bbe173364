"""Undoing what is unfinished on the timeline of a metadata table: delta commits (format guide 16.4), which have the
time of an action on the data table and are undone with that, and what a process that died leaves besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey, read_blocks
from skep_format.names import BaseFileName, LogFileName
from skep_format.storage import FileStatus, Storage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import RollbackPlan
from skep_format.timeline.write import completed_files, delete_pending
from skep_table.metadata_table import FOLDER
from skep_table.metadata_write.own import files_by_partition
from skep_table.table import HudiTable


def roll_back_delta_commit(own: HudiTable, time: InstantTime) -> None:
    """Undoes the delta commit `time` of the metadata table `own`, as far as it was written, by deleting.

    Hudi appends command blocks where log files are named by their slice. Each of them holds the blocks of one delta
    commit though, so that deleting is the same to readers, needs no lock, and may be repeated by any process.
    Its completed file is deleted first: no reader takes what is left then. FormatError where one of its log files
    has blocks of other delta commits, which writers with appending storage made before Hudi 0.14.
    """
    instant = Instant(time, Action.DELTA_COMMIT, State.COMPLETED)
    logs = list(_log_files(own, time))
    for path in completed_files(own, instant):
        own.storage.delete(path)
    own.storage.delete_many(logs)
    delete_pending(own, Instant(time, Action.DELTA_COMMIT, State.INFLIGHT))


def _log_files(own: HudiTable, time: InstantTime) -> Iterator[str]:
    of_commit = own.format.logs.of_delta_commit
    for file in chain.from_iterable(files_by_partition(own)):
        name = LogFileName.parse(file.name)
        if name and (name.instant_time == time if of_commit else _is_of(own.storage, file, time)):
            yield file.path


def _is_of(storage: Storage, file: FileStatus, time: InstantTime) -> bool:
    """Whether all blocks of a log file are of one delta commit, by their headers."""
    with storage.open_input(file.path) as opened:
        blocks = [b for b in read_blocks(opened, file.path, file.size_bytes) if b.type is not BlockType.CORRUPT]
    times = {block.headers.get(HeaderKey.INSTANT_TIME) for block in blocks}
    if time in times and len(times) > 1:
        raise FormatError(
            f"{file.path} has blocks of several delta commits", path=file.path, found=sorted(map(str, times))
        )
    return time in times


_OF_LOGS: Final = (Action.DELTA_COMMIT.value, Action.LOG_COMPACTION.value)


def without_unfinished(own: HudiTable) -> HudiTable:
    """The metadata table without pending rollbacks, which are carried out, and without pending compactions and log
    compactions, whose files and instants are deleted.

    FormatError where delta commits have been written on top of a compaction: their log files have its time in their
    names.
    """
    pending = own.timeline.pending()
    rollbacks, of_logs = pending.of(Action.ROLLBACK).instants, pending.of(Action.LOG_COMPACTION).instants
    for rollback in rollbacks:
        # A write at the time of its target may follow: a process that found the plan then would delete its files.
        plan = own.requested_plan(RollbackPlan, rollback)
        target = plan.instant_to_rollback if plan is not None else None
        if target is not None and target.action in _OF_LOGS:
            roll_back_delta_commit(own, target.commit_time)
        delete_pending(own, rollback)
    for instant in of_logs:
        roll_back_delta_commit(own, instant.requested_time)
        delete_pending(own, instant)
    compactions = pending.of(Action.COMPACTION).instants
    for compaction in compactions:
        time = compaction.requested_time
        for files in files_by_partition(own):
            logs = [name for file in files if (name := LogFileName.parse(file.name)) and name.instant_time == time]
            if logs and not own.format.logs.of_delta_commit:
                raise FormatError(
                    f"{own.storage.root}: delta commits lie on top of the compaction {time}, which is pending",
                    path=FOLDER,
                    instant=time,
                )
            bases = [f.path for f in files if (base := BaseFileName.parse(f.name)) and base.instant_time == time]
            own.storage.delete_many(bases)
        delete_pending(own, compaction)
    return own.reload() if rollbacks or of_logs or compactions else own
