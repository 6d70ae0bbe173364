"""What restores have rolled back, or are to roll back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import RestoreMetadata, RestorePlan
from skep_table.table import HudiTable


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
            raise InputError(f"table {table.config.name}: there is no restore {instant}", instant=instant)
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
