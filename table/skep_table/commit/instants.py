"""New instants: how their times are chosen, and which other writers a completion waits for.

Table version 6: Hudi chooses an instant time, creates the instant, and reads the timeline after that; 0.x chooses the
time a while before it creates the instant, and without the lock. Hudi reads what completes in between, and never
compares with it, so it must have an earlier time than Hudi's instant: else what Hudi writes would be hidden below it.
So instants of a shared table are backdated, though never before an existing instant; and where that makes one later
than an instant that was only just created, it completes when the writer of that one has read the timeline.

From version 8 on both times of an instant are chosen under the lock, after all others that are there. Hudi takes its
own clock as it is, after it has held the lock for the greatest difference between two clocks that it expects: so what
another writer chose before lies in the past of every clock. Times of a shared table are backdated by that difference
instead, and nobody waits: they lie in the past of every clock, too, and after all that the timeline shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from skep_format.clock import Clock, LateClock
from skep_format.errors import AlreadyExistsError, CommitConflictError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import Plan
from skep_format.timeline.timeline import format_instant_time
from skep_format.timeline.write import complete, create_requested, request_instant
from skep_table.commit.heartbeat import ActiveWriters, writer_details
from skep_table.commit.options import CLOCK_SKEW_MILLISECONDS, INSTANT_LAG_SECONDS, Concurrency
from skep_table.table import HudiTable

_POLL_SECONDS: Final = 0.1


def request_write(
    table: HudiTable,
    action: Action,
    content: Plan | None,
    announce: Callable[[InstantTime], None],
    at: InstantTime | None = None,
) -> Instant:
    """A requested instant of a write; only a shared table's is backdated. `announce` as for `request_instant`.

    `at` is a time that Hudi gives to one kind of write. CommitConflictError where another writer has it.
    """
    if at is not None:
        try:
            announce(at)
            return create_requested(table, Instant(at, action, State.REQUESTED), content)
        except AlreadyExistsError as error:
            raise table.error(CommitConflictError, f"another writer has instant {at}", instant=at) from error
    shared = Concurrency.of(table.options).is_shared or table.format.chooses_times_under_lock
    clock = timeline_clock(table) if shared else table.context.clock
    return request_instant(table, action, content, clock, announce=announce)[0]


def request_plan(table: HudiTable, action: Action, plan: Plan) -> Instant:
    """A requested instant for a plan: of a service, or of a rollback.

    Backdated, as the modes of other writers are not known: with the present time it would move theirs forward.
    """
    return request_instant(table, action, plan, timeline_clock(table))[0]


def after_others_have_read(table: HudiTable, instant: Instant) -> HudiTable:
    """A snapshot of the table after all JVM writers that created their instant have read the timeline.

    Called before a completion, without the lock. A writer whose instant is inflight has read the timeline: it compares
    what completes from now on with what it writes. Others are waited for as long as instants are backdated.
    """
    lag = table.options.value(INSTANT_LAG_SECONDS)
    if not lag or not table.context.lock.leased:
        return table
    while True:
        since = format_instant_time(table.context.clock.now() - timedelta(seconds=lag), table.config.timezone)
        created = [
            each.requested_time
            for each in table.timeline.data().pending()
            if each.state is State.REQUESTED and each.requested_time.is_between(since, instant.requested_time)
        ]
        if not created or not _any_of_jvm(table, created):
            return table
        table.context.clock.sleep(_POLL_SECONDS)
        table = table.reload()


def _any_of_jvm(table: HudiTable, times: Sequence[InstantTime]) -> bool:
    """Whether one belongs to an active writer that is not skep's: skep's read the timeline first."""
    writers = ActiveWriters(table.context)
    return any(writers.is_active(time) and not writer_details(table.storage, time) for time in times)


def timeline_clock(table: HudiTable) -> Clock:
    """The clock by which the times of a plan, and completion times, are chosen: late where others share the table."""
    context = table.context
    if table.format.chooses_times_under_lock:
        lag = context.options.value(CLOCK_SKEW_MILLISECONDS) / 1000
    else:
        lag = context.options.value(INSTANT_LAG_SECONDS)
    return LateClock(context.clock, lag) if lag and context.lock.leased else context.clock


def complete_once(table: HudiTable, instant: Instant, content: Plan) -> Instant:
    """Completes a service or a rollback that several processes may carry out.

    AlreadyExistsError when another one has completed it.

    Where a name states when the instant completed, creating the file can't exclude another one: the timeline is listed
    before, under the lock, for that and for the time (format guide 14.1).
    """
    if not table.layout.one_completed_name:
        table = table.reload()
        for done in table.timeline.completed().of(instant.action):
            if done.requested_time == instant.requested_time:
                path = table.layout.path(done)
                raise AlreadyExistsError(f"{path} exists", path=path)
    return complete(table, instant, content, timeline_clock(table), alone=True)
