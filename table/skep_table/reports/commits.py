"""What commits wrote: to each file, for each row that they updated, and compared with the commits of another table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteStat, write_totals
from skep_table.table import HudiTable


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
    found = False
    for each in _writes(table, instant, since, until, archived=archived):
        found = True
        metadata = table.commit_metadata(each)
        stats: Sequence[WriteStat] = metadata.stats
        if partition is not None:
            stats = metadata.partition_to_write_stats.get(partition, ())
        yield from (CommittedFile(each, stat) for stat in stats if file_id in (None, stat.file_id))
    if instant is not None and not found:
        where = "on the timeline" if archived else "on the active timeline"
        raise InputError(f"table {table.config.name}: commit {instant} is not {where}", instant=instant)


def _writes(
    table: HudiTable,
    instant: InstantTime | None,
    since: InstantTime | None,
    until: InstantTime | None,
    *,
    archived: bool,
) -> Iterator[Instant]:
    past = (
        [each for each in table.timeline.archived() if each.is_completed and each.action in DATA_ACTIONS]
        if archived
        else []
    )
    for each in reversed([*past, *table.timeline.data().completed()]):
        time = each.requested_time
        if instant is not None and time != instant:
            continue
        if (since is None or time.is_at_or_after(since)) and (until is None or time.is_at_or_before(until)):
            yield each
