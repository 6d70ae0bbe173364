"""The partition `files` against a listing of the storage: files, sizes, and the file slices that queries read.

Files of writes that are going on or have failed are no difference, whichever side has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, read_blocks
from skep_format.names import BaseFileName, LogFileName, join
from skep_format.storage import FileStatus
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import CleanerPlan
from skep_table.metadata_table import MetadataTable
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.table import HudiTable
from skep_table.view.slicing import InstantStates, file_groups


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A data file as it is in storage and as the metadata table has it: sizes in bytes, None where it is not there.

    `problem` None: they agree, as far as that matters; `detail` explains it.
    """

    path: str
    name: str
    stored: int | None
    stated: int | None
    problem: MetadataProblem | None = None
    detail: str = ""


def compare_files(table: HudiTable, metadata: MetadataTable) -> Iterator[ListedFile]:
    """All data files of the table, and all that the metadata table lists, by partition path and name."""
    stored, named = table.view(metadata=False), _Named(table)
    there = set(stored.partitions())
    for path in sorted(there.union(metadata.partitions())):
        files = stored.listing.files(path) if path in there else []
        yield from _compared(named, path, files, metadata.files(path))


def check_listing(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares all partitions of the table."""
    if not metadata.is_current():
        detail = "it lacks a completed write: skep lists the storage instead, other readers do not see that write"
        findings.add(MetadataProblem.MISSING, "", findings.partition, detail)
    stored = table.view(metadata=False)
    named = _Named(table)
    there, listed = set(stored.partitions()), set(metadata.partitions())
    for path in sorted(there | listed):
        files = stored.listing.files(path) if path in there else []
        stated = metadata.files(path)
        unfinished = set()
        for each in _compared(named, path, files, stated):
            findings.checked += 1
            if each.problem is MetadataProblem.UNFINISHED:
                unfinished.add(each.name)
            if each.problem is not None and (each.problem is not MetadataProblem.UNFINISHED or each.stated is not None):
                findings.add(each.problem, path, each.name, each.detail, found=each.stated, expected=each.stored)
        files, stated = ([each for each in found if each.name not in unfinished] for found in (files, stated))
        if path in listed and path not in there and not stated:
            detail = "the metadata table has the partition, and it has no folder"
            findings.add(MetadataProblem.STALE, path, path, detail)
        if path not in listed and any(_is_data(each.name) for each in files):
            findings.add(MetadataProblem.MISSING, path, path, "the metadata table lacks the partition", expected=path)
        if path not in listed:
            stated = []
        _check_slices(path, _slices(path, files, stored.states), _slices(path, stated, stored.states), findings)


def _compared(
    named: _Named, path: str, found: Iterable[FileStatus], listed: Iterable[FileStatus]
) -> Iterator[ListedFile]:
    files, sizes = ({each.name: each.size_bytes for each in side} for side in (found, listed))
    for name in sorted({*files, *sizes}):
        stored, stated = files.get(name), sizes.get(name)
        if stated is not None or _is_data(name):
            yield ListedFile(path, name, stored, stated, *_problem(named, path, name, stored, stated))


def _problem(
    named: _Named, path: str, name: str, stored: int | None, stated: int | None
) -> tuple[MetadataProblem | None, str]:
    if stored is None:
        if name in named.being_cleaned.get(path, ()):
            return MetadataProblem.UNFINISHED, "a clean is deleting it"
        return MetadataProblem.SURPLUS, "listed, and there is no such file"
    if stated is None:
        if named.is_committed(path, name, stored, 0):
            return MetadataProblem.MISSING, "a committed file that is not listed"
        return MetadataProblem.UNFINISHED, "of a write that failed or is going on"
    if stored == stated or named.only_grew(path, name, stored, stated):
        return None, ""
    return MetadataProblem.DIFFERS, "another size in bytes"


def _is_data(name: str) -> bool:
    """Whether it is a base, log or CDC file by its name."""
    return BaseFileName.parse(name) is not None or LogFileName.parse(name) is not None


def _slices(path: str, files: Iterable[FileStatus], states: InstantStates) -> dict[str, tuple[str, ...]]:
    """The files of the latest slice of each file group that queries read."""
    latest = (group.latest for group in file_groups(path, files, states) if group.replaced_by is None)
    return {each.file_id: each.file_names for each in latest if each is not None}


def _check_slices(
    path: str, expected: Mapping[str, tuple[str, ...]], found: Mapping[str, tuple[str, ...]], findings: Findings
) -> None:
    for file_id in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(file_id), found.get(file_id)
        if ours != theirs:
            problem = MetadataProblem.SURPLUS if ours is None else MetadataProblem.DIFFERS
            if theirs is None:
                problem = MetadataProblem.MISSING
            findings.add(problem, path, file_id, "the latest file slice", found=_text(theirs), expected=_text(ours))


def _text(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else ", ".join(names)


class _Named:
    """Which files of the table belong to completed actions."""

    def __init__(self, table: HudiTable) -> None:
        self._table = table
        self._states = table.view(metadata=False).states
        self._written: dict[InstantTime, frozenset[str] | None] = {}

    @cached_property
    def being_cleaned(self) -> Mapping[str, frozenset[str]]:
        """The names of the files that pending cleans delete, by partition path."""
        found: dict[str, frozenset[str]] = {}
        for instant in self._table.timeline.pending().of(Action.CLEAN):
            plan = self._table.requested_plan(CleanerPlan, instant)
            for path, names in plan.file_names.items() if plan else ():
                found[path] = found.get(path, frozenset()).union(names)
        return found

    def is_committed(self, path: str, name: str, size: int, start: int) -> bool:
        """Whether a completed action has written the file, or a part of it that begins at `start`."""
        log = LogFileName.parse(name)
        base = BaseFileName.parse(name)
        time = log.instant_time if log else base.instant_time if base else None
        if log is not None and not log.cdc and not self._states.logs.of_delta_commit:
            return self._has_block(join(path, name), size, start)
        if time is None or not self._states.is_committed(time):
            return False
        written = self._files_of(time)  # a task attempt that lost may have left a file of its own
        return written is None or join(path, name) in written

    def only_grew(self, path: str, name: str, size: int, stated: int) -> bool:
        """Whether a log file is longer than stated, by what a write that has not completed has appended."""
        return LogFileName.parse(name) is not None and size > stated and not self.is_committed(path, name, size, stated)

    def _has_block(self, file: str, size: int, start: int) -> bool:
        counts = self._table.timeline.is_completed_or_archived
        try:
            with self._table.storage.open_input(file) as opened:
                blocks = list(read_blocks(opened, file, size))
        except FormatError:
            return True  # fsck names what is wrong with it
        kept = (block for block in blocks if block.offset >= start and block.type is not BlockType.CORRUPT)
        return any(counts(block.instant_time) for block in kept)

    def _files_of(self, time: InstantTime) -> frozenset[str] | None:
        """The paths that a write has recorded; None where that is archived."""
        if time not in self._written:
            found = [each for each in self._table.timeline.data().completed() if each.requested_time == time]
            stats = self._table.commit_metadata(found[0]).stats if found else ()
            self._written[time] = frozenset(path for stat in stats for path in stat.paths) if found else None
        return self._written[time]
