"""A table as it will be when a write completes that is still under way: for those who check it before it does."""

from __future__ import annotations

from dataclasses import replace

from skep_table.names import BaseFileName, LogFileName
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant, State
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.timeline import Timeline
from skep_table.view import FileView, Listing
from skep_table.view.facts import load_facts


class Preview(HudiTable):
    """`table`, and over it the files that `metadata` names. What other attempts of its tasks left is not seen."""

    def __init__(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        done = replace(instant, action=instant.action.completed_as, state=State.COMPLETED)
        super().__init__(table.storage, table.config, _with(table.timeline, done), options=table.options)
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

    def view(self, *, as_of: str | None = None, metadata: bool = True) -> FileView:
        listing = _Listed(self._listing(metadata), self._instant.requested_time, self._metadata)
        return FileView(listing, lambda: load_facts(self, as_of, self._runner))


def _with(timeline: Timeline, done: Instant) -> Timeline:
    """A timeline on which an instant is completed."""
    others = [each for each in timeline if each.requested_time != done.requested_time]
    return Timeline([*others, done], timeline.layout, timeline.archive)


class _Listed:
    """A listing without the files of an instant that its account does not name."""

    def __init__(self, listing: Listing, time: str, metadata: CommitMetadata) -> None:
        self._listing = listing
        self._time = time
        self._named = {stat.path for stat in metadata.stats}

    def partitions(self) -> list[str]:
        return self._listing.partitions()

    def files(self, partition_path: str) -> list[FileStatus]:
        return [file for file in self._listing.files(partition_path) if self._is_seen(file)]

    def _is_seen(self, file: FileStatus) -> bool:
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        return name is None or name.instant_time != self._time or file.path in self._named
