"""All checks of a table, one after the other: what one of them can't read is a finding, and the next one runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from skep_format.errors import SkepError, UnsupportedError
from skep_format.runner import Runner, ThreadRunner
from skep_table.context import TableContext
from skep_table.services.fsck.files import ListedFiles, Newest, check_contents, check_files, list_files
from skep_table.services.fsck.findings import FileFinding, Problem, noted
from skep_table.services.fsck.instants import damaged_archive, read_timeline
from skep_table.services.fsck.metadata import check_metadata
from skep_table.services.fsck.settings import DamagedTable, open_damaged
from skep_table.table import HudiTable

_ATTEMPTS: Final = 3


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
