"""The view of one table at one moment: file groups and slices by partition, read when they are asked for.

The files of a partition are grouped by their names and the states of instants: format guide 10.2 for log files named by
the base instant of their slice, 10.3 for those named by their delta commit.
"""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from skep_format.errors import UnsupportedError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import BaseFileName, BaseFormat, ExternalFileName, FileGroupId, LogFileName, join
from skep_format.storage import FileStatus
from skep_format.versions import LogNaming
from skep_table.view.listing import FolderFilter, Listing

_NOT_READ: Final = ".lance"  # of Hudi 1.2, in a table with base files of several formats


@dataclass(frozen=True, slots=True)
class BaseFile:
    """`path` is relative to the table's base."""

    path: str
    size_bytes: int
    name: BaseFileName

    @property
    def known_size(self) -> int | None:
        """The size in bytes for `Storage.open_input`; None where only the name is known.

        Base files never grow. Log files may, and what metadata states of their size need not be the size of the file.
        """
        return self.size_bytes if self.size_bytes > 0 else None


@dataclass(frozen=True, slots=True)
class LogFile:
    """`path` is relative to the table's base."""

    path: str
    size_bytes: int
    name: LogFileName


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A base file, or none yet, and the log files over it in the order in which they apply."""

    partition_path: str
    file_id: str
    base_instant: InstantTime
    base_file: BaseFile | None = None
    log_files: tuple[LogFile, ...] = ()

    @property
    def group(self) -> FileGroupId:
        """The file group that this slice is a version of."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The base file and the log files, without the partition path."""
        base = (str(self.base_file.name),) if self.base_file else ()
        return (*base, *(str(log.name) for log in self.log_files))

    @property
    def files(self) -> tuple[FileStatus, ...]:
        base = (self.base_file,) if self.base_file else ()
        return tuple(FileStatus(each.path, each.size_bytes, 0) for each in (*base, *self.log_files))

    @property
    def size_bytes(self) -> int:
        """The bytes of the base file and the log files."""
        return (self.base_file.size_bytes if self.base_file else 0) + sum(log.size_bytes for log in self.log_files)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All committed slices of one file id, newest first, and what is going on with it.

    `pending_compaction` is the instant of a compaction that is planned or running, `pending_clustering` likewise;
    `replaced_by` the instant of the replace commit since which the group holds no rows of the table.
    """

    partition_path: str
    file_id: str
    slices: tuple[FileSlice, ...]
    pending_compaction: InstantTime | None = None
    pending_clustering: InstantTime | None = None
    replaced_by: InstantTime | None = None

    @property
    def is_free(self) -> bool:
        """Whether no service has a plan for it."""
        return self.pending_compaction is None and self.pending_clustering is None

    @property
    def latest(self) -> FileSlice | None:
        """The slice to read: logs that await a pending compaction lie over the slice that is to be compacted."""
        if not self.slices:
            return None
        newest = self.slices[0]
        if newest.base_instant != self.pending_compaction or len(self.slices) == 1:
            return newest
        previous = self.slices[1]
        return replace(previous, log_files=previous.log_files + newest.log_files)


@dataclass(frozen=True)
class InstantStates:
    """The states of instants that slicing needs, as of one instant.

    `is_committed`: whether the writes of an instant are completed or archived, and not later than the view.
    `pending_compactions`, `pending_clusterings` and `replaced` map file groups to the instants of these actions.
    """

    is_committed: Callable[[InstantTime], bool]
    completion_time_of: Callable[[InstantTime], CompletionTime | None]
    logs: LogNaming
    pending_compactions: Mapping[FileGroupId, InstantTime] = field(default_factory=dict)
    pending_clusterings: Mapping[FileGroupId, InstantTime] = field(default_factory=dict)
    replaced: Mapping[FileGroupId, InstantTime] = field(default_factory=dict)


def file_groups(partition_path: str, files: Iterable[FileStatus], states: InstantStates) -> list[FileGroup]:
    """The file groups of a partition that have committed files, by file id; other files of the folder are ignored."""
    bases: dict[str, list[BaseFile]] = defaultdict(list)
    logs: dict[str, list[LogFile]] = defaultdict(list)
    for file in files:
        if file.name.startswith("."):
            log = LogFileName.parse(file.name)
            if log is not None and not log.cdc and log.extension == "log":
                logs[log.file_id].append(LogFile(file.path, file.size_bytes, log))
        else:
            base = _base_file(partition_path, file)
            if base is not None:
                bases[base.name.file_id].append(base)
    groups = []
    for file_id in sorted(bases.keys() | logs.keys()):
        key = FileGroupId(partition_path, file_id)
        compaction = states.pending_compactions.get(key)
        # A retried task may leave two files of one instant; either is right, and the choice is deterministic.
        base_files = {
            base.name.instant_time: base
            for base in sorted(bases.get(file_id, ()), key=lambda base: base.path)
            if base.name.instant_time != compaction and states.is_committed(base.name.instant_time)
        }
        log_files = sorted(logs.get(file_id, ()), key=lambda log: log.name.sort_key)
        logs_of = _assigned(log_files, base_files, compaction, states)
        slices = tuple(
            FileSlice(partition_path, file_id, instant, base_files.get(instant), tuple(logs_of.get(instant, ())))
            for instant in sorted(base_files.keys() | logs_of.keys(), reverse=True)
        )
        if slices:
            clustering, replaced = states.pending_clusterings.get(key), states.replaced.get(key)
            groups.append(FileGroup(partition_path, file_id, slices, compaction, clustering, replaced))
    return groups


def _base_file(partition_path: str, file: FileStatus) -> BaseFile | None:
    name = BaseFileName.parse(file.name)
    if name is not None:
        return BaseFile(file.path, file.size_bytes, name)
    external = ExternalFileName.parse(file.name)
    if external is None:
        if file.name.endswith(_NOT_READ):
            raise UnsupportedError(
                f"{file.path} is a base file in Lance, which can't be read",
                path=file.path,
                found="LANCE",
                expected=", ".join(BaseFormat.__members__),
            )
        return None
    return BaseFile(join(partition_path, external.path), file.size_bytes, external.base_file_name(file.name))


def _assigned(
    logs: Iterable[LogFile],
    bases: Mapping[InstantTime, BaseFile],
    compaction: InstantTime | None,
    states: InstantStates,
) -> dict[InstantTime, list[LogFile]]:
    """The log files of each slice.

    Named by delta commits, a log file belongs to the slice with the largest base instant at or before the completion of
    its own. Else it belongs to the slice that its name states. One between the times of base files is named by its
    delta commit all the same: the table had a newer version, and the file lies over the base file before it.
    """
    of_delta_commit = states.logs.of_delta_commit
    starts = sorted({*bases, compaction} if compaction and of_delta_commit else bases)
    assigned: dict[InstantTime, list[LogFile]] = defaultdict(list)
    for log in logs:
        instant = log.name.instant_time
        if instant == compaction and not of_delta_commit:
            assigned[instant].append(log)
        elif states.is_committed(instant):
            time = (states.completion_time_of(instant) or instant) if of_delta_commit else instant
            place = bisect.bisect_right(starts, time)
            if place == 0 and of_delta_commit:
                starts.insert(0, instant)
            assigned[starts[place - 1] if place else instant].append(log)
    return assigned


class FileView:
    """File groups and slices of a table. Groups that a replace commit replaced are left out unless asked for."""

    def __init__(self, listing: Listing, load_instant_states: Callable[[], InstantStates]) -> None:
        self.listing = listing
        self._load_states = load_instant_states

    @functools.cached_property
    def states(self) -> InstantStates:
        """The states of instants that affect file groups, read once."""
        return self._load_states()

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        """All partition paths, sorted; `[""]` for a table that is not partitioned.

        `within`: at least those that it keeps, so that others need not be listed.
        """
        return self.listing.partitions(within)

    def file_groups(self, partition_path: str, *, replaced: bool = False) -> list[FileGroup]:
        """The groups of a partition by file id, with all their committed slices; `replaced` adds replaced ones."""
        groups = file_groups(partition_path, self.listing.files(partition_path), self.states)
        return groups if replaced else [group for group in groups if group.replaced_by is None]

    def slices(self, partition_path: str) -> list[FileSlice]:
        """The slice to read of each live group, merged with the one before where a compaction is pending."""
        return [slice_ for group in self.file_groups(partition_path) if (slice_ := group.latest) is not None]

    def all_slices(self, partition_path: str) -> list[FileSlice]:
        """Every committed slice of every live group, as it lies there."""
        return [slice_ for group in self.file_groups(partition_path) for slice_ in group.slices]
