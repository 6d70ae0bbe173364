"""The newest slices of the partitions that a write goes to, as the files that rows are looked up in and written to."""

from __future__ import annotations

from collections.abc import Iterable

from skep_table.slices.bootstrap import source_of
from skep_table.slices.history import names_in_file, schema_history
from skep_table.table import HudiTable
from skep_table.view import FileGroup, FileSlice
from skep_table.write.index import IndexFile, LogTail


def latest_files(table: HudiTable, partitions: Iterable[str]) -> dict[str, tuple[IndexFile, ...]]:
    """Partition path → the newest slice of each live file group. Those without a base file are merge-on-read's."""
    view = table.view()
    is_mor = table.config.is_mor
    return {
        path: tuple(file for group in view.file_groups(path) if (file := _index_file(table, group, is_mor)) is not None)
        for path in partitions
    }


def _index_file(table: HudiTable, group: FileGroup, is_mor: bool) -> IndexFile | None:
    slice_ = group.latest
    if slice_ is None or (slice_.base_file is None and not is_mor):
        return None
    base = slice_.base_file
    source = source_of(table, slice_, table.options)
    size = base.size_bytes if base else 0
    return IndexFile(
        group.file_id,
        base.path if base else "",
        slice_.base_instant,
        size if source is None else size + source.size_bytes,
        group.pending_clustering,
        _tail(group) if is_mor else None,
        group.pending_compaction,
        _planned(group),
        source,
        names_in_file(schema_history(table), slice_.base_instant) if base else {},
    )


def _planned(group: FileGroup) -> FileSlice | None:
    """The slice that a pending compaction reads; logs that came since are of the next one."""
    before = [slice_ for slice_ in group.slices if slice_.base_instant != group.pending_compaction]
    return before[0] if before and group.pending_compaction is not None else None


def _tail(group: FileGroup) -> LogTail | None:
    """Rows for a slice that awaits its compaction go to the logs of the slice that this begins."""
    slice_ = group.latest
    if slice_ is None:
        return None
    instant = group.pending_compaction or slice_.base_instant
    logs = [log.name for log in slice_.log_files if log.name.instant_time == instant]
    base = slice_.base_file if slice_.base_instant == instant else None
    return LogTail(
        instant,
        max((name.version for name in logs), default=0),
        tuple(map(str, logs)),
        str(base.name) if base else "",
        sum(log.size_bytes for log in slice_.log_files),
    )
