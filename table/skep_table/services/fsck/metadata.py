"""The metadata table of a table: whether it can be read, and whether it agrees with the files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from skep_table.errors import NotATableError
from skep_table.metadata_table import FOLDER
from skep_table.metadata_write import has_metadata_table, open_own
from skep_table.runner import Runner
from skep_table.services.fsck.files import Newest, check_files, list_files
from skep_table.services.fsck.findings import FileFinding, Problem, noted
from skep_table.services.fsck.instants import damaged_archive, read_timeline
from skep_table.services.metadata_check import Difference, check_metadata_table
from skep_table.services.metadata_check import Problem as MetadataProblem
from skep_table.table import HudiTable

_OF_FILES = (Problem.MISSING, Problem.SIZE)


def check_metadata(table: HudiTable, runner: Runner, *, compare: bool) -> list[FileFinding]:
    """What can't be read of it, and where it is asked to `compare` and could be read, what differs."""
    if not has_metadata_table(table.config):
        return []
    found: list[FileFinding] = []
    with noted(found.append, Problem.METADATA, FOLDER):
        try:
            own = open_own(table)
        except NotATableError:
            detail = "the table's settings name a metadata table, and there is none"
            return [FileFinding(Problem.METADATA, FOLDER, None, detail)]
        found += map(_within, _damages(own, runner))
    if compare and not found and table.config.metadata_partitions:
        with noted(found.append, Problem.METADATA, FOLDER):
            found += map(partial(_of_difference, table), check_metadata_table(table).differences)
    return found


def _damages(own: HudiTable, runner: Runner) -> list[FileFinding]:
    """What is wrong with it as a table: its timeline, and the files that its commits name."""
    newest = Newest(own)
    read = read_timeline(own, newest.add)
    written = newest.written()
    findings = [*read.findings, *damaged_archive(own)]
    listed = list_files(own, runner, written)
    compared = check_files(own, runner, written, listed, read.cleaned)
    return [*findings, *(each for each in compared if each.problem in _OF_FILES)]


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
