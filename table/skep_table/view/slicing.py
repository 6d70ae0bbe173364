"""The view of one table at one moment: file groups and slices by partition, read when they are asked for.

The files of a partition are grouped by their names and the states of instants: format guide 10.2 for log files named by
the base instant of their slice, 10.3 for those named by their delta commit.
"""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from skep_format.errors import UnsupportedError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import BaseFileName, BaseFormat, ExternalFileName, FileGroupId, LogFileName, join
from skep_format.storage import FileStatus
from skep_format.versions import LogNaming
from skep_table.view.files import BaseFile, FileGroup, FileSlice, LogFile
from skep_table.view.listing import FolderFilter, Listing

_NOT_READ: Final = ".lance"  # of Hudi 1.2, in a table with base files of several formats


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
    assign = _logs_by_delta_commit if states.logs.of_delta_commit else _logs_by_base_instant
    groups = []
    for file_id in sorted(bases.keys() | logs.keys()):
        key = FileGroupId(partition_path, file_id)
        compaction = states.pending_compactions.get(key)
        base_files = _committed_bases(bases.get(file_id, ()), compaction, states)
        log_files = sorted(logs.get(file_id, ()), key=lambda log: log.name.sort_key)
        logs_of = assign(log_files, base_files, compaction, states)
        slices = tuple(
            FileSlice(partition_path, file_id, instant, base_files.get(instant), tuple(logs_of.get(instant, ())))
            for instant in sorted(base_files.keys() | logs_of.keys(), reverse=True)
        )
        if slices:
            groups.append(
                FileGroup(
                    partition_path,
                    file_id,
                    slices,
                    compaction,
                    states.pending_clusterings.get(key),
                    states.replaced.get(key),
                )
            )
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


def _committed_bases(
    found: Iterable[BaseFile], compaction: InstantTime | None, states: InstantStates
) -> dict[InstantTime, BaseFile]:
    # A retried task may leave two files of one instant; either is right, and the choice is deterministic.
    return {
        base.name.instant_time: base
        for base in sorted(found, key=lambda base: base.path)
        if base.name.instant_time != compaction and states.is_committed(base.name.instant_time)
    }


def _logs_by_base_instant(
    logs: Iterable[LogFile],
    bases: Mapping[InstantTime, BaseFile],
    compaction: InstantTime | None,
    states: InstantStates,
) -> dict[InstantTime, list[LogFile]]:
    """A log file belongs to the slice that its name states. One between the times of base files is named by its delta
    commit: the table had a newer version, and the file lies over the base file before it."""
    starts = sorted(bases)
    assigned: dict[InstantTime, list[LogFile]] = defaultdict(list)
    for log in logs:
        instant = log.name.instant_time
        if instant == compaction:
            assigned[instant].append(log)
        elif states.is_committed(instant):
            place = bisect.bisect_right(starts, instant)
            assigned[starts[place - 1] if place else instant].append(log)
    return assigned


def _logs_by_delta_commit(
    logs: Iterable[LogFile],
    bases: Mapping[InstantTime, BaseFile],
    compaction: InstantTime | None,
    states: InstantStates,
) -> dict[InstantTime, list[LogFile]]:
    """A log file belongs to the slice with the largest base instant at or before the completion of its delta commit."""
    starts = sorted({*bases, compaction} if compaction else bases)
    assigned: dict[InstantTime, list[LogFile]] = defaultdict(list)
    for log in logs:
        instant = log.name.instant_time
        if not states.is_committed(instant):
            continue
        place = bisect.bisect_right(starts, states.completion_time_of(instant) or instant)
        if place == 0:
            starts.insert(0, instant)
            place = 1
        assigned[starts[place - 1]].append(log)
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

    @property
    def replaced(self) -> Mapping[FileGroupId, InstantTime]:
        """Partition path and file id of each replaced group, with the instant that replaced it."""
        return self.states.replaced

    @property
    def pending_compaction(self) -> Mapping[FileGroupId, InstantTime]:
        """Partition path and file id of each group that awaits compaction, with the compaction's instant."""
        return self.states.pending_compactions

    @property
    def pending_clustering(self) -> Mapping[FileGroupId, InstantTime]:
        """File groups of pending clusterings, with the instant of each."""
        return self.states.pending_clusterings

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
