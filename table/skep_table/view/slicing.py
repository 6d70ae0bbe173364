"""From file names to file groups: a pure function of a partition's files and of what the timeline says.

Format guide 10.2 (log files named by the base instant of their slice) and 10.3 (by their own delta commit).
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from skep_table.names import BaseFileName, LogFileName
from skep_table.storage import FileStatus
from skep_table.view.files import BaseFile, FileGroup, FileSlice, LogFile

GroupKey = tuple[str, str]
"""Partition path and file id."""


@dataclass(frozen=True)
class Facts:
    """What slicing has to know of the timeline, as of one instant.

    `is_committed` says whether the writes of an instant are completed (or archived) and not later than the view.
    `pending_compactions`, `pending_clusterings` and `replaced` map file groups to instants.
    """

    is_committed: Callable[[str], bool]
    completion_time_of: Callable[[str], str | None]
    logs_bear_delta_commit: bool
    pending_compactions: Mapping[GroupKey, str] = field(default_factory=dict)
    pending_clusterings: Mapping[GroupKey, str] = field(default_factory=dict)
    replaced: Mapping[GroupKey, str] = field(default_factory=dict)


def file_groups(partition_path: str, files: Iterable[FileStatus], facts: Facts) -> list[FileGroup]:
    """The groups of a partition that hold committed files, by file id; other files in its folder are passed over."""
    bases: dict[str, list[BaseFile]] = defaultdict(list)
    logs: dict[str, list[LogFile]] = defaultdict(list)
    for file in files:
        if file.name.startswith("."):
            log = LogFileName.parse(file.name)
            if log is not None and not log.cdc and log.extension == "log":
                logs[log.file_id].append(LogFile(file.path, file.size_bytes, log))
        else:
            base = BaseFileName.parse(file.name)
            if base is not None:
                bases[base.file_id].append(BaseFile(file.path, file.size_bytes, base))
    assign = _logs_by_delta_commit if facts.logs_bear_delta_commit else _logs_by_base_instant
    groups = []
    for file_id in sorted(bases.keys() | logs.keys()):
        key = partition_path, file_id
        compaction = facts.pending_compactions.get(key)
        base_files = _committed_bases(bases.get(file_id, ()), compaction, facts)
        log_files = sorted(logs.get(file_id, ()), key=lambda log: log.name.sort_key)
        logs_of = assign(log_files, base_files, compaction, facts)
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
                    facts.pending_clusterings.get(key),
                    facts.replaced.get(key),
                )
            )
    return groups


def _committed_bases(found: Iterable[BaseFile], compaction: str | None, facts: Facts) -> dict[str, BaseFile]:
    # Of two files of one instant, which a retried task may have left, the choice is free; it is the same every time.
    return {
        base.name.instant_time: base
        for base in sorted(found, key=lambda base: base.path)
        if base.name.instant_time != compaction and facts.is_committed(base.name.instant_time)
    }


def _logs_by_base_instant(
    logs: Iterable[LogFile], _bases: Mapping[str, BaseFile], compaction: str | None, facts: Facts
) -> dict[str, list[LogFile]]:
    assigned: dict[str, list[LogFile]] = defaultdict(list)
    for log in logs:
        instant = log.name.instant_time
        if instant == compaction or facts.is_committed(instant):
            assigned[instant].append(log)
    return assigned


def _logs_by_delta_commit(
    logs: Iterable[LogFile], bases: Mapping[str, BaseFile], compaction: str | None, facts: Facts
) -> dict[str, list[LogFile]]:
    """A log belongs to the newest slice whose base instant is not later than the completion of its delta commit."""
    starts = sorted({*bases, compaction} if compaction else bases)
    assigned: dict[str, list[LogFile]] = defaultdict(list)
    for log in logs:
        instant = log.name.instant_time
        if not facts.is_committed(instant):
            continue
        place = bisect.bisect_right(starts, facts.completion_time_of(instant) or instant)
        if place == 0:
            starts.insert(0, instant)
            place = 1
        assigned[starts[place - 1]].append(log)
    return assigned
