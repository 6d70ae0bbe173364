"""A Hudi table as a source: its commits one after another; the checkpoint is the time of the last one read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import ChangesCleanedError, InputError
from skep_format.instant_time import BEGINNING, InstantTime
from skep_format.options import Options
from skep_format.schema.types import META_FIELDS
from skep_format.timeline.instant import DATA_ACTIONS
from skep_format.timeline.timeline import milliseconds_of
from skep_stream import options as keys
from skep_stream.options import CleanedAway, MissingCheckpoint
from skep_stream.protocols import SINCE, Batch, Position, StreamContext
from skep_table.query.incremental import pending_write, times_of
from skep_table.query.options import QueryType
from skep_table.query.read import read
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable

_COMMIT_TIME = "_hoodie_commit_time"
_WAYS_ON = (
    f"{keys.CLEANED_AWAY.key}=full reads the table as it is now, in one round; earliest goes on at the first commit"
    " that can be read"
)
_BY_REQUEST, _BY_COMPLETION = "resumeFromInstantRequestTime:", "resumeFromInstantCompletionTime:"


class SkippedChangesWarning(UserWarning):
    """Commits of a source were cleaned before they were read."""


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits of a round: after `since`, up to `until`. `whole`: those of the table as it is at its last commit."""

    since: InstantTime
    until: InstantTime
    whole: bool = False


@dataclass(frozen=True, slots=True)
class HudiSource:
    """Rows that the commits of a table inserted or updated; deletes are not among them, as in Hudi."""

    path: str
    options: Options
    instants: int
    missing: MissingCheckpoint | None
    cleaned: CleanedAway | None = None

    def fetch(self, last: Position, limit: int) -> Batch:  # noqa: ARG002 - commits are counted, not bytes
        """The rows of the next commits, as they are after the last of these. InputError without a checkpoint."""
        table, times, checkpoint = self._now(last)
        found = next_range(times, checkpoint, self.instants, self.missing)
        if found is None or found.since == found.until:
            return Batch(None, last.checkpoint if found is None else str(found.until))
        if found.whole and found.since.strip("0") and self.cleaned is not None:
            found = self._behind_archived(table, times, found)
        rows, found = self._read(table, times, found)
        return Batch(rows, str(found.until))

    def waiting(self, last: Position) -> dict[str, object]:
        """How many commits no round has read yet, the newest of them, the pending write that holds later ones, and the
        time of the oldest that waits."""
        table, times, checkpoint = self._now(last)
        later = [time for time in times if checkpoint is None or time.is_after(checkpoint)]
        pending, newest = pending_write(table), table.timeline.data().completed().last()
        holds = pending is not None and newest is not None and newest.requested_time.is_after(pending)
        return {
            "waiting_commits": len(later),
            "newest": str(times[-1]) if times else None,
            "held_by": str(pending) if holds else None,
            SINCE: milliseconds_of(later[0], table.config.timezone) if later else None,
        }

    def _now(self, last: Position) -> tuple[HudiTable, list[InstantTime], InstantTime | None]:
        table = HudiTable.open(self.path, self.options)
        return table, times_of(table), None if last.checkpoint is None else checkpoint_of(table, last.checkpoint)

    def _behind_archived(self, table: HudiTable, times: Sequence[InstantTime], found: CommitRange) -> CommitRange:
        """What a round reads whose checkpoint precedes the active timeline. ChangesCleanedError by `fail`."""
        time_of = table.format.reads.time_in_range
        archived = (each for each in table.timeline.archived(found.since) if each.action in DATA_ACTIONS)
        if not any(each.is_completed and time_of(each).is_after(found.since) for each in archived):
            return CommitRange(found.since, times[: self.instants][-1])
        if self.cleaned is CleanedAway.FAIL:
            problem = f"commits after {found.since} are archived"
            raise table.error(ChangesCleanedError, problem, hint=_WAYS_ON, found=found.since)
        if self.cleaned is CleanedAway.FULL:
            return found
        _warn_of_skipped(table, found.since, times[0])
        return CommitRange(_just_before(times[0]), times[: self.instants][-1])

    def _read(self, table: HudiTable, times: Sequence[InstantTime], found: CommitRange) -> tuple[pa.Table, CommitRange]:
        """The rows, and of which range they are where files of `found` were cleaned."""
        strict = None if self.cleaned is None else False
        try:
            return _rows(table, found, strict), found
        except ChangesCleanedError as error:
            if self.cleaned is CleanedAway.FULL:
                whole = CommitRange(found.since, times[-1], whole=True)
                return _rows(table, whole, None), whole
            if self.cleaned is CleanedAway.EARLIEST:
                return self._earliest(table, times, found, error)
            raise ChangesCleanedError(error.message, hint=_WAYS_ON, **error.fields) from error

    def _earliest(
        self, table: HudiTable, times: Sequence[InstantTime], found: CommitRange, error: ChangesCleanedError
    ) -> tuple[pa.Table, CommitRange]:
        """From the first commit that can be read."""
        later = [time for time in times if time.is_after(found.since)]
        for at in range(1, len(later)):
            part = CommitRange(later[at - 1], later[at:][: self.instants][-1])
            try:
                rows = _rows(table, part, full_scan=False)
            except ChangesCleanedError:
                continue
            _warn_of_skipped(table, found.since, later[at])
            return rows, part
        raise error


