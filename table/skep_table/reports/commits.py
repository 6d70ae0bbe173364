"""What commits wrote, and in which sizes; what restores roll back; tables compared; instants as files for people."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_format.timeline.codec import encode_json, is_json
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteStat, write_totals
from skep_format.timeline.plans import RestoreMetadata, RestorePlan
from skep_table.table import HudiTable

EXPORTED: Final = ("clean", "commit", "deltacommit", "rollback", "savepoint", "restore")
"""The actions that Hudi exports by default."""


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file that a completed commit states to have written."""

    instant: Instant
    stat: WriteStat


@dataclass(frozen=True, slots=True)
class WriteAmplification:
    """How many rows a commit wrote for those that it updated; of all commits together with `commit` Total."""

    commit: str
    updated: int
    written: int

    @property
    def factor(self) -> str:
        """Rows written for each row that was updated."""
        return f"{self.written / self.updated:.2f}" if self.updated else "0"


@dataclass(frozen=True, slots=True)
class ComparedCommits:
    """Whether a table is ahead of another one, by the last commits of both, and the commits that the other lacks."""

    table: str
    is_ahead: bool
    instants: tuple[Instant, ...]

    def __str__(self) -> str:
        word, times = "ahead" if self.is_ahead else "behind", ", ".join(each.requested_time for each in self.instants)
        count = len(self.instants)
        return f"Source {self.table} is {word} by {count} commits. Commits to catch up - [{times}]"


def completed_writes(table: HudiTable, limit: int = -1) -> list[tuple[Instant, CommitMetadata]]:
    """The newest completed writes of the active timeline, newest first, at most `limit` of them."""
    instants = table.timeline.data().completed().instants
    return [
        (instant, table.commit_metadata(instant)) for instant in reversed(instants[-limit:] if limit >= 0 else instants)
    ]


def write_amplification(table: HudiTable, limit: int = -1) -> list[WriteAmplification]:
    """By commit, newest first, at most `limit` of them; then of these together."""
    rows = []
    for instant, metadata in completed_writes(table, limit):
        total = write_totals(metadata.stats)
        rows.append(WriteAmplification(instant.requested_time, total["updates"], total["written"]))
    whole = WriteAmplification("Total", sum(row.updated for row in rows), sum(row.written for row in rows))
    return [*rows, whole]


def compare_commits(table: HudiTable, other: HudiTable) -> ComparedCommits:
    """Which of two tables is ahead of the other one, by their last commits."""
    ours, theirs = (each.timeline.data().completed() for each in (table, other))
    last, their_last = ours.last(), theirs.last()
    is_ahead = last is not None and (their_last is None or last.requested_time.is_after(their_last.requested_time))
    longer, end = (ours, their_last) if is_ahead else (theirs, last)
    more = (longer if end is None else longer.after(end.requested_time)).instants
    return ComparedCommits(table.config.name, is_ahead, tuple(more))


def committed_files(
    table: HudiTable,
    *,
    instant: InstantTime | None = None,
    partition: str | None = None,
    file_id: str | None = None,
    since: InstantTime | None = None,
    until: InstantTime | None = None,
    archived: bool = False,
) -> Iterator[CommittedFile]:
    """What completed commits wrote, newest first: one of them, to one partition, or to one file group.

    `since` and `until` are requested times, both included; `archived` commits come last. InputError for an `instant`
    that is no completed commit of these.
    """
    past = table.timeline.archived() if archived else ()
    writes = [each for each in past if each.is_completed and each.action in DATA_ACTIONS]
    found = False
    for each in reversed([*writes, *table.timeline.data().completed()]):
        time = each.requested_time
        if instant not in (None, time) or (since and time.is_before(since)) or (until and time.is_after(until)):
            continue
        found = True
        metadata = table.commit_metadata(each)
        stats: Sequence[WriteStat] = metadata.stats
        if partition is not None:
            stats = metadata.partition_to_write_stats.get(partition, ())
        yield from (CommittedFile(each, stat) for stat in stats if file_id in (None, stat.file_id))
    if instant is not None and not found:
        where = "on the timeline" if archived else "on the active timeline"
        raise table.error(InputError, f"commit {instant} is not {where}", instant=instant)


