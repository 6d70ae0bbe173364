"""Files that commits name and a listing lacks: a read of them is an error, not one with fewer or with older rows.

A metadata table lists files whether they are there or not, and opening them fails. A listing of storage shows nothing
of what is lost. It is compared with the newest commits and with those that were read for another reason: that takes no
request for a file, and a few small ones for commits, at the same time, once for each commit. `skep fsck`
compares with all commits of the active timeline.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep_format.errors import StorageError
from skep_format.instant_time import AFTER_ALL, BEFORE_ALL, InstantTime
from skep_format.names import FileGroupId, LogFileName
from skep_format.timeline.metadata import WriteStat
from skep_table.keys.hash_rings import is_copy
from skep_table.query.cleaned import is_outdated
from skep_table.table import HudiTable, Written
from skep_table.view import FileView, StorageListing


def named_partitions(table: HudiTable, view: FileView) -> Sequence[str]:
    """The partitions in which the commits that are looked at wrote; none where a metadata table lists the files."""
    return table.written_partitions() if isinstance(view.listing, StorageListing) else ()


def check_named_files(
    table: HudiTable, view: FileView, partitions: Sequence[str], as_of: InstantTime | None = None
) -> None:
    """StorageError for a file of the newest slices that a commit until `as_of` names and the view does not list."""
    if not isinstance(view.listing, StorageListing):
        return
    for partition in partitions:
        wanted = table.written_in(partition)
        if not wanted:
            continue
        there = {file.name for file in view.listing.files(partition)}
        lacking = [(time, stat) for time, stat in wanted if stat.path.rpartition("/")[2] not in there]
        if lacking:
            _check(table, view, partition, lacking, as_of or AFTER_ALL)


def refuse_lost_files(
    table: HudiTable, view: FileView, partitions: Sequence[str], as_of: InstantTime | None = None
) -> None:
    """The same for what makes new files of those that are listed. What was deleted since the snapshot was taken, as by
    a clean, is not lost: the check for conflicts finds whether it matters."""
    try:
        check_named_files(table, view, partitions, as_of)
    except StorageError:
        if not is_outdated(table):
            raise


def belongs_to(table: HudiTable, wrote: InstantTime, stat: WriteStat, base_instant: InstantTime) -> bool:
    """Whether a log file that `wrote` has written belongs to the slice of a base file, or to a later one."""
    if table.format.logs.of_delta_commit:
        completed = table.timeline.completion_time_of(wrote)
        return completed is not None and completed.is_at_or_after_request(base_instant)
    name = LogFileName.parse(stat.path.rpartition("/")[2])
    return name is not None and name.instant_time.is_at_or_after(base_instant)


def _check(table: HudiTable, view: FileView, partition: str, lacking: Sequence[Written], as_of: InstantTime) -> None:
    """A clean may have deleted what lies before the newest slice of a group, and all of a group that was replaced."""
    bases = {
        group.file_id: max((each.base_instant for each in group.slices if each.base_file), default=BEFORE_ALL)
        for group in view.file_groups(partition)
    }
    for time, stat in lacking:
        if time.is_after(as_of) or FileGroupId(partition, stat.file_id) in view.replaced:
            continue
        base = bases.get(stat.file_id, BEFORE_ALL)
        if (belongs_to(table, time, stat, base) if stat.is_log else base.is_before(time)) and not is_copy(table, stat):
            raise _missing(table, time, stat)


def _missing(table: HudiTable, time: InstantTime, stat: WriteStat) -> StorageError:
    if table.storage.exists(stat.path):
        what = f"partition {stat.partition_path!r}, of which commit {time} wrote {stat.path}, has lost its metafile"
    else:
        what = f"{stat.path} is missing, which commit {time} wrote"
    return StorageError(
        f"table {table.config.name}: {what}",
        hint="skep fsck names all files that are missing; see docs/runbook.md",
        path=stat.path,
        instant=time,
    )
