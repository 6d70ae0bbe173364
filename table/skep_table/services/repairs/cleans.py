"""Pending cleans whose plan can't be read: each stops every clean after it, and is deleted, to be planned again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from skep_format.errors import FormatError
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanerPlan
from skep_format.timeline.write import delete_pending
from skep_table.commit.writable import check_writable, take_lock_over
from skep_table.services.execution import refuse_while_active
from skep_table.table import HudiTable

log = logging.getLogger("skep.clean")


@dataclass(frozen=True, slots=True)
class UnreadableClean:
    """A pending clean, why its plan can't be read, and whether it was deleted."""

    instant: Instant
    problem: str
    deleted: bool = False


def delete_unreadable_cleans(table: HudiTable, *, plan: bool = False) -> list[UnreadableClean]:
    """Deletes the pending cleans whose plan can't be read, from the timeline only.

    A clean changes no row. An inflight one may have deleted files that its metadata table still lists: a check
    (`skep fsck --metadata`) names these. CommitConflictError while its executor may be active.
    """
    if plan:
        return list(_unreadable(table.reload()))
    with table.context.locked():
        table = take_lock_over(table)
        check_writable(table.config, table.storage.root)
        found = list(_unreadable(table))
        for each in found:
            refuse_while_active(table, each.instant)
            table.context.lock.ensure_held()
            delete_pending(table, each.instant)
            log.warning(
                "table %s: clean %s is deleted: %s", table.config.name, each.instant.requested_time, each.problem
            )
    return [replace(each, deleted=True) for each in found]


def _unreadable(table: HudiTable) -> Iterator[UnreadableClean]:
    for instant in table.timeline.pending().of(Action.CLEAN):
        try:
            plan = table.requested_plan(CleanerPlan, instant)
        except FormatError as error:
            yield UnreadableClean(instant, error.message)
        else:
            if plan is None:
                yield UnreadableClean(instant, "its plan is empty or missing")
