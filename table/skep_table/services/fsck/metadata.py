"""The metadata table of a table: whether it can be read, and whether it agrees with the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from skep_format.errors import NotATableError
from skep_format.instant_time import DIGITS, CompletionTime, InstantTime
from skep_format.names import BaseFileName, LogFileName
from skep_format.runner import Runner
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.metadata_table import FIRST_INSTANTS, FOLDER
from skep_table.metadata_write.own import has_metadata_table, open_own
from skep_table.services.fsck.files import Newest, check_files, list_files
from skep_table.services.fsck.findings import FileFinding, Problem, noted
from skep_table.services.fsck.instants import damaged_archive, read_timeline
from skep_table.services.metadata_check import Difference, MetadataProblem, check_metadata_table
from skep_table.table import HudiTable

_OF_FILES = (Problem.MISSING, Problem.SIZE)


def check_metadata(table: HudiTable, runner: Runner, *, compare: bool) -> list[FileFinding]:
    """What can't be read of it, and where it is asked to `compare` and could be read, what differs."""
    if not has_metadata_table(table.config) or not table.format.is_written:
        return []
    found: list[FileFinding] = []
    with noted(found.append, Problem.METADATA, FOLDER):
        try:
            own = open_own(table)
        except NotATableError:
            detail = "the table's settings name a metadata table, and there is none"
            return [FileFinding(Problem.METADATA, FOLDER, None, detail)]
        damages = (each for each in _damages(own, runner) if not _is_unfinished(table, each.instant))
        found += map(_within, damages)
    if compare and not found and table.config.metadata_partitions:
        with noted(found.append, Problem.METADATA, FOLDER):
            found += map(partial(_of_difference, table), check_metadata_table(table).differences)
    return found


def _damages(own: HudiTable, runner: Runner) -> list[FileFinding]:
    """What is wrong with it as a table: its timeline, and the files that its commits name."""
    newest, made = Newest(own), _Made(own)

    def add(instant: Instant, commit: CommitMetadata) -> None:
        newest.add(instant, commit)
        made.add(instant, commit)

    read = read_timeline(own, add)
    written = newest.written()
    findings = [*read.findings, *damaged_archive(own)]
    listed = list_files(own, runner, written)
    compared = check_files(own, runner, written, listed, read.cleaned)
    made.listed(listed.files)
    return [*findings, *(each for each in compared if each.problem in _OF_FILES and made.has(each))]


class _Made:
    """Whether a file is of a partition of the metadata table as it was made last: a partition that was dropped and
    rebuilt has an artificial time, before those of the commits that wrote to it until then.

    By the slices that are there where log files are named by their slice, else by when instants completed.
    """

    def __init__(self, own: HudiTable) -> None:
        self._own = own
        self._at: dict[str, CompletionTime] = {}
        self._slices: set[tuple[str, str, InstantTime]] = set()

    def add(self, instant: Instant, commit: CommitMetadata) -> None:
        """Takes the partitions that a commit made."""
        done = self._own.timeline.completion_time_of(instant.requested_time)
        if not instant.requested_time.startswith(FIRST_INSTANTS) or done is None:
            return
        for path in commit.partition_to_write_stats:
            self._at[path] = max(done, self._at.get(path, done))

    def listed(self, paths: Iterable[str]) -> None:
        """Takes the files that are there."""
        self._slices = {found for path in paths if (found := _slice_of(path)) is not None}

    def has(self, finding: FileFinding) -> bool:
        """Whether a file that is missing, or differs, is one that readers need."""
        if not self._own.format.logs.of_delta_commit:
            return _slice_of(finding.path) in self._slices
        made = self._at.get(finding.path.rpartition("/")[0])
        done = self._own.timeline.completion_time_of(finding.instant) if finding.instant is not None else None
        return made is None or done is None or done.is_at_or_after(made)


def _slice_of(path: str) -> tuple[str, str, InstantTime] | None:
    folder, _, file = path.rpartition("/")
    name = BaseFileName.parse(file) or LogFileName.parse(file)
    return None if name is None else (folder, name.file_id, name.instant_time)


def _is_unfinished(table: HudiTable, instant: InstantTime | None) -> bool:
    """Whether a delta commit is of an action of the table that is pending: its next executor writes it again."""
    return instant is not None and table.timeline.pending().contains(InstantTime(instant[:DIGITS]))


def _within(finding: FileFinding) -> FileFinding:
    path = f"{FOLDER}/{finding.path}"
    return replace(finding, problem=Problem.METADATA, path=path, detail=f"{finding.problem.value}: {finding.detail}")


def _of_difference(table: HudiTable, each: Difference) -> FileFinding:
    if each.problem is MetadataProblem.DAMAGED and table.storage.exists(each.subject):
        return FileFinding(Problem.DAMAGED, each.subject, None, each.detail)  # a data file that was compared with
    path = "/".join(part for part in (each.path, each.subject) if part)
    detail = (
        f"{each.partition} of the metadata table, {each.problem.value}: {each.detail}"
        f" (found {each.found or 'nothing'}, expected {each.expected or 'nothing'})"
    )
    return FileFinding(Problem.METADATA, path, None, detail)
