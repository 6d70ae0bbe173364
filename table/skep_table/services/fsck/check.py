"""All checks of a table, one after the other: what one of them can't read is a finding, and the next one runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from skep_format.errors import NotATableError, SkepError, UnsupportedError
from skep_format.instant_time import DIGITS, CompletionTime, InstantTime
from skep_format.names import BaseFileName, LogFileName
from skep_format.runner import Runner, ThreadRunner
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.context import TableContext
from skep_table.metadata_table import FIRST_INSTANTS, FOLDER
from skep_table.metadata_write.own import has_metadata_table, open_own
from skep_table.services.fsck.files import (
    ListedFiles,
    Newest,
    check_contents,
    check_files,
    damaged_archive,
    list_files,
    read_timeline,
)
from skep_table.services.fsck.findings import FileFinding, Problem, noted
from skep_table.services.fsck.settings import DamagedTable, open_damaged
from skep_table.services.metadata_check import Difference, MetadataProblem, check_metadata_table
from skep_table.table import HudiTable

_OF_FILES = (Problem.MISSING, Problem.SIZE)
_ATTEMPTS: Final = 3


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
        pending = table.timeline.pending()
        for each in _damages(own, runner):
            # a delta commit of an action of the table that is pending is written again by its next executor
            if each.instant is None or not pending.contains(InstantTime(each.instant[:DIGITS])):
                path, detail = f"{FOLDER}/{each.path}", f"{each.problem.value}: {each.detail}"
                found.append(replace(each, problem=Problem.METADATA, path=path, detail=detail))
    if compare and not found and table.config.metadata_partitions:
        with noted(found.append, Problem.METADATA, FOLDER):
            found += map(partial(_of_difference, table), check_metadata_table(table).differences)
    return found


def _damages(own: HudiTable, runner: Runner) -> list[FileFinding]:
    """What is wrong with it as a table: its timeline, and the files that its commits name."""
    newest, made, timeline = Newest(own), dict[str, CompletionTime](), own.timeline

    def add(instant: Instant, commit: CommitMetadata) -> None:
        newest.add(instant, commit)
        done = timeline.completion_time_of(instant.requested_time)
        if instant.requested_time.startswith(FIRST_INSTANTS) and done is not None:
            made.update({path: max(done, made.get(path, done)) for path in commit.partition_to_write_stats})

    read = read_timeline(own, add)
    written = newest.written()
    listed = list_files(own, runner, written)
    slices = {found for path in listed.files if (found := _slice_of(path)) is not None}

    def is_read(finding: FileFinding) -> bool:
        """Whether a file is of a partition as it was made last: a partition that was dropped and rebuilt has an
        artificial time, before those of the commits that wrote to it until then.

        By the slices that are there where log files are named by their slice, else by when instants completed.
        """
        if not own.format.logs.of_delta_commit:
            return _slice_of(finding.path) in slices
        since = made.get(finding.path.rpartition("/")[0])
        done = timeline.completion_time_of(finding.instant) if finding.instant is not None else None
        return since is None or done is None or done.is_at_or_after(since)

    compared = check_files(own, runner, written, listed, read.cleaned)
    lost = (each for each in compared if each.problem in _OF_FILES and is_read(each))
    return [*read.findings, *damaged_archive(own), *lost]


def _slice_of(path: str) -> tuple[str, str, InstantTime] | None:
    folder, _, file = path.rpartition("/")
    name = BaseFileName.parse(file) or LogFileName.parse(file)
    return None if name is None else (folder, name.file_id, name.instant_time)


def _of_difference(table: HudiTable, each: Difference) -> FileFinding:
    if each.problem is MetadataProblem.DAMAGED and table.storage.exists(each.subject):
        return FileFinding(Problem.DAMAGED, each.subject, None, each.detail)  # a data file that was compared with
    path = "/".join(part for part in (each.path, each.subject) if part)
    detail = (
        f"{each.partition} of the metadata table, {each.problem.value}: {each.detail}"
        f" (found {each.found or 'nothing'}, expected {each.expected or 'nothing'})"
    )
    return FileFinding(Problem.METADATA, path, None, detail)


def fsck(
    table: HudiTable, runner: Runner | None = None, *, deep: bool = False, metadata: bool = False
) -> list[FileFinding]:
    """All findings, by path. Every partition is listed, and the footers of the newest base files are read.

    `deep` reads all of every data file; `metadata` compares the metadata table with the files, as `deep` does, too.
    """
    return _checked(table, runner or ThreadRunner(), deep=deep, metadata=metadata)


def fsck_at(
    context: TableContext,
    *,
    deep: bool = False,
    metadata: bool = False,
    properties: Mapping[str, str] | None = None,
) -> tuple[DamagedTable, list[FileFinding]]:
    """The same for a table whose settings may be lost: `properties` are those that its administrator knows.

    Where something is found and another action has completed meanwhile, it is repeated: what that deleted or added may
    be all there is to it. NotATableError where there is no table, TableVersionError for a version that skep can't read.
    """
    for _ in range(_ATTEMPTS):
        opened = open_damaged(context, properties)
        table = opened.table
        findings = [*opened.findings, *_checked(table, context.runner, deep=deep, metadata=metadata)]
        if not findings or table.timeline_now().instants == table.timeline.instants:
            break
    return opened, _in_order(findings)


def _checked(table: HudiTable, runner: Runner, *, deep: bool, metadata: bool) -> list[FileFinding]:
    external = False
    with suppress(SkepError):  # a commit that can't be read is found below
        external = table.has_external_files
    if external:
        raise UnsupportedError(
            f"table {table.config.name} at {table.storage.root} is metadata over files of another table format, made by"
            " Apache XTable or the like: files in its folders can't be compared with its commits",
            table=table.config.name,
            path=table.storage.root,
        )
    findings: list[FileFinding] = []
    guarded = partial(noted, findings.append)
    newest = Newest(table)
    cleaned: frozenset[str] = frozenset()
    with guarded(Problem.PLAN, table.layout.folder):
        read = read_timeline(table, newest.add)
        findings += read.findings
        cleaned = read.cleaned
    with guarded(Problem.ARCHIVE, table.layout.archive_folder):
        findings += damaged_archive(table)
    written = newest.written()
    listed = ListedFiles({})
    with guarded(Problem.DAMAGED, ""):
        listed = list_files(table, runner, written)
        findings += check_files(table, runner, written, listed, cleaned)
    if deep:
        with guarded(Problem.DAMAGED, ""):
            findings += check_contents(table, runner, written, listed)
    damaged = {finding.path for finding in findings if finding.problem is Problem.DAMAGED}
    found = check_metadata(table, runner, compare=deep or metadata)
    findings += [each for each in found if each.problem is not Problem.DAMAGED or each.path not in damaged]
    return _in_order(findings)


def _in_order(findings: Iterable[FileFinding]) -> list[FileFinding]:
    return sorted(dict.fromkeys(findings), key=lambda finding: (finding.path, finding.problem.value))
