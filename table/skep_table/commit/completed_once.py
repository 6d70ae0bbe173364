"""Completing an instant that several processes may carry out: one of them completes it.

Where the name of a completed file states when the instant completed, creating it can't exclude another one of the same
instant: the timeline's folder is listed before, under the lock (format guide 14.1).
"""

from __future__ import annotations

from skep_table.commit.instants import timeline_clock
from skep_table.errors import AlreadyExistsError
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant
from skep_table.timeline.plans import Plan
from skep_table.timeline.write import complete


def complete_once(table: HudiTable, instant: Instant, content: Plan) -> Instant:
    """Completes a service or a rollback. AlreadyExistsError when another process has completed it."""
    if not table.layout.one_completed_name:
        table = table.reload()
        done = [each for each in table.timeline.completed().of(instant.action) if _same(each, instant)]
        if done:
            path = table.layout.path(done[0])
            raise AlreadyExistsError(f"{path} exists", path=path)
    return complete(table, instant, content, timeline_clock(table), alone=True)


def completed_files(table: HudiTable, instant: Instant) -> list[str]:
    """The paths of an instant's completed files: one at most, unless two processes completed it at once."""
    layout = table.layout
    if layout.one_completed_name:
        path = layout.path(instant)
        return [path] if table.storage.exists(path) else []
    named = ((file.path, layout.parse(file.name)) for file in table.storage.list_folder(layout.folder).files)
    return [path for path, found in named if found is not None and found.is_completed and _same(found, instant)]


def _same(one: Instant, other: Instant) -> bool:
    return (one.requested_time, one.action) == (other.requested_time, other.action.completed_as)
