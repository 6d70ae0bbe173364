"""A table as it will be after a write that has not completed yet, for the checks before its commit."""

from __future__ import annotations

from dataclasses import replace

from skep_table.instant_time import InstantTime
from skep_table.names import BaseFileName, LogFileName
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant, State
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.timeline import Timeline
from skep_table.view import FileView, FolderFilter, Listing


class Preview(HudiTable):
    """`table` with the files that `metadata` names. Files that other attempts of its tasks left are hidden."""

    def __init__(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        done = replace(instant, action=instant.action.completed_as, state=State.COMPLETED)
        super().__init__(table.context, table.config, _with(table.timeline, done))
        self._before = table
        self._instant = done
        self._metadata = metadata

    def __reduce__(self) -> tuple[object, ...]:
        return Preview, (self._before, self._instant, self._metadata)

    def reload(self) -> Preview:
        return Preview(self._before.reload(), self._instant, self._metadata)

    def timeline_now(self) -> Timeline:
        return _with(super().timeline_now(), self._instant)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        if instant.requested_time == self._instant.requested_time:
            return self._metadata
        return self._before.commit_metadata(instant)

    def view(self, *, as_of: InstantTime | None = None, metadata: bool = True) -> FileView:
        listing = _Listed(self._listing(metadata), self._instant.requested_time, self._metadata)
        return FileView(listing, lambda: self._instant_states(as_of))


def _with(timeline: Timeline, done: Instant) -> Timeline:
    """A timeline on which an instant is completed."""
    others = [each for each in timeline if each.requested_time != done.requested_time]
    return Timeline([*others, done], timeline.layout, timeline.archive)


class _Listed:
    """A listing without the files of an instant that its commit metadata does not name."""

    def __init__(self, listing: Listing, time: InstantTime, metadata: CommitMetadata) -> None:
        self._listing = listing
        self._time = time
        self._named = {stat.path for stat in metadata.stats}

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        return self._listing.partitions(within)

    def files(self, partition_path: str) -> list[FileStatus]:
        return [file for file in self._listing.files(partition_path) if self._is_seen(file)]

    def _is_seen(self, file: FileStatus) -> bool:
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        return name is None or name.instant_time != self._time or file.path in self._named
