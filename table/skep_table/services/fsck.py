"""Compares the files of a table with its timeline. Changes nothing.

Finds files that no commit names, files that a commit names and that are missing, and files that differ from their
commit metadata. Only the newest slices are compared: a clean may have deleted all before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from skep_table.basefile import read_footer
from skep_table.errors import FormatError
from skep_table.instant_time import InstantTime
from skep_table.names import BaseFileName, FileGroupId, LogFileName
from skep_table.query.named import belongs_to
from skep_table.runner import Runner, ThreadRunner
from skep_table.storage import FileStatus, Storage
from skep_table.table import HudiTable
from skep_table.timeline.metadata import WriteStat


class Problem(str, Enum):
    """What is wrong with a file."""

    ORPHAN = "orphan"  # of an instant that the timeline does not know
    LEFTOVER = "leftover"  # of a write that is pending; the next write rolls it back, unless it is still going on
    DOUBLE = "double"  # a second file of one group and instant, of which a commit names one
    MISSING = "missing"  # named by a commit, and missing
    SIZE = "size"  # another length than in its commit metadata
    ROWS = "rows"  # another number of rows than in its commit metadata
    DAMAGED = "damaged"  # can't be read


@dataclass(frozen=True, slots=True)
class FileFinding:
    """One file that does not agree with the timeline; `detail` explains it for people."""

    problem: Problem
    path: str
    instant: InstantTime
    detail: str


def fsck(table: HudiTable, runner: Runner | None = None) -> list[FileFinding]:
    """All findings, by path. Every partition is listed, and the footers of the newest base files are read."""
    runner = runner or ThreadRunner()
    newest = _newest(table)
    partitions = table.view(metadata=False).partitions()
    listed = runner.map(table.storage.list_prefix, partitions)
    there = {file.path: file for files in listed for file in files}
    found = [finding for files in listed for finding in _unnamed(table, files)]
    found += [
        FileFinding(Problem.MISSING, path, instant, "its commit names it, and it is not there")
        for instant, stat in newest.values()
        for path in stat.paths
        if path not in there
    ]
    tasks = [(instant, stat, there[stat.path]) for instant, stat in newest.values() if stat.path in there]
    for finding in runner.map(partial(_compared, table.storage), tasks):
        found += finding
    return sorted(found, key=lambda finding: (finding.path, finding.problem.value))


def _newest(table: HudiTable) -> Mapping[str, tuple[InstantTime, WriteStat]]:
    """The write stats of the newest slice of each live group in the active timeline: path → instant, stat."""
    base: dict[FileGroupId, tuple[InstantTime, WriteStat]] = {}
    logs: dict[FileGroupId, list[tuple[InstantTime, WriteStat]]] = {}
    replaced: dict[FileGroupId, InstantTime] = {}
    belongs = partial(belongs_to, table)
    for instant in table.timeline.data().completed():
        metadata = table.commit_metadata(instant)
        time = instant.requested_time
        for path, ids in (metadata.partition_to_replace_file_ids or {}).items():
            replaced.update({FileGroupId(path, file_id): time for file_id in ids})
        for stat in metadata.stats:
            group = FileGroupId(stat.partition_path, stat.file_id)
            if stat.is_log:
                logs.setdefault(group, []).append((time, stat))
            elif stat.path:
                base[group] = time, stat
                # logs of the slice before are the clean's; those of a slice that awaited this file stay
                logs[group] = [each for each in logs.get(group, ()) if belongs(*each, time)]
    kept = {group: found for group, found in base.items() if group not in replaced}
    newest = {stat.path: (time, stat) for time, stat in kept.values()}
    for group, found in logs.items():
        if group not in replaced:
            newest.update({stat.path: (time, stat) for time, stat in found})
    return newest


def _unnamed(table: HudiTable, files: Iterable[FileStatus]) -> Iterator[FileFinding]:
    pending = {instant.requested_time for instant in table.timeline.pending_changes()}
    bases: dict[tuple[str, InstantTime], str] = {}
    for file in sorted(files, key=lambda file: file.path):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is None:
            continue
        time = name.instant_time
        if isinstance(name, BaseFileName):
            twin = bases.setdefault((name.file_id, time), file.path)
            if twin != file.path and time not in pending:
                yield FileFinding(Problem.DOUBLE, file.path, time, f"{twin} is of the same group and instant")
        if table.timeline.is_completed_or_archived(time):
            continue
        if time in pending:
            yield FileFinding(Problem.LEFTOVER, file.path, time, "of a write that is pending: going on, or it failed")
        else:
            yield FileFinding(Problem.ORPHAN, file.path, time, "the timeline knows no such instant")


def _compared(storage: Storage, task: tuple[InstantTime, WriteStat, FileStatus]) -> list[FileFinding]:
    instant, stat, file = task
    found = []
    if stat.is_log:
        if file.size_bytes < stat.file_size_in_bytes:
            found.append(_differs(Problem.SIZE, instant, stat, file.size_bytes, stat.file_size_in_bytes, "bytes"))
        return found
    if stat.file_size_in_bytes and file.size_bytes != stat.file_size_in_bytes:
        found.append(_differs(Problem.SIZE, instant, stat, file.size_bytes, stat.file_size_in_bytes, "bytes"))
    try:
        footer = read_footer(storage, stat.path)
        if footer.num_rows != stat.num_writes:
            found.append(_differs(Problem.ROWS, instant, stat, footer.num_rows, stat.num_writes, "rows"))
        if footer.num_rows:
            _ = footer.schema, footer.bloom
    except FormatError as error:
        found.append(FileFinding(Problem.DAMAGED, stat.path, instant, error.message))
    return found


def _differs(
    problem: Problem, instant: InstantTime, stat: WriteStat, found: int, stated: int, what: str
) -> FileFinding:
    return FileFinding(problem, stat.path, instant, f"{found:,} {what}, its commit states {stated:,}")
