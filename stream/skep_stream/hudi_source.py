"""A Hudi table as a source: its commits one after another; the checkpoint is the time of the last one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skep_stream.options import (
    MISSING_CHECKPOINT,
    READ_LATEST,
    SOURCE_INSTANTS,
    SOURCE_TABLE,
    MissingCheckpoint,
)
from skep_stream.protocols import Batch, Position, StreamContext
from skep_table.errors import InputError, OptionError
from skep_table.instant_time import BEGINNING, InstantTime
from skep_table.options import Options
from skep_table.query.options import QueryType
from skep_table.query.read import read
from skep_table.query.request import ReadRequest
from skep_table.schema.types import META_FIELDS
from skep_table.table import HudiTable

_COMMIT_TIME = "_hoodie_commit_time"
_BY_REQUEST, _BY_COMPLETION = "resumeFromInstantRequestTime:", "resumeFromInstantCompletionTime:"


@dataclass(frozen=True, slots=True)
class Range:
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

    def fetch(self, last: Position, limit: int) -> Batch:  # noqa: ARG002 - commits are counted, not bytes
        """The rows of the next commits, as they are after the last of these. InputError without a checkpoint."""
        table = HudiTable.open(self.path, self.options)
        checkpoint = None if last.checkpoint is None else checkpoint_of(table, last.checkpoint)
        found = next_range(times_of(table), checkpoint, self.instants, self.missing)
        if found is None or found.since == found.until:
            return Batch(None, last.checkpoint if found is None else str(found.until))
        return Batch(_rows(table, found), str(found.until))


def checkpoint_of(table: HudiTable, text: str) -> InstantTime:
    """The time that a checkpoint means, with a prefix of Hudi 1.x too. InputError for what is no time of that kind."""
    by_completion = table.format.reads.ranges_by_completion_time
    time = InstantTime(text.removeprefix(_BY_REQUEST).removeprefix(_BY_COMPLETION))
    found: InstantTime | None = time
    if text.startswith(_BY_REQUEST) and by_completion:
        completed = table.timeline.completion_time_of(time)
        found = None if completed is None else InstantTime(completed)
    if found is None or not time.isdigit() or (text.startswith(_BY_COMPLETION) and not by_completion):
        raise InputError(
            f"table {table.config.name}: {text!r} is no checkpoint of a table of version {table.config.version}",
            hint="the requested time of an instant; from version 8 on its completion time, or, after"
            f" {_BY_REQUEST}, its requested time",
            found=text,
        )
    return found


def times_of(table: HudiTable) -> list[InstantTime]:
    """The times of completed commits: requested ones in version 6, completion times from version 8 on."""
    commits = table.timeline.data().completed().instants
    if table.format.reads.ranges_by_completion_time:
        return sorted(InstantTime(each.completion_time or each.requested_time) for each in commits)
    return [each.requested_time for each in commits]


def next_range(
    times: Sequence[InstantTime], last: InstantTime | None, most: int, missing: MissingCheckpoint | None
) -> Range | None:
    """What a round reads; None where the table has no commit.

    A checkpoint before the first commit of the active timeline stands for the whole table, in one round.
    """
    if last is None and missing is None:
        raise InputError(
            "the source has no checkpoint to begin from",
            hint=f"--checkpoint names one (0: the whole table), or {MISSING_CHECKPOINT.key}=READ_LATEST or"
            " READ_UPTO_LATEST_COMMIT",
            option=MISSING_CHECKPOINT.key,
        )
    if not times:
        return None
    if last is None and missing is MissingCheckpoint.READ_LATEST:
        return Range(times[-2] if len(times) > 1 else BEGINNING, times[-1])
    since = BEGINNING if last is None else last
    if since.is_before(times[0]):
        return Range(since, times[-1], whole=True)
    later = [time for time in times if time.is_after(since)][:most]
    return Range(since, later[-1] if later else since)


def _rows(table: HudiTable, found: Range) -> pa.Table:
    if found.whole:
        answer = read(table, ReadRequest())
    else:
        answer = read(
            table, ReadRequest.of(table.options, query=QueryType.INCREMENTAL, since=found.since, until=found.until)
        )
    rows = answer.to_arrow()
    if found.whole and not table.format.reads.ranges_by_completion_time:
        rows = rows.filter(pc.greater(rows.column(_COMMIT_TIME), found.since))
    return rows.drop_columns([name for name in rows.schema.names if name in META_FIELDS])


def hudi_source(context: StreamContext) -> HudiSource:
    """HoodieIncrSource."""
    options = context.options
    path = options.value(SOURCE_TABLE)
    if not path:
        raise OptionError(f"HoodieIncrSource needs {SOURCE_TABLE.key}", option=SOURCE_TABLE.key)
    missing = options.value(MISSING_CHECKPOINT)
    if missing is None and options.value(READ_LATEST):
        missing = MissingCheckpoint.READ_LATEST
    own = Options(
        {
            key: value
            for key, value in options.items()
            if not key.startswith(("hoodie.table.", "hoodie.datasource.write."))
        }
    )
    return HudiSource(path, own, options.value(SOURCE_INSTANTS), missing)
