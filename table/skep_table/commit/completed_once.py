"""Completing an instant that several processes may carry out: one of them completes it."""

from __future__ import annotations

from skep_format.errors import AlreadyExistsError
from skep_format.timeline.instant import Instant
from skep_format.timeline.plans import Plan
from skep_format.timeline.write import complete
from skep_table.commit.instants import timeline_clock
from skep_table.table import HudiTable


def complete_once(table: HudiTable, instant: Instant, content: Plan) -> Instant:
    """Completes a service or a rollback. AlreadyExistsError when another process has completed it.

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
