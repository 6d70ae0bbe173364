"""A table as it will be after a write that has not completed yet, for the checks before its commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import BaseFileName, LogFileName
from skep_format.storage import FileStatus
from skep_format.timeline.instant import Instant, State
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.timeline import Timeline
from skep_format.versions import TableFormat
from skep_table.table import HudiTable
from skep_table.view import FileView, FolderFilter, Listing

T = TypeVar("T")


class Preview(HudiTable):
    """`table` with the files that `metadata` names. Files that other attempts of its tasks left are hidden."""

    def __init__(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        done = replace(instant, action=instant.action.completed_as, state=State.COMPLETED)
        super().__init__(table.context, table.config, _with(table.timeline, done, table.format))
        self._before = table
        self._instant = done
        self._metadata = metadata

    @property
    def before(self) -> HudiTable:
        """The table without the write."""
        return self._before

    def __reduce__(self) -> tuple[object, ...]:
        return Preview, (self._before, self._instant, self._metadata)

    def reload(self) -> Preview:
        return Preview(self._before.reload(), self._instant, self._metadata)

    def timeline_now(self) -> Timeline:
        return _with(super().timeline_now(), self._instant, self.format)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        if instant.requested_time == self._instant.requested_time:
            return self._metadata
        return self._before.commit_metadata(instant)

    def may_have_folder(self, path: str) -> bool:
        return self._before.may_have_folder(path)

    def _part_of(self, instant: Instant, decode: Callable[[bytes, str], T], part: Callable[[CommitMetadata], T]) -> T:
        if instant.requested_time == self._instant.requested_time:
            return part(self._metadata)
        return self._before._part_of(instant, decode, part)

    def view(self, *, as_of: InstantTime | None = None, metadata: bool = True) -> FileView:
        listing = _Listed(self._before.view(metadata=metadata).listing, self._is_own, self._metadata)
        return FileView(listing, lambda: self._instant_states(as_of))

    def metadata_table(self) -> None:
        """None: its indexes know nothing of the instant. Its listing serves those of the files before."""

    def _is_own(self, file: FileStatus) -> bool:
        """Whether it is a data file of the instant. A log file that is named by its slice may be of any commit."""
        base, log_file = BaseFileName.parse(file.name), LogFileName.parse(file.name)
        name = log_file if base is None and self.format.logs.of_delta_commit else base
        return name is not None and name.instant_time == self._instant.requested_time


def _with(timeline: Timeline, done: Instant, format: TableFormat) -> Timeline:
    """A timeline on which an instant is completed, after all others where log files belong to slices by that time."""
    others = [each for each in timeline if each.requested_time != done.requested_time]
    if format.logs.of_delta_commit:
        last = max(each.latest_time for each in (*others, done))
        done = replace(done, completion_time=CompletionTime(last.plus_milliseconds(1)))
    return Timeline([*others, done], timeline.layout, timeline.archive)


class _Listed:
    """A listing whose files of one instant are those that its commit metadata names: a metadata table lists none of
    them yet, and storage those of all attempts of its tasks."""

    def __init__(self, listing: Listing, is_own: Callable[[FileStatus], bool], metadata: CommitMetadata) -> None:
        self._listing = listing
        self._is_own = is_own
        self._named: dict[str, list[FileStatus]] = defaultdict(list)
        for stat in metadata.stats:
            if stat.path:
                self._named[stat.partition_path].append(FileStatus(stat.path, stat.file_size_in_bytes, 0))

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        return sorted({*self._listing.partitions(within), *self._named})

    def files(self, partition_path: str) -> list[FileStatus]:
        found = {file.path: file for file in self._listing.files(partition_path) if not self._is_own(file)}
        found |= {file.path: file for file in self._named.get(partition_path, ())}
        return [found[path] for path in sorted(found)]

    def prefetch(self, partition_paths: Collection[str]) -> None:
        self._listing.prefetch(partition_paths)