def checkpoint_of(table: HudiTable, text: str) -> InstantTime:
    """The time that a checkpoint means, with a prefix of Hudi 1.x too. InputError for what is no time of that kind."""
    by_completion = table.format.reads.ranges_by_completion_time
    time = InstantTime(text.removeprefix(_BY_REQUEST).removeprefix(_BY_COMPLETION))
    found: InstantTime | None = time
    if text.startswith(_BY_REQUEST) and by_completion:
        completed = table.timeline.completion_time_of(time)
        found = None if completed is None else InstantTime(completed)
    if found is None or not time.isdigit() or (text.startswith(_BY_COMPLETION) and not by_completion):
        raise table.error(
            InputError,
            f"{text!r} is no checkpoint of a table of version {table.config.version}",
            hint="the requested time of an instant; from version 8 on its completion time, or, after"
            f" {_BY_REQUEST}, its requested time",
            found=text,
        )
    return found


def next_range(
    times: Sequence[InstantTime], last: InstantTime | None, most: int, missing: MissingCheckpoint | None
) -> CommitRange | None:
    """What a round reads; None where the table has no commit.

    A checkpoint before the first commit of the active timeline stands for the whole table, in one round.
    """
    if last is None and missing is None:
        raise InputError(
            "the source has no checkpoint to begin from",
            hint=f"--checkpoint names one (0: the whole table), or {keys.MISSING_CHECKPOINT.key}=keys.READ_LATEST or"
            " READ_UPTO_LATEST_COMMIT",
            option=keys.MISSING_CHECKPOINT.key,
        )
    if not times:
        return None
    if last is None and missing is MissingCheckpoint.READ_LATEST:
        return CommitRange(times[-2] if len(times) > 1 else BEGINNING, times[-1])
    since = BEGINNING if last is None else last
    if since.is_before(times[0]):
        return CommitRange(since, times[-1], whole=True)
    later = [time for time in times if time.is_after(since)][:most]
    return CommitRange(since, later[-1] if later else since)


def _rows(table: HudiTable, found: CommitRange, full_scan: bool | None) -> pa.Table:
    by_completion = table.format.reads.ranges_by_completion_time
    if found.whole:
        newest = table.timeline.data().completed().last()
        is_newest = by_completion or newest is None or newest.requested_time == found.until
        answer = read(table, ReadRequest(as_of=None if is_newest else found.until))
    else:
        request = {"query": QueryType.INCREMENTAL, "since": found.since, "until": found.until, "full_scan": full_scan}
        answer = read(table, ReadRequest.of(table.options, **request))
    rows = answer.to_arrow()
    if found.whole and not by_completion:
        rows = rows.filter(pc.greater(rows.column(_COMMIT_TIME), found.since))
    return rows.drop_columns([name for name in rows.schema.names if name in META_FIELDS])


def _just_before(time: InstantTime) -> InstantTime:
    return InstantTime(str(int(time) - 1).zfill(len(time)))


def _warn_of_skipped(table: HudiTable, since: InstantTime, first: InstantTime) -> None:
    warnings.warn(
        f"table {table.config.name}: changes after {since} and before {first} were cleaned and are not read",
        SkippedChangesWarning,
        stacklevel=2,
    )


def hudi_source(context: StreamContext) -> HudiSource:
    """HoodieIncrSource."""
    options = context.options
    path = options.needed(keys.SOURCE_TABLE, "HoodieIncrSource needs")
    missing = options.value(keys.MISSING_CHECKPOINT)
    if missing is None and options.value(keys.READ_LATEST):
        missing = MissingCheckpoint.READ_LATEST
    of_target = ("hoodie.table.", "hoodie.datasource.write.")
    own = Options({key: value for key, value in options.items() if not key.startswith(of_target)})
    return HudiSource(path, own, options.value(keys.SOURCE_INSTANTS), missing, options.value(keys.CLEANED_AWAY))