@dataclass(frozen=True, slots=True)
class RestoredInstant:
    """An instant that a restore rolls back, and how many milliseconds the whole restore took once it is complete."""

    restore: Instant
    rolled_back: InstantTime
    milliseconds: int | None = None


def restored_instants(
    table: HudiTable, instant: InstantTime | None = None, *, pending: bool = False
) -> Iterator[RestoredInstant]:
    """Of each completed restore of the active timeline, oldest first; with `pending` of those that are not, too.

    `instant`: only of this restore, whatever its state. InputError where there is none.
    """
    restores = table.timeline.of(Action.RESTORE)
    found = [*restores.completed(), *(restores.pending() if pending or instant is not None else ())]
    if instant is not None:
        found = [each for each in found if each.requested_time == instant]
        if not found:
            raise table.error(InputError, f"there is no restore {instant}", instant=instant)
    for each in found:
        if each.is_completed:
            done = table.plan(each)
            if isinstance(done, RestoreMetadata):
                yield from (
                    RestoredInstant(each, time, done.time_taken_in_millis) for time in done.instants_to_rollback
                )
            continue
        planned = table.requested_plan(RestorePlan, each)
        for info in () if planned is None else planned.instants_to_rollback:
            yield RestoredInstant(each, info.commit_time)


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Of the base files of one commit, or of all (`commit` ALL): bytes at some percentiles, and their spread."""

    commit: str
    smallest: int
    at_10: float
    at_50: float
    average: float
    at_95: float
    greatest: int
    files: int
    deviation: float


def file_sizes(table: HudiTable, keeps: Callable[[str], bool], limit: int = -1) -> list[FileSizes]:
    """By commit, newest first, at most `limit` of them; then of all. `keeps` takes the path of a partition."""
    view = table.view()
    by_commit: dict[str, list[int]] = {}
    for path in filter(keeps, view.partitions()):
        for found in view.all_slices(path):
            if found.base_file is not None:
                by_commit.setdefault(str(found.base_instant), []).append(found.base_file.size_bytes)
    rows = [_sizes(time, sizes) for time, sizes in sorted(by_commit.items(), reverse=True)]
    every = [size for sizes in by_commit.values() for size in sizes]
    return [*(rows[:limit] if limit >= 0 else rows), *([_sizes("ALL", every)] if every else [])]


def _sizes(commit: str, sizes: Sequence[int]) -> FileSizes:
    at_10, at_50, at_95 = map(float, np.quantile(sizes, (0.1, 0.5, 0.95), method="inverted_cdf"))
    mean, spread = statistics.fmean(sizes), statistics.stdev(sizes) if len(sizes) > 1 else 0.0
    return FileSizes(commit, min(sizes), at_10, at_50, mean, at_95, max(sizes), len(sizes), spread)


def export_instants(
    table: HudiTable,
    folder: Path,
    *,
    actions: Collection[str] = EXPORTED,
    limit: int = -1,
    newest_first: bool = False,
    archived: bool = False,
) -> list[tuple[Instant, Path]]:
    """Writes each completed instant of these actions into a file `<time>.<action>` of a folder.

    The first `limit` of them, oldest first or `newest_first`; `archived`: those of the archive, too. InputError where
    there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", option="local_folder", found=str(folder))
    past = [(each, True) for each in table.timeline.archived() if each.is_completed] if archived else []
    found = [*past, *((each, False) for each in table.timeline.completed().instants)]
    found = [each for each in found if each[0].action.value in actions]
    if newest_first:
        found.reverse()
    written = []
    for instant, is_past in found[:limit] if limit >= 0 else found:
        path = folder / f"{instant.requested_time}.{instant.action.value}"
        path.write_bytes(_content(table, instant, is_past))
        written.append((instant, path))
    return written


def _content(table: HudiTable, instant: Instant, is_past: bool) -> bytes:
    if instant.action in DATA_ACTIONS:
        data = b"" if is_past else table.storage.read(table.layout.path(instant))
        return data if is_json(data) else encode_json(table.commit_metadata(instant))
    archive = table.timeline.archive
    found: Any = archive.completed_content(instant) if is_past and archive is not None else table.plan(instant)
    return b"" if found is None else json.dumps(dataclasses.asdict(found), default=dict, indent=1).encode()
