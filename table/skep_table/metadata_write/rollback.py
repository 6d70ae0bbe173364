"""Undoing a delta commit of the metadata table: its log files and its instant are deleted (format guide 16.4).

Hudi appends command blocks where log files are named by their slice. Each of them holds the blocks of one delta commit
though, so that deleting is the same to readers, needs no lock, and may be repeated by any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey, read_blocks
from skep_format.names import LogFileName
from skep_format.storage import FileStatus, Storage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.write import completed_files, delete_pending
from skep_table.metadata_write.own import files_by_partition
from skep_table.table import HudiTable


def roll_back_delta_commit(own: HudiTable, time: InstantTime) -> None:
    """Undoes the delta commit `time` of the metadata table `own`, as far as it was written.

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
