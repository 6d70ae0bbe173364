"""Writing the plan of a compaction, log compaction or clustering onto the timeline, so that it misses no write; and
carrying plans out one after the other.

A plan takes file slices as they are before its requested time. A write that completes between the snapshot that it was
made from and that time would be neither in the plan nor in the slice that follows, and its rows would be lost. All of
it happens in one holding of the lock, under which writes complete, too; but a lock that is leased may be lost in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from skep_format.errors import CommitConflictError
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CompactionPlan, RequestedReplaceMetadata
from skep_format.timeline.write import delete_pending
from skep_table.commit.concurrency.changes import completed_since
from skep_table.commit.instants import request_plan
from skep_table.table import HudiTable

T = TypeVar("T")


def schedule(table: HudiTable, action: Action, plan: CompactionPlan | RequestedReplaceMetadata) -> Instant:
    """Requests a plan that was made from the snapshot `table`, which was taken under the lock that is held.

    CommitConflictError, and the plan is off the timeline, where a write completed since. Where writers name log files
    by the slice that a plan begins, it has to stay: they may have written to that slice already.
    """
    table.context.lock.ensure_held()
    instant = request_plan(table, action, plan)
    if table.context.lock.leased and table.format.logs.of_delta_commit:
        missed = completed_since(table, fresh := table.reload())
        if missed:
            delete_pending(fresh, instant)
            raise CommitConflictError(
                f"table {table.config.name}: {missed[0].requested_time} completed while a {action.value} was planned",
                hint="plan it again",
                table=table.config.name,
                instant=missed[0].requested_time,
            )
    return instant


def execute_each(
    table: HudiTable, planned: Iterable[Instant | None], execute: Callable[[HudiTable, Instant], T | None]
) -> list[T]:
    """What was completed of these plans: not those that others have carried out, or taken back, meanwhile."""
    done = [execute(table, instant) for instant in planned if instant is not None]
    return [each for each in done if each is not None]
